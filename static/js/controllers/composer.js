/** The composer: grows, keeps drafts, sends with Enter, and has one button that sends or stops. */
import { guardPaste, isSendKey } from "#js/views/typing.js"

const SAVE_AFTER_MS = 250
// Measuring the height of a huge paste costs more than it tells: it is at its largest anyway.
const MEASURE_CHARS = 20_000

export class Composer {
  #saveTimer = 0
  #conversation = null
  #mode = "send"

  /** @param {object} options {form, field, button, drafts, maxBytes, onSend(text) → boolean, onStop, onWait, onTooLarge(sizes)} */
  constructor(options) {
    Object.assign(this, options)
    this.field.addEventListener("input", () => this.#typed())
    this.field.addEventListener("keydown", (event) => this.#key(event))
    guardPaste(this.field, { maxBytes: this.maxBytes, onTooLarge: this.onTooLarge })
    this.form.addEventListener("submit", (event) => this.#submit(event))
    addEventListener("pagehide", () => this.#save())
  }

  get text() {
    return this.field.value
  }

  /** Show the draft of another conversation. Text typed before the page's script ran is kept. */
  open(conversation, { keepTyped = false } = {}) {
    if (!keepTyped) this.#save()
    const typed = keepTyped ? this.text : ""
    this.#conversation = conversation
    this.set(typed || this.drafts.get(conversation))
  }

  /** The new conversation has got its id: what was typed meanwhile is its draft. */
  rename(conversation) {
    this.drafts.put(this.#conversation, "")
    this.#conversation = conversation
    this.#save()
  }

  set(text) {
    this.field.value = text
    this.#typed()
  }

  /** A refused message comes back, before whatever has been typed since. */
  giveBack(text) {
    const typed = this.text.trim()
    this.set(typed ? `${text}\n\n${this.text}` : text)
  }

  /** @param {"send"|"stop"|"stopping"} mode */
  setMode(mode) {
    this.#mode = mode
    this.#showButton()
  }

  setUsable(usable) {
    this.form.hidden = !usable
  }

  focus() {
    this.field.focus({ preventScroll: true })
  }

  #typed() {
    this.#fit()
    this.#showButton()
    clearTimeout(this.#saveTimer)
    this.#saveTimer = setTimeout(() => this.#save(), SAVE_AFTER_MS)
  }

  #save() {
    clearTimeout(this.#saveTimer)
    this.drafts.put(this.#conversation, this.text)
  }

  /** Grow with the text, where CSS cannot (`field-sizing`). */
  #fit() {
    if (CSS.supports("field-sizing", "content")) return
    this.field.style.height = "auto"
    const height = this.text.length > MEASURE_CHARS ? 10_000 : this.field.scrollHeight
    this.field.style.height = `${height}px`
  }

  /** While an answer is being stopped, a text can be sent already: it waits for the end. */
  get #sends() {
    return this.#mode === "send" || (this.#mode === "stopping" && this.text.trim() !== "")
  }

  #showButton() {
    const stop = !this.#sends
    const unusable = this.#mode === "stopping" ? stop : !stop && !this.text.trim()
    this.button.dataset.mode = stop ? "stop" : "send"
    // Not `disabled`: a disabled button would throw the keyboard's focus away.
    this.button.setAttribute("aria-disabled", String(unusable))
    this.button.querySelector(".label").textContent = stop ? "Stop the answer" : "Send"
  }

  #key(event) {
    if (!isSendKey(event)) return
    event.preventDefault()
    if (this.#sends) this.#send()
    else this.onWait()
  }

  #submit(event) {
    event.preventDefault()
    if (this.button.getAttribute("aria-disabled") === "true") return
    if (this.#sends) this.#send()
    else this.onStop()
  }

  #send() {
    const text = this.text
    if (!text.trim()) return
    if (!this.onSend(text)) return this.onWait()
    this.set("")
    this.#save()
    this.focus()
  }
}
