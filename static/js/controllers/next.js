/** The message that waits for the end of an answer: the card above the composer, and when it goes. */
import { t } from "#js/models/i18n.js"
import { endAnnouncement } from "#js/models/words.js"

export class Next {
  /** @param {object} parts {message, view, announcer, maxBytes, onEdit(text), onTaken()} */
  constructor(parts) {
    Object.assign(this, parts)
    this.message.on(({ kind }) => (kind === "held" ? this.#held() : this.#show()))
    addEventListener("storage", (event) => this.#changedElsewhere(event.key))
  }

  /** @param {object} conversation the open one */
  open(conversation) {
    this.conversation = conversation
    this.message.open(conversation.id)
  }

  /** @returns {boolean} false where the text stays where it was typed */
  put(text, model) {
    const { maxBytes } = this
    const kept = this.message.put(text, { live: this.conversation.liveReply, model, maxBytes })
    const said = kept ? t("Your message waits. It is sent when the answer has ended.") : t("Together with what waits already, it would be too long.")
    this.announcer.say(said)
    return kept
  }

  consider(conversation) {
    if (conversation === this.conversation) this.message.consider(conversation)
  }

  #show() {
    const { shown } = this.message
    this.view.show(shown, {
      onEdit: () => this.#edit(),
      onRemove: () => this.#remove(),
      onSend: () => this.#release(),
    })
  }

  #edit() {
    this.onEdit(this.message.drop())
  }

  #remove() {
    this.message.drop()
    this.announcer.say(t("Removed. It is not sent."))
    this.onTaken()
  }

  #release() {
    this.message.release(this.conversation)
    this.onTaken()
  }

  #held() {
    const { ended } = this.conversation
    this.announcer.say([ended && endAnnouncement(ended), t("Your next message was not sent. It is kept.")].filter(Boolean).join(" "))
  }

  #changedElsewhere(key) {
    this.message.changedElsewhere(key)
    this.consider(this.conversation)
  }
}
