/**
 * Server-sent events from bytes, in whatever pieces the network hands them over.
 *
 * Follows the HTML standard's parsing rules, with two differences that a resumable log needs: an event
 * carries only an id of its own (one without an id must not move the cursor), and both lines and events
 * have a limit, so that a broken server cannot fill the memory of a phone.
 */

// A snapshot carries a whole answer; the server bounds those far below this.
export const MAX_EVENT_CHARS = 8 * 1024 * 1024

export class SseError extends Error {}

export class SseParser {
  #decoder = new TextDecoder("utf-8")
  #rest = ""
  #afterCr = false
  #event = emptyEvent()

  /** @param {{onEvent: (event: {id: string|null, name: string, data: string}) => void, onRetry?: (ms: number) => void}} hooks */
  constructor({ onEvent, onRetry = () => {} }) {
    this.onEvent = onEvent
    this.onRetry = onRetry
  }

  /** @param {Uint8Array} bytes */
  feed(bytes) {
    // stream: true keeps a character cut between two reads until its other half arrives.
    let text = this.#decoder.decode(bytes, { stream: true })
    if (!text) return
    // "\r" at the end of one piece and "\n" at the start of the next are one line end.
    if (this.#afterCr && text.startsWith("\n")) text = text.slice(1)
    this.#afterCr = text ? text.endsWith("\r") : false
    this.#takeLines(text)
  }

  #takeLines(text) {
    const lines = text.split(/\r\n|\n|\r/)
    lines[0] = this.#rest + lines[0]
    this.#rest = lines.pop()
    for (const line of lines) this.#takeLine(line)
    this.#checkSize(this.#rest.length)
  }

  #takeLine(line) {
    if (line === "") return this.#dispatch()
    const colon = line.indexOf(":")
    if (colon === 0) return // a comment: the heartbeat
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "")
    this.#takeField(field, value)
  }

  #takeField(field, value) {
    if (field === "data") this.#addData(value)
    else if (field === "event") this.#event.name = value
    else if (field === "id" && !value.includes("\0")) this.#event.id = value
    else if (field === "retry" && /^\d+$/.test(value)) this.onRetry(Number(value))
  }

  #addData(value) {
    this.#event.chars += value.length + 1
    this.#checkSize(this.#event.chars)
    this.#event.data.push(value)
  }

  #checkSize(chars) {
    if (chars > MAX_EVENT_CHARS) throw new SseError("An event is larger than a page may hold.")
  }

  #dispatch() {
    const { id, name, data } = this.#event
    this.#event = emptyEvent()
    if (data.length) this.onEvent({ id, name: name || "message", data: data.join("\n") })
  }
}

function emptyEvent() {
  return { id: null, name: "", data: [], chars: 0 }
}
