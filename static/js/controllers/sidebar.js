/** The sidebar: the list, more of it when its end is seen, and its life as a sheet on a phone. */
import { sidebarItems } from "#js/views/sidebar_view.js"

export class Sidebar {
  /** @param {object} options {element, items, toggle, close, scrim, main, list, onOpen(id|null)} */
  constructor(options) {
    Object.assign(this, options)
    this.seen = new IntersectionObserver((entries) => this.#seen(entries))
    this.list.on(() => this.#show())
    this.element.addEventListener("click", (event) => this.#click(event))
    this.toggle.addEventListener("click", () => this.setOpen(true))
    this.close.addEventListener("click", () => this.setOpen(false))
    this.scrim.addEventListener("click", () => this.setOpen(false))
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.setOpen(false))
  }

  /** Only a phone's sheet opens and closes; beside it, the rest of the page rests. */
  setOpen(open) {
    if (document.body.classList.contains("sheet-open") === open) return
    document.body.classList.toggle("sheet-open", open)
    this.toggle.setAttribute("aria-expanded", String(open))
    this.main.inert = open
    const target = open ? this.close : this.toggle
    target.focus()
  }

  #show() {
    const focused = document.activeElement?.dataset?.conversation
    this.items.replaceChildren(...sidebarItems(this.list, { onMore: () => this.list.more() }))
    if (focused) this.items.querySelector(`[data-conversation="${CSS.escape(focused)}"]`)?.focus()
    this.seen.disconnect()
    const more = this.items.querySelector(".more")
    if (more) this.seen.observe(more)
  }

  #seen(entries) {
    if (entries.some((entry) => entry.isIntersecting)) this.list.more()
  }

  #click(event) {
    const link = event.target.closest("a[data-conversation], a[data-new]")
    // A click that asks for another tab or window is the browser's.
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return
    event.preventDefault()
    this.setOpen(false)
    this.onOpen(link.dataset.conversation ?? null)
  }
}
