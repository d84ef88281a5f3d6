/** The composer: grows, keeps drafts, sends with Enter (or puts in line), and has one button that sends or stops. */
import { t } from "#js/models/i18n.js"
import { OpenDraft } from "#js/models/open_draft.js"
import { sizeNote } from "#js/models/size.js"
import { icon } from "#js/views/dom.js"
import { guardPaste, isSendKey } from "#js/views/typing.js"

const SAVE_AFTER_MS = 250
// Measuring the height of a huge paste costs more than it tells: it is at its largest anyway.
const MEASURE_CHARS = 20_000

export class Composer {
  #saveTimer = 0
  #mode = "send"
  #size = null // the note on its length that is shown

  /**
   * @param {object} options {form, field, button, later, size, drafts, maxBytes, onSend(text) → boolean,
   *   onNext(text) → boolean, onStop, onWait, onChange, onTooLarge(sizes), onTooLong, onSize(words)}
   */
  constructor(options) {
    Object.assign(this, options)
    this.placeholder = this.field.placeholder
    this.draft = new OpenDraft({ drafts: this.drafts })
    this.field.addEventListener("input", () => this.#edited())
    this.field.addEventListener("keydown", (event) => this.#key(event))
    guardPaste(this.field, { maxBytes: this.maxBytes, onTooLarge: this.onTooLarge })
    this.form.addEventListener("submit", (event) => this.#submit(event))
    this.later.addEventListener("click", () => this.#putInLine())
    addEventListener("pagehide", () => this.#save())
    addEventListener("pageshow", ({ persisted }) => persisted && this.#take(this.draft.again()))
    addEventListener("storage", ({ key }) => this.#take(this.draft.changedElsewhere(key)))
  }

  get text() {
    return this.field.value
  }

  /** Show the draft of another conversation. Text typed before the page's script ran is kept. */
  open(conversation, { keepTyped = false } = {}) {
    clearTimeout(this.#saveTimer)
    this.#show(this.draft.open(conversation, keepTyped ? this.text : ""))
  }

  /** The new conversation has got its id: what was typed meanwhile is its draft. */
  rename(conversation) {
    this.#take(this.draft.rename(conversation))
  }

  set(text) {
    this.field.value = text
    this.#edited()
  }

  /** What is kept, unless it stands there already: the caret stays where it is. */
  #take(text) {
    if (text !== null && text !== this.text) this.#show(text)
  }

  #show(text) {
    this.field.value = text
    this.#changed()
  }

  /** A refused message comes back, before whatever has been typed since. */
  giveBack(text) {
    const typed = this.text.trim()
    this.set(typed ? `${text}\n\n${this.text}` : text)
  }

  /** @param {"send"|"stop"|"stopping"} mode */
  setMode(mode) {
    this.#mode = mode
    this.field.placeholder = mode === "stop" ? t("Write the next message") : this.placeholder
    this.#showButton()
  }

  setUsable(usable) {
    this.form.hidden = !usable
  }

  focus() {
    this.field.focus({ preventScroll: true })
  }

  #edited() {
    this.draft.edit(this.text)
    clearTimeout(this.#saveTimer)
    this.#saveTimer = setTimeout(() => this.#save(), SAVE_AFTER_MS)
    this.#changed()
  }

  #changed() {
    this.#fit()
    this.#showSize()
    this.#showButton()
    this.onChange()
  }

  #save() {
    clearTimeout(this.#saveTimer)
    this.draft.save()
  }

  /** Grow with the text, where CSS cannot (`field-sizing`). */
  #fit() {
    if (CSS.supports("field-sizing", "content")) return
    this.field.style.height = "auto"
    const height = this.text.length > MEASURE_CHARS ? 10_000 : this.field.scrollHeight
    this.field.style.height = `${height}px`
  }

  #showSize() {
    const note = sizeNote(this.text, this.maxBytes)
    const isNews = note && (note.over !== this.#size?.over || note.lost !== this.#size.lost)
    this.#size = note
    this.size.hidden = !note
    this.size.classList.toggle("over", Boolean(note?.over))
    this.size.replaceChildren(...(note ? [icon(note.icon), note.text] : []))
    if (isNews) this.onSize(note.text)
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
    this.button.querySelector(".label").textContent = stop ? t("Stop the answer") : t("Send")
    this.later.hidden = this.#mode !== "stop" || !this.text.trim()
  }

  #key(event) {
    if (!isSendKey(event)) return
    event.preventDefault()
    if (this.#sends) this.send()
    else this.#putInLine()
  }

  #submit(event) {
    event.preventDefault()
    if (this.button.getAttribute("aria-disabled") === "true") return
    if (this.#sends) this.send()
    else this.onStop()
  }

  /** Send what stands in the field. @param {object} how {focus}: whether a person has just asked for it */
  send({ focus = true } = {}) {
    const { text } = this
    if (!text.trim()) return
    if (this.#size?.over) return this.onTooLong()
    if (this.onSend(text)) this.#sent(focus)
    else if (this.#mode === "send") this.onWait()
    else this.#putInLine()
  }

  /** An answer is being written: the text waits for its end. */
  #putInLine() {
    const { text } = this
    if (!text.trim()) return
    if (this.#size?.over) return this.onTooLong()
    if (this.onNext(text)) this.#sent()
  }

  #sent(focus = true) {
    clearTimeout(this.#saveTimer)
    this.draft.clear()
    this.#show("")
    if (focus) this.focus()
  }
}
