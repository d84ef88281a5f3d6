/** One menu for the whole page, opened beside the button that asks for it. */
import { h, icon, isRightToLeft } from "#js/views/dom.js"

const MARGIN_PX = 8

export class Menu {
  #button = null
  #address = null

  constructor(element) {
    this.element = element
    element.addEventListener("keydown", (event) => this.#key(event))
    element.addEventListener("focusout", (event) => this.#left(event))
    document.addEventListener("pointerdown", (event) => this.#pressed(event), true)
    addEventListener("resize", () => this.close())
    // What moves its button away; an answer that grows elsewhere does not.
    document.addEventListener("scroll", (event) => event.target.contains(this.#button) && this.close(), true)
  }

  /**
   * @param {{label: string, icon: string, act: () => void, note?: Node, checked?: boolean}[]} items
   *   `note`: what stands under the label; `checked`: one of several of which one holds
   */
  open(button, items) {
    if (this.#button === button) return this.close({ back: true })
    this.close()
    this.#button = button
    this.#address = addressOf(button)
    button.setAttribute("aria-expanded", "true")
    this.element.setAttribute("aria-label", button.title)
    this.element.replaceChildren(...items.map((item) => this.#item(item)))
    this.element.hidden = false
    this.#place(button)
    const first = this.element.querySelector('[aria-checked="true"]') ?? this.element.firstElementChild
    first.focus({ preventScroll: true })
  }

  close({ back = false } = {}) {
    const button = this.#button
    if (!button) return
    this.#button = null
    this.element.hidden = true
    button.setAttribute("aria-expanded", "false")
    const there = button.isConnected ? button : this.#address && document.querySelector(this.#address)
    if (back) there?.focus({ preventScroll: true })
  }

  #item({ label, icon: name, act, note = null, checked = null }) {
    const choose = () => {
      this.close({ back: true })
      act()
    }
    const role = checked === null ? "menuitem" : "menuitemradio"
    const said = note ? h("span", { class: "menu-said" }, h("span", { dir: "auto" }, label), note) : h("span", { dir: "auto" }, label)
    const state = checked === null ? {} : { "aria-checked": String(checked) }
    return h("button", { type: "button", role, ...state, tabindex: "-1", onclick: choose }, icon(name), said)
  }

  /** Below the button, or above it where there is no room; never outside the window. */
  #place(button) {
    const at = button.getBoundingClientRect()
    const { offsetWidth: width, offsetHeight: height } = this.element
    // From the button's near edge, in the direction of the language.
    const near = isRightToLeft(this.element) ? at.right - width : at.left
    const left = Math.min(near, innerWidth - width - MARGIN_PX)
    const below = at.bottom + height + MARGIN_PX <= innerHeight
    this.element.style.left = `${Math.max(MARGIN_PX, left)}px`
    this.element.style.top = `${below ? at.bottom + 4 : Math.max(MARGIN_PX, at.top - height - 4)}px`
  }

  #key(event) {
    const items = [...this.element.children]
    const at = items.indexOf(document.activeElement)
    const goTo = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key]
    if (event.key === "Tab") return this.close({ back: true })
    if (event.key === "Escape") this.close({ back: true })
    else if (goTo === undefined) return
    else items.at(goTo % items.length).focus({ preventScroll: true })
    event.preventDefault()
    event.stopPropagation()
  }

  #left(event) {
    if (!this.element.contains(event.relatedTarget) && event.relatedTarget !== this.#button) this.close()
  }

  #pressed(event) {
    if (!this.element.contains(event.target) && !this.#button?.contains(event.target)) this.close()
  }
}

/** How to find the button again, should its list be drawn anew while the menu is open. */
function addressOf(button) {
  const item = button.closest("[data-item]")?.dataset.item
  return item ? `[data-item="${CSS.escape(item)}"] [data-act="${button.dataset.act}"]` : null
}
