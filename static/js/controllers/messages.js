/** What the buttons under messages do. */
import { t } from "#js/models/i18n.js"
import { placeWords } from "#js/models/versions.js"

export class Messages {
  /** @param {object} parts {thread, menu, models, drafts, announcer, maxBytes, conversation(), onTooLarge(sizes), toComposer()} */
  constructor(parts) {
    Object.assign(this, parts)
    Object.assign(this.thread, {
      modelTitle: (slug) => this.models.titleOf(slug),
      severalModels: () => this.models.items.length > 1,
      actions: this.#actions(),
    })
  }

  #actions() {
    return {
      onEdit: (message) => this.edit(message),
      onVersion: (message, side) => this.#version(message, side),
      onRegenerate: (reply) => this.#regenerate(reply, null),
      onOtherModel: (reply, button) => this.menu.open(button, this.#models(reply)),
      onContinue: (reply) => this.continueReply(reply),
      onDetails: (reply) => this.conversation().api.run(reply.run),
      onRate: (reply, rating, reason) => this.#rate(reply, rating, reason),
    }
  }

  /** @param {string|null} text what a refused edit said; else the draft, or the message as it is */
  edit(message, text = null, options = {}) {
    const draft = text ?? (this.drafts.get(draftKey(message)) || message.text)
    const hooks = {
      text: draft,
      maxBytes: this.maxBytes,
      onTooLarge: this.onTooLarge,
      onInput: (typed) => this.#keep(message, typed),
      onSend: (typed) => this.#send(message, typed),
      onCancel: () => this.#cancel(message),
    }
    if (text !== null) this.#keep(message, text)
    this.thread.edit(message, hooks, options)
  }

  continueReply(reply) {
    this.#begun(this.conversation().continueReply(reply))
  }

  #keep(message, typed) {
    this.drafts.put(draftKey(message), typed === message.text ? "" : typed)
  }

  #cancel(message) {
    this.drafts.put(draftKey(message), "")
    this.thread.stopEditing(message)
  }

  #send(message, text) {
    if (!this.#begun(this.conversation().edit(message, text, { model: this.models.wanted }))) return
    this.drafts.put(draftKey(message), "")
  }

  #regenerate(reply, model) {
    this.#begun(this.conversation().regenerate(reply, { model }))
  }

  #models(reply) {
    return this.models.items.map(({ id, title }) => ({ label: title, icon: "again", act: () => this.#regenerate(reply, id) }))
  }

  /** The button that was pressed has gone with its message. */
  #begun(begun) {
    if (begun) this.toComposer()
    else this.announcer.say(t("Something is being sent. Wait a moment, then try again."))
    return begun
  }

  async #version(message, side) {
    const shown = await this.conversation().showVersion(message, side)
    if (!shown) return
    this.thread.focusUnder(shown, side)
    if (shown.versions) this.announcer.say(placeWords(shown.versions))
  }

  async #rate(reply, rating, reason) {
    const saved = await this.conversation().rate(reply, rating, reason)
    if (saved) this.announcer.say(rating ? t("Thank you. Your feedback is saved.") : t("Your feedback is taken back."))
    return saved
  }
}

function draftKey(message) {
  return `edit:${message.id}`
}
