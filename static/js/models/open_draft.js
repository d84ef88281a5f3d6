/**
 * The draft that the composer shows, which other tabs may show too. Only what was typed in this tab since it
 * last read or kept the draft is written: a tab that lies idle must not put its old text over a newer one.
 */
export class OpenDraft {
  #conversation = null
  #text = ""
  #unsaved = false
  #own = false // typed (or given back) in this tab, not read from what is kept

  /** @param {object} options {drafts} */
  constructor({ drafts }) {
    this.drafts = drafts
  }

  /** Another conversation's draft is shown. @param {string} typed what stands in the field already @returns {string} its text */
  open(conversation, typed = "") {
    this.save()
    // The same one again: what could not be kept stays in the field.
    if (conversation === this.#conversation && this.#unsaved) return this.#text
    this.#conversation = conversation
    if (typed) this.edit(typed)
    else this.#read()
    return this.#text
  }

  edit(text) {
    this.#text = text
    this.#unsaved = this.#own = true
  }

  save() {
    if (this.#unsaved) this.#unsaved = !this.drafts.put(this.#conversation, this.#text)
  }

  /** It was sent. */
  clear() {
    this.drafts.put(this.#conversation, "")
    this.#text = ""
    this.#unsaved = this.#own = false
  }

  /** The new conversation has got its id: what was typed meanwhile is its draft. @returns {string} its text */
  rename(conversation) {
    this.save()
    const from = this.#conversation
    this.#conversation = conversation
    if (!this.#own) this.#read()
    else this.#move(from)
    return this.#text
  }

  #move(from) {
    // Where another tab has typed since, its text stays.
    if (this.drafts.get(from) === this.#text) this.drafts.put(from, "")
    this.#unsaved = true
    this.save()
  }

  /** Another tab has changed what is kept. @param {string} key @returns {string|null} the text to show; null: as it is */
  changedElsewhere(key) {
    return key === this.drafts.keyOf(this.#conversation) ? this.again() : null
  }

  /** Look at what is kept. @returns {string|null} the text to show; null: as it is */
  again() {
    const before = this.#text
    if (!this.#unsaved) this.#read()
    return this.#text === before ? null : this.#text
  }

  #read() {
    this.#text = this.drafts.get(this.#conversation)
    this.#unsaved = this.#own = false
  }
}
