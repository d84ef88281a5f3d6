/** A server made of scripts, and time that passes when told: tests force orders instead of sleeping. */

export const RUN = `g_${"a".repeat(32)}`

const encoder = new TextEncoder()

export function bytes(text) {
  return encoder.encode(text)
}

export function frame(name, data, seq = null) {
  const id = seq === null ? "" : `id: ${RUN}:${seq}\n`
  return `${id}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`
}

export function startData(more = {}) {
  return { run: RUN, user_msg: "m_1", reply_msg: "m_2", conversation: "c_1", model: "demo", ...more }
}

export function doneData(more = {}) {
  return { finish: "stop", usage: { output_tokens: 3 }, active_leaf: "m_2", ...more }
}

/** A whole answer: start, one delta per word, done. */
export function answer(words) {
  const frames = [frame("start", startData(), 1)]
  words.forEach((text, index) => frames.push(frame("delta", { text }, index + 2)))
  frames.push(frame("done", doneData(), words.length + 2))
  return frames
}

/** A response that streams `pieces`, then ends, breaks, or stays open. */
export function streamResponse(pieces, { then = "end", signal = null } = {}) {
  let left = [...pieces]
  const body = new ReadableStream({
    start(controller) {
      signal?.addEventListener("abort", () => controller.error(new DOMException("aborted", "AbortError")))
    },
    pull(controller) {
      if (left.length) return controller.enqueue(typeof left[0] === "string" ? bytes(left.shift()) : left.shift())
      if (then === "end") controller.close()
      if (then === "break") controller.error(new TypeError("network error"))
      left = []
    },
  })
  return new Response(body, { status: 200, headers: { "Content-Type": "text/event-stream" } })
}

export function errorResponse(status, { code = "no", message = "no", retryAfterS = null } = {}) {
  const body = { error: { code, message, param: null, retry_after_s: retryAfterS } }
  return new Response(JSON.stringify(body), { status })
}

/** `fetch` that answers with the next of `answers` (functions of the request), and keeps the requests. */
export function scriptedFetch(answers) {
  const requests = []
  const fetch = async (url, options) => {
    requests.push({ url, ...options })
    const answer = answers[requests.length - 1]
    if (!answer) throw new TypeError(`nobody expected request ${requests.length}: ${url}`)
    return answer(options)
  }
  return { fetch, requests }
}

/** Timers that fire when `run()` is called, the shortest first; `waits` has what was asked for. */
export class FakeTimers {
  waits = []
  #timers = new Map()
  #next = 1

  setTimeout = (action, ms) => {
    this.waits.push(ms)
    this.#timers.set(this.#next, { action, ms })
    return this.#next++
  }

  clearTimeout = (id) => this.#timers.delete(id)

  get pending() {
    return [...this.#timers.values()].map((timer) => timer.ms)
  }

  fireShortest() {
    const [[id, timer]] = [...this.#timers].sort((one, other) => one[1].ms - other[1].ms)
    this.#timers.delete(id)
    timer.action()
  }
}

/** Let everything that is ready to happen, happen. */
export async function settle() {
  for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setImmediate(resolve))
}

export async function until(condition) {
  for (let i = 0; i < 500 && !condition(); i += 1) await new Promise((resolve) => setImmediate(resolve))
  if (!condition()) throw new Error(`never became true: ${condition}`)
}

export class MemoryStorage {
  #items = new Map()

  getItem = (key) => this.#items.get(key) ?? null
  setItem = (key, value) => void this.#items.set(key, String(value))
  removeItem = (key) => void this.#items.delete(key)

  key = (index) => this.keys[index] ?? null

  get length() {
    return this.#items.size
  }

  get keys() {
    return [...this.#items.keys()]
  }
}

/** A small seeded generator, so that a failing case can be run again. */
export function randomFrom(seed) {
  let state = seed >>> 0
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

/** A text as it is read: a space that keeps a number and its unit together is a space. */
export function plain(text) {
  return text?.replaceAll("\u00a0", " ") ?? null
}
