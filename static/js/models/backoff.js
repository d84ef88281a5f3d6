/** When to try again. The first wait is what the server asked for; then doubling, half of it random. */

export const MAX_WAIT_MS = 15_000
const FLOOR_MS = 400

export class Backoff {
  #failures = 0
  #askedMs = 2_000

  constructor({ random = Math.random } = {}) {
    this.random = random
  }

  /** The server's `retry:`. It spreads clients itself, so the first wait takes it as it is. */
  ask(ms) {
    this.#askedMs = Math.min(ms, MAX_WAIT_MS)
  }

  succeeded() {
    this.#failures = 0
  }

  /** @returns {number} milliseconds to wait now */
  next() {
    this.#failures += 1
    if (this.#failures === 1) return this.#askedMs
    const grown = Math.max(this.#askedMs, FLOOR_MS) * 2 ** Math.min(this.#failures - 1, 10)
    const wait = Math.min(grown, MAX_WAIT_MS)
    return wait / 2 + this.random() * (wait / 2)
  }

  get failures() {
    return this.#failures
  }
}
