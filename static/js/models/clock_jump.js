/** Notices that the machine has slept: no timer fires meanwhile, and the clock is ahead when it wakes. */

export const BEAT_MS = 5_000
// A busy page may be late by some seconds; a sleep is longer.
export const JUMP_MS = 20_000

export class ClockJump {
  constructor({ onJump, now = Date.now, timers = globalThis }) {
    Object.assign(this, { onJump, now, timers })
  }

  start() {
    this.last = this.now()
    this.#wait()
  }

  #wait() {
    this.timers.setTimeout(() => this.#beat(), BEAT_MS)
  }

  #beat() {
    const now = this.now()
    const slept = now - this.last > BEAT_MS + JUMP_MS
    this.last = now
    this.#wait()
    if (slept) this.onJump()
  }
}
