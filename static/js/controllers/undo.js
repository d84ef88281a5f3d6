/** Offers to bring back what was deleted: with a button for a while, and with Ctrl or Cmd and Z. */
import { t } from "#js/models/i18n.js"
import { trashLine } from "#js/models/words.js"

export class Undo {
  #spoken = ""

  /** @param {object} parts {element, text, button, dismiss, trash, announcer, onClosed()} */
  constructor(parts) {
    Object.assign(this, parts)
    this.trash.on(({ kind }) => kind === "changed" && this.#show())
    this.button.addEventListener("click", () => this.#act())
    this.dismiss.addEventListener("click", () => this.trash.dismiss())
    for (const name of ["pointerenter", "focusin"]) this.element.addEventListener(name, () => this.trash.hold(true))
    for (const name of ["pointerleave", "focusout"]) this.element.addEventListener(name, () => this.#letGo())
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.#escape(event))
    document.addEventListener("keydown", (event) => this.#key(event))
  }

  focus() {
    this.button.focus({ preventScroll: true })
  }

  #show() {
    const { offer } = this.trash
    const hadFocus = this.element.contains(document.activeElement)
    this.element.hidden = !offer
    if (!offer) {
      this.#spoken = ""
      this.trash.hold(false)
      return hadFocus && this.onClosed()
    }
    const { text, verb, label } = trashLine(offer)
    this.text.textContent = text
    if (!verb && document.activeElement === this.button) this.dismiss.focus({ preventScroll: true })
    this.button.hidden = !verb
    this.button.textContent = label
    this.#say(text, verb)
  }

  #say(text, verb) {
    if (text === this.#spoken) return
    this.#spoken = text
    this.announcer.say(verb === "undo" ? `${text} ${t("Undo with Control or Command and Z.")}` : text)
  }

  #act() {
    const { verb } = trashLine(this.trash.offer)
    if (verb === "undo") this.trash.undo()
    if (verb === "again") this.trash.again()
  }

  #letGo() {
    // Where the focus has gone is known only afterwards.
    requestAnimationFrame(() => {
      const wanted = this.element.matches(":hover") || this.element.contains(document.activeElement)
      if (!wanted) this.trash.hold(false)
    })
  }

  #escape(event) {
    event.stopPropagation()
    this.trash.dismiss()
  }

  /** In a field the same keys take back what was typed. */
  #key(event) {
    const undo = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "z"
    if (!undo || !this.trash.offer || event.target.closest("input, textarea")) return
    event.preventDefault()
    this.trash.undo()
  }
}
