/** A button on a block of Mermaid's text that draws it; what draws is loaded when it is pressed. */
import { DIAGRAM_TEXT_MAX } from "#js/models/drawing.js"
import { t } from "#js/models/i18n.js"
import { h, icon } from "#js/views/dom.js"

/** @param {CodeView} code whose text is whole */
export function offerDrawing(code) {
  if (code.language !== "mermaid" || !code.text || code.text.length > DIAGRAM_TEXT_MAX) return
  if (code.head.querySelector("[data-act=draw]")) return
  new Offer(code)
}

class Offer {
  #drawing = null
  #loading = false
  #gone = false
  #note = h("p", { class: "diagram-note", role: "status" })

  constructor(code) {
    this.code = code
    const label = h("span", {}, t("Draw the diagram"))
    const attributes = { type: "button", class: "quiet", "data-act": "draw", "aria-pressed": "false", onclick: () => this.#pressed() }
    this.button = h("button", attributes, icon("diagram"), label)
    code.head.lastElementChild.before(this.button)
    code.onDiscard = () => {
      this.#gone = true
      this.#end()
    }
  }

  /** A press while it is being loaded changes nothing; one after a failure tries again. */
  #pressed() {
    if (this.#loading) return
    if (!this.#drawing) return this.#begin()
    this.#end()
    this.#note.remove()
  }

  async #begin() {
    this.#loading = true
    this.#note.textContent = t("Drawing the diagram")
    this.code.element.append(this.#note)
    try {
      const { Drawing } = await import("#js/views/diagram_view.js")
      if (!this.#gone) this.#drawing = new Drawing(this.code, { onDrawn: () => this.#say(""), onFailed: (words) => this.#failed(words) })
    } catch {
      this.#say(t("The diagram could not be drawn: the connection is away. Press the button again later."))
    }
    this.#loading = false
    this.#showState()
  }

  #failed(words) {
    this.#end()
    this.#say(words)
  }

  #end() {
    this.#drawing?.close()
    this.#drawing = null
    this.#showState()
  }

  #say(words) {
    this.#note.textContent = words
  }

  #showState() {
    this.button.setAttribute("aria-pressed", String(this.#drawing !== null))
  }
}
