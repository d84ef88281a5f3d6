/** The status strip: one line between the last message and the composer, with an icon and words. */
import { h, icon } from "#js/views/dom.js"

export class StripView {
  #shown = ""
  #text = null
  #onAction = () => {}

  constructor(element) {
    this.element = element
  }

  /** @param {object|null} line as `words.js` makes it @param {(verb: string) => void} onAction */
  show(line, onAction) {
    this.#onAction = onAction
    const kind = line ? JSON.stringify([line.tone, line.icon, line.action]) : ""
    // What is counted down changes its words only: its button keeps the keyboard's focus, and nothing flickers.
    if (kind === this.#shown) return void (this.#text && line && this.#say(line.text))
    this.#shown = kind
    const focused = this.element.contains(document.activeElement)
    this.element.dataset.tone = line?.tone ?? ""
    this.element.replaceChildren(...(line ? this.#parts(line) : []))
    if (focused) this.element.querySelector("button")?.focus({ preventScroll: true })
  }

  #say(text) {
    if (this.#text.textContent !== text) this.#text.textContent = text
  }

  #parts({ icon: name, text, action }) {
    this.#text = h("span", { class: "strip-text" }, text)
    const press = () => this.#onAction(action.verb)
    return [icon(name), this.#text, action && h("button", { type: "button", class: "quiet", onclick: press }, action.label)].filter(Boolean)
  }
}
