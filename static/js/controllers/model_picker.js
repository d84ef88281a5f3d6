/** The model for new messages: a choice where there are several, a name where there is one. */
import { h, spoken } from "#js/views/dom.js"

export class ModelPicker {
  constructor({ element, models }) {
    Object.assign(this, { element, models })
    models.on(() => this.#show())
  }

  #show() {
    const { items, current } = this.models
    if (items.length < 2) return this.element.replaceChildren(current?.title ?? "")
    const select = this.element.querySelector("select")
    if (select && sameItems(select, items)) select.value = current.id
    else this.element.replaceChildren(this.#select(items, current))
  }

  #select(items, current) {
    const select = h("select", { dir: "auto" }, items.map(({ id, title }) => h("option", { value: id }, title)))
    select.value = current.id
    select.addEventListener("change", () => this.models.choose(select.value))
    return h("label", {}, spoken("Model for new messages"), select)
  }
}

function sameItems(select, items) {
  const shown = [...select.options].map((option) => `${option.value} ${option.text}`).join("\n")
  return shown === items.map(({ id, title }) => `${id} ${title}`).join("\n")
}
