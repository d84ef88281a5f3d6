/**
 * Work that can wait, done in slices while the page has nothing better to do.
 *
 * A job is a function that does a little and says whether more is left; jobs take turns.
 */
const SLICE_MS = 8
const PATIENCE_MS = 400

export class Slices {
  #jobs = new Set()
  #asked = false

  /** @param {object} options {now: () => ms, later: (callback) => void}; the browser's own unless a test has others */
  constructor({ now = () => performance.now(), later = whenIdle } = {}) {
    Object.assign(this, { now, later })
  }

  /** A job that is there already is not added twice. */
  add(job) {
    this.#jobs.add(job)
    this.#ask()
  }

  drop(job) {
    this.#jobs.delete(job)
  }

  #ask() {
    if (this.#asked || !this.#jobs.size) return
    this.#asked = true
    this.later(() => this.#work())
  }

  #work() {
    this.#asked = false
    const until = this.now() + SLICE_MS
    for (const job of this.#jobs) {
      this.#jobs.delete(job)
      try {
        if (job()) this.#jobs.add(job) // at the end of the line, and of this very loop
      } finally {
        this.#ask() // a job that throws takes no other one with it
      }
      if (this.now() >= until) break
    }
    this.#ask()
  }
}

function whenIdle(callback) {
  if (globalThis.requestIdleCallback) requestIdleCallback(callback, { timeout: PATIENCE_MS })
  else setTimeout(callback, 16) // Safari
}

/** The page's own. */
export const slices = new Slices()
