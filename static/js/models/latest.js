/** Sends values one after another: the newest is the last to arrive, and those overtaken while they wait are not sent. */
export class Latest {
  #wanted = null // {value} that waits
  #sending = null // promise of the one under way and all that follow

  /** @param {(value) => Promise<void>} send */
  constructor(send) {
    this.send = send
  }

  /** @returns {Promise<boolean>} whether the newest value at that time was sent */
  put(value) {
    this.#wanted = { value }
    this.#sending ??= this.#sendAll()
    return this.#sending
  }

  async #sendAll() {
    let sent = false
    while (this.#wanted) {
      const { value } = this.#wanted
      this.#wanted = null
      sent = await this.send(value).then(() => true, () => false)
    }
    this.#sending = null
    return sent
  }
}
