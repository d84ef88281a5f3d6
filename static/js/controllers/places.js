/** Where the reader was in each conversation, for as long as the page is open. */

// One page of 50 and then pages of 100: enough for 500 messages.
const PAGES_MAX = 5

export class Places {
  #places = new Map() // conversation id → a place as ThreadView tells it

  /** @param {object} thread a ThreadView */
  constructor(thread) {
    this.thread = thread
  }

  /** The conversation is left. Whoever was at its end finds the end again. */
  keep(id) {
    const { place } = this.thread
    if (id && place) this.#places.set(id, place)
    else this.#places.delete(id)
  }

  /**
   * Back to where the reader was, as far up as that is; not once the reader has begun to move.
   * @param {() => boolean} isOpen whether the conversation is still the one on the page
   */
  async goBack(conversation, isOpen) {
    const place = this.#places.get(conversation.id)
    for (let page = 0; place && isOpen() && this.thread.following; page += 1) {
      if (this.thread.goTo(place) || !conversation.hasMoreBefore || page === PAGES_MAX) return
      await conversation.loadEarlier()
    }
  }
}
