/** The model for new messages: a menu of what the plan allows, with what is left of each. */
import { t } from "#js/models/i18n.js"
import { h, icon, spoken } from "#js/views/dom.js"

export class ModelPicker {
  #notes = new Map() // slug → the line under its name, while the menu is open

  constructor({ element, models, menu, announcer }) {
    Object.assign(this, { element, models, menu, announcer })
    models.on(({ kind }) => (kind === "limits" ? this.#fillNotes() : this.#show()))
  }

  #show() {
    const { current } = this.models
    if (!current) return this.element.replaceChildren()
    const title = this.element.querySelector(".model-title")
    // The button stays the same one: the menu is open beside it, and the keyboard's focus is on it.
    if (title) title.textContent = current.title
    else this.element.replaceChildren(this.#button(current))
  }

  #button(current) {
    const label = t("Model for new messages")
    const open = (event) => this.#open(event.currentTarget)
    const attributes = { type: "button", class: "model-button", title: label, "aria-haspopup": "menu", "aria-expanded": "false", onclick: open }
    return h("button", attributes, spoken(`${label}: `), h("span", { class: "model-title", dir: "auto" }, current.title), icon("chevron"))
  }

  #open(button) {
    const { items, current } = this.models
    this.#notes = new Map(items.map((model) => [model.id, h("span", { class: "menu-note" }, this.models.noteOf(model))]))
    this.menu.open(button, items.map((model) => this.#item(model, current)))
    this.models.loadLimits()
  }

  #item(model, current) {
    const choose = () => this.#choose(model)
    return { label: model.title, icon: "check", note: this.#notes.get(model.id), checked: model === current, act: choose }
  }

  #choose(model) {
    this.models.choose(model.id)
    this.announcer.say(t("New messages go to {model}.", { model: model.title }))
  }

  #fillNotes() {
    for (const model of this.models.items) {
      const note = this.#notes.get(model.id)
      if (note) note.textContent = this.models.noteOf(model)
    }
  }
}
