/** The status strip: one line between the last message and the composer, with an icon and words. */
import { h, icon } from "#js/views/dom.js"

export class StripView {
  #shown = ""

  constructor(element) {
    this.element = element
  }

  /** @param {object|null} line as `words.js` makes it @param {(verb: string) => void} onAction */
  show(line, onAction) {
    const key = line ? JSON.stringify(line) : ""
    if (key === this.#shown) return
    this.#shown = key
    this.element.dataset.tone = line?.tone ?? ""
    this.element.replaceChildren(...(line ? parts(line, onAction) : []))
  }
}

function parts({ icon: name, text, action }, onAction) {
  return [
    icon(name),
    h("span", { class: "strip-text" }, text),
    action && h("button", { type: "button", class: "quiet", onclick: () => onAction(action.verb) }, action.label),
  ].filter(Boolean)
}
