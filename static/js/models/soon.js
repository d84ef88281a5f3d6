/** Runs an action soon, and once for however many calls: hints come in bursts. */
export class Soon {
  #timer = null
  #running = false
  #again = false

  /** @param {() => Promise<void>} action never rejects @param {number} ms */
  constructor(action, ms, timers = globalThis) {
    Object.assign(this, { action, ms, timers })
  }

  call() {
    if (this.#running) this.#again = true
    else this.#timer ??= this.timers.setTimeout(() => this.#run(), this.ms)
  }

  async #run() {
    this.#timer = null
    this.#running = true
    await this.action()
    this.#running = false
    if (!this.#again) return
    this.#again = false
    this.call()
  }
}
