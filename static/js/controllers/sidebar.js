/** The sidebar: the list, more of it when its end is seen, and its life as a sheet on a phone. */
import { byDay } from "#js/models/conversation_list.js"
import { titleText } from "#js/models/words.js"
import { sidebarItems } from "#js/views/sidebar_view.js"

export class Sidebar {
  #renaming = null // the conversation whose title is a field now: the list waits with its news

  #shown = null

  /** @param {object} options {element, items, toggle, close, scrim, main, list, onOpen(id|null), onMenu(item, button)} */
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

  /** The title of a conversation becomes `form`. */
  rename(id, form) {
    this.endRename()
    const row = this.#row(id)
    if (!row) return
    this.#renaming = id
    row.classList.add("renaming")
    row.append(form.element)
    form.focus()
  }

  endRename() {
    const id = this.#renaming
    if (!id) return
    this.#renaming = null
    this.#shown = null
    this.#show()
    this.#row(id)?.querySelector("[data-act=menu]")?.focus()
  }

  /** Somewhere sensible for the keyboard's focus when what had it is gone. */
  focus() {
    const link = this.items.querySelector(".conversation-link") ?? this.element.querySelector(".new-conversation")
    link.focus({ preventScroll: true })
  }

  #row(id) {
    return this.items.querySelector(`[data-item="${CSS.escape(id)}"]`)
  }

  #show() {
    if (this.#renaming) return
    const shown = whatIsShown(this.list)
    if (shown === this.#shown) return // a row that is replaced under a finger is not pressed
    this.#shown = shown
    const focused = focusIn(this.items)
    const hooks = { onMore: () => this.list.more(), onMenu: (item, button) => this.onMenu(item, button) }
    this.items.replaceChildren(...sidebarItems(this.list, hooks))
    if (focused) (this.items.querySelector(focused) ?? this.items.querySelector("a"))?.focus({ preventScroll: true })
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

/** All that the list's rows are drawn from. */
function whatIsShown({ status, items, current, nextCursor }) {
  const days = byDay(items).map((group) => [group.label, group.items.map((item) => [item.id, titleText(item)])])
  return JSON.stringify([status, current, nextCursor !== null, days])
}

/** How to find again what has the focus now; null where it is elsewhere. */
function focusIn(items) {
  const focused = document.activeElement
  if (!items.contains(focused)) return null
  const row = focused.closest("[data-item]")
  if (!row) return ".more"
  return `[data-item="${CSS.escape(row.dataset.item)}"] ${focused.dataset.act ? "[data-act=menu]" : "a"}`
}
