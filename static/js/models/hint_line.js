/**
 * The page's one WebSocket: hints that something of this account has changed. A hint holds no text; it
 * makes the page look again. Hints come at most once, so after every `ready` the page looks at everything.
 *
 * Tells `ready`, `hint` {hint}, `down`, `signedOut`. Without it the page works, and looks when it is seen again.
 */
import { Emitter } from "#js/models/emitter.js"

export const PING_MS = 25_000
// Any frame is an answer. A line that gives none is dead, though the browser may not know it yet.
export const PONG_MS = 15_000
const FIRST_WAIT_MS = 1_000
const MAX_WAIT_MS = 60_000

/** Close codes of the server. */
const NOT_SIGNED_IN = 4401
const WRONG_ORIGIN = 4403
const TOO_MANY = 4409

export class HintLine extends Emitter {
  #socket = null
  #timer = null
  #failures = 0
  state = "off" // "off" | "connecting" | "ready" | "waiting"

  /** @param {object} options {url, WebSocket, timers, random} */
  constructor({ url, WebSocket = globalThis.WebSocket, timers = globalThis, random = Math.random }) {
    super()
    Object.assign(this, { url, WebSocket, timers, random })
  }

  get ready() {
    return this.state === "ready"
  }

  start() {
    if (this.state === "off") this.#connect()
  }

  stop() {
    this.#drop()
    this.state = "off"
  }

  /** The page is seen again, or the network is back: try now, or make sure that the line is alive. */
  check() {
    if (this.state === "waiting") this.#connect()
    else if (this.ready) this.#ping()
  }

  #connect() {
    this.#drop()
    this.state = "connecting"
    const socket = new this.WebSocket(this.url)
    this.#socket = socket
    socket.onmessage = ({ data }) => socket === this.#socket && this.#take(data)
    socket.onclose = ({ code }) => socket === this.#socket && this.#closed(code)
    this.#after(PONG_MS, () => this.#closed(0))
  }

  #take(data) {
    this.#after(PING_MS, () => this.#ping())
    const frame = parse(data)
    if (frame?.event === "ready") this.#becameReady()
    if (frame?.event === "hint" && frame.data?.kind) this.emit("hint", { hint: frame.data })
  }

  #becameReady() {
    this.state = "ready"
    this.#failures = 0
    this.emit("ready")
  }

  #ping() {
    this.#socket.send('{"type":"ping"}')
    this.#after(PONG_MS, () => this.#closed(0))
  }

  #closed(code) {
    this.#drop()
    if (code === NOT_SIGNED_IN || code === WRONG_ORIGIN) return this.#giveUp(code)
    this.state = "waiting"
    this.#after(this.#waitMs(code), () => this.#connect())
    this.emit("down")
  }

  #giveUp(code) {
    this.state = "off"
    this.emit(code === NOT_SIGNED_IN ? "signedOut" : "down")
  }

  /** Doubling, half of it random: after a deploy not everybody comes back in the same moment. */
  #waitMs(code) {
    const grown = code === TOO_MANY ? MAX_WAIT_MS : Math.min(FIRST_WAIT_MS * 2 ** this.#failures, MAX_WAIT_MS)
    this.#failures = Math.min(this.#failures + 1, 10)
    return grown / 2 + this.random() * (grown / 2)
  }

  #after(ms, action) {
    this.timers.clearTimeout(this.#timer)
    this.#timer = this.timers.setTimeout(action, ms)
  }

  #drop() {
    this.timers.clearTimeout(this.#timer)
    const socket = this.#socket
    this.#socket = null
    socket?.close()
  }
}

function parse(text) {
  try {
    return JSON.parse(text)
  } catch {
    return null // not ours; the watch on silence remains
  }
}
