/**
 * One run followed to its end, over as many connections as it takes.
 *
 * A send (or a regenerate, a continue) starts with its POST and goes on, after a drop, with `GET /v1/runs/{g}/stream` from the
 * cursor. Until `start` has named the run, the POST itself is repeated: the Idempotency-Key makes that the
 * same run. The stream ends with `done`, with 204, with an answer that no retry can change, or when it
 * is closed from here (leaving a conversation): nothing is lost by that, the log is on the server.
 */
import { Backoff } from "#js/models/backoff.js"
import { judge, parseCursor } from "#js/models/cursor.js"
import { ApiError, errorFrom, NetworkError } from "#js/models/api.js"
import { SseError, SseParser } from "#js/models/sse.js"

// The server sends a comment every 10 to 15 s; a line that is silent for longer is dead (sleep, a lost
// network), though the browser may not know it yet.
export const SILENCE_MS = 40_000
// A send that cannot reach the server at all is given back to the composer after so many tries.
export const MAX_SEND_TRIES = 5

export class RunStream {
  #cursor = 0
  #closed = false
  #done = false
  #gapAt = null
  #abort = null
  #wake = null
  #watchdog = null
  #hurry = false
  #sendTries = 0
  #retryAfterMs = null

  /**
   * @param {object} options
   * @param {object} options.api
   * @param {object|null} options.send what to POST: {conversation, body, key}, see `Api.begin`
   * @param {string|null} options.run the run to resume
   * @param {number} options.after the cursor to resume it from
   * @param {(event: object) => void} options.onEvent {name, data, seq|null}
   * @param {(link: object) => void} options.onLink {state: "connecting"|"live"|"waiting"|"ended", inMs?, error?}
   */
  constructor({ api, send = null, run = null, after = 0, onEvent, onLink = () => {}, timers = globalThis, random = Math.random }) {
    this.api = api
    this.send = send
    this.run = run
    this.#cursor = after
    this.onEvent = onEvent
    this.onLink = onLink
    this.timers = timers
    this.backoff = new Backoff({ random })
  }

  get cursor() {
    return this.#cursor
  }

  /** Resolves when the stream has ended for good. @returns {Promise<{error: Error|null}>} */
  async follow() {
    let error = null
    try {
      while (!this.#closed && !this.#done) await this.#round()
    } catch (caught) {
      error = caught
    }
    this.#closed = true
    this.onLink({ state: "ended", error })
    return { error }
  }

  /** Stop listening. */
  close() {
    this.#closed = true
    this.#abort?.abort()
    this.wake()
  }

  /** Try now instead of later: the network is back. */
  wake() {
    this.#wake?.()
  }

  /**
   * Look again rather than trust a connection that may have died unseen (after sleep). A POST that has
   * not been answered is left alone.
   */
  refresh() {
    if (this.#wake) return this.wake()
    if (!this.run || this.#closed) return
    this.#hurry = true
    this.#abort?.abort()
  }

  async #round() {
    this.onLink({ state: "connecting", again: this.backoff.failures > 0 })
    try {
      await this.#connect()
    } catch (error) {
      if (!this.#mayRetry(error)) throw error
    }
    if (this.#closed || this.#done) return
    await this.#pause()
  }

  async #connect() {
    this.#abort = new AbortController()
    try {
      this.#watch()
      const response = await this.#request(this.#abort.signal)
      if (!response.ok) throw await errorFrom(response)
      this.onLink({ state: "live" })
      if (response.status === 204) this.#done = true
      else await this.#read(response.body.getReader())
    } finally {
      this.timers.clearTimeout(this.#watchdog)
    }
  }

  /** Cuts the connection when nothing has come for SILENCE_MS. */
  #watch() {
    this.timers.clearTimeout(this.#watchdog)
    this.#watchdog = this.timers.setTimeout(() => this.#abort.abort(), SILENCE_MS)
  }

  #request(signal) {
    if (this.run) return this.api.openRun(this.run, this.#cursor, signal)
    this.#sendTries += 1
    return this.api.begin(this.send, signal)
  }

  async #read(reader) {
    const parser = new SseParser({
      onEvent: (event) => this.#take(event),
      onRetry: (ms) => this.backoff.ask(ms),
    })
    try {
      while (!this.#closed && !this.#done) {
        const { value, done } = await readPiece(reader)
        if (done) return
        this.#watch()
        parser.feed(value)
      }
    } finally {
      reader.cancel().catch(() => {})
    }
  }

  #take(event) {
    if (this.#closed || this.#done) return
    const at = parseCursor(event.id)
    const verdict = at ? judge(event.name, at.seq, this.#cursor) : "next"
    if (verdict === "seen") return
    if (verdict === "gap" && !this.#gapTwice(at.seq)) throw new NetworkError("an event is missing")
    const data = parseData(event.data)
    if (at) this.#cursor = at.seq
    this.backoff.succeeded()
    this.#deliver({ name: event.name, data, seq: at?.seq ?? null })
  }

  /** A gap is read again from the cursor; when the log says the same twice, it is believed. */
  #gapTwice(seq) {
    const twice = this.#gapAt === seq
    this.#gapAt = seq
    return twice
  }

  #deliver(event) {
    if (event.name === "start") this.run = event.data.run
    if (event.name === "done") this.#done = true
    this.onEvent(event)
  }

  #mayRetry(error) {
    if (this.#closed) return true
    if (!isOfTheLine(error)) return false
    const sending = !this.run
    if (error.status && !retryableStatus(error.status, sending)) return false
    if (sending && this.#sendTries >= MAX_SEND_TRIES) return false
    this.#retryAfterMs = error.retryAfterS == null ? null : error.retryAfterS * 1000
    return true
  }

  #nextWaitMs() {
    const asked = this.#retryAfterMs
    const hurry = this.#hurry
    this.#retryAfterMs = null
    this.#hurry = false
    if (hurry) return 0
    return asked ?? this.backoff.next()
  }

  async #pause() {
    const waitMs = this.#nextWaitMs()
    this.onLink({ state: "waiting", inMs: waitMs })
    await new Promise((resolve) => {
      const timer = this.timers.setTimeout(resolve, waitMs)
      this.#wake = () => {
        this.timers.clearTimeout(timer)
        resolve()
      }
    })
    this.#wake = null
  }
}

async function readPiece(reader) {
  try {
    return await reader.read()
  } catch (error) {
    throw new NetworkError("the connection broke", { cause: error })
  }
}

function parseData(text) {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new NetworkError("an event is garbled", { cause: error })
  }
}

/** Faults of the network or the server; anything else is a fault of this page, and is not retried. */
function isOfTheLine(error) {
  return error instanceof NetworkError || error instanceof SseError || error instanceof ApiError
}

/**
 * A send is repeated only where nobody has answered for the product (a proxy's 502 or 504); its own 429
 * and 503 are refusals, and the text goes back to the composer. A run that exists is worth waiting for.
 */
function retryableStatus(status, sending) {
  if (sending) return status === 502 || status === 504
  return status === 429 || status >= 500
}
