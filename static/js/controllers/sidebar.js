/** The sidebar: the list, more of it when its end is near, and the reader's place in it. */
import { byDay, untilMidnight } from "#js/models/days.js"
import { keptTop, layOut, windowOf } from "#js/models/list_window.js"
import { ownsFocus } from "#js/views/dom.js"
import { SidebarView } from "#js/views/sidebar_view.js"

// The next page is asked for before its place is seen.
const END_MARGIN = "0px 0px 400px 0px"
// Until the first rows are measured.
const SIZES = { rowPx: 36, headPx: 40 }

export class Sidebar {
  #renaming = null // the conversation whose title is a field now: the list waits with its news
  #form = null // that field's form
  #plan = layOut([], SIZES)
  #laid = {} // of what the plan is: {items, sizes, day}
  #sizes = SIZES
  #frame = 0

  /** @param {object} options {element, items, sheet, list, onOpen(id|null), onMenu(item, button)} */
  constructor(options) {
    Object.assign(this, options)
    this.view = new SidebarView({
      element: this.items,
      onMenu: (item, button) => this.onMenu(item, button),
      onMore: () => this.list.more(),
      onRetry: () => this.list.retry(),
    })
    this.seen = new IntersectionObserver((entries) => this.#seen(entries), { root: this.items, rootMargin: END_MARGIN })
    this.list.on(() => this.#show())
    this.element.addEventListener("click", (event) => this.#click(event))
    this.items.addEventListener("scroll", () => this.#drawSoon(), { passive: true })
    new ResizeObserver(() => this.#drawSoon()).observe(this.items)
    this.#showAtMidnight()
  }

  /** The title of a conversation becomes `form`. */
  rename(id, form) {
    this.endRename(this.#form)
    const row = this.view.row(id)
    if (!row) return
    this.#renaming = id
    this.#form = form
    row.classList.add("renaming")
    row.append(form.element)
    form.focus()
  }

  /** @param {object|null} form the one that has ended; meanwhile another one may be open */
  endRename(form) {
    if (!form || form !== this.#form) return
    const row = this.view.row(this.#renaming)
    const mayFocus = ownsFocus(form.element)
    this.#renaming = this.#form = null
    row?.classList.remove("renaming")
    form.element.remove()
    this.#show()
    if (mayFocus) row?.querySelector("[data-act=menu]")?.focus({ preventScroll: true })
  }

  /** Somewhere sensible for the keyboard's focus when what had it is gone. */
  focus() {
    const link = this.items.querySelector(".conversation-link") ?? this.element.querySelector(".new-conversation")
    link.focus({ preventScroll: true })
  }

  #show() {
    if (this.#renaming) return
    const { status, items } = this.list
    this.items.ariaBusy = String(status === "loading")
    if (status === "loading" && !items.length) return // the shell's grey lines
    if (status === "failed") return this.#showNote(() => this.view.showFailed())
    if (!items.length) return this.#showNote(() => this.view.showNone())
    this.#showList(items)
    this.#showEnd()
  }

  #showNote(show) {
    const hadFocus = this.items.contains(document.activeElement)
    this.#plan = layOut([], this.#sizes)
    this.#laid = {}
    show()
    if (hadFocus) (this.items.querySelector("button") ?? this.element.querySelector(".new-conversation")).focus()
  }

  /** What is read, and what has the focus, stays where it is. */
  #showList(items) {
    const before = this.#plan
    const { scrollTop } = this.items
    this.#layOut(items)
    const top = keptTop(before, this.#plan, scrollTop)
    this.#draw(top)
    if (this.items.scrollTop !== top) this.items.scrollTop = top
    this.#measure()
  }

  /** Most of what the list tells (a page is under way, another one is open) leaves its order as it was. */
  #layOut(items) {
    const day = new Date().toDateString()
    const { items: before, sizes, day: that } = this.#laid
    if (items === before && sizes === this.#sizes && day === that) return
    this.#laid = { items, sizes: this.#sizes, day }
    this.#plan = layOut(byDay(items), this.#sizes)
  }

  #showEnd() {
    const { nextCursor, loadingMore, moreFailed } = this.list
    const hadFocus = document.activeElement === this.view.more
    this.view.showEnd({ more: nextCursor !== null, loading: loadingMore, failed: moreFailed })
    this.seen.disconnect()
    // After a failure only the reader asks again.
    if (nextCursor && !loadingMore && !moreFailed) this.seen.observe(this.view.end)
    if (hadFocus && !nextCursor) this.items.focus({ preventScroll: true })
  }

  #drawSoon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0
      this.#measure()
      if (this.#plan.rows.length) this.#draw(this.items.scrollTop)
    })
  }

  #draw(top) {
    const focused = this.items.contains(document.activeElement) ? document.activeElement : null
    const pinned = this.#renaming ?? focused?.closest("[data-item]")?.dataset.item ?? null
    const at = this.#plan.rows.findIndex((row) => row.key === pinned)
    const { from, to, ...space } = windowOf(this.#plan, { top, height: this.items.clientHeight, pinned })
    const neighbours = focused ? this.#neighbours(focused) : []
    this.view.show(this.#plan.rows.slice(from, to), { ...space, current: this.list.current })
    if (this.#renaming && !this.view.row(this.#renaming)) this.#renaming = this.#form = null // scrolled far away
    if (focused) this.#refocus(focused, neighbours, at >= 0)
  }

  /** Where the focus may go if its row goes: the rows below, then those above. */
  #neighbours(focused) {
    const links = [...this.items.querySelectorAll(".conversation-link")]
    const at = links.indexOf(focused.closest("[data-item]")?.querySelector(".conversation-link"))
    return at < 0 ? links : [...links.slice(at + 1), ...links.slice(0, at).reverse()]
  }

  #refocus(focused, neighbours, stillListed) {
    if (document.activeElement === focused) return
    if (focused.isConnected) return focused.focus({ preventScroll: true }) // it was moved
    const next = stillListed ? null : neighbours.find((link) => link.isConnected)
    ;(next ?? this.items).focus({ preventScroll: true })
  }

  /** Rows are as high as the reader's letters want them. */
  #measure() {
    const { rowPx, headPx } = this.view.measure()
    if (!rowPx || this.#renaming) return
    const sizes = { rowPx, headPx: headPx ?? this.#sizes.headPx }
    if (isNear(sizes.rowPx, this.#sizes.rowPx) && isNear(sizes.headPx, this.#sizes.headPx)) return
    this.#sizes = sizes
    this.#layOut(this.list.items)
    this.#draw(this.items.scrollTop)
  }

  #showAtMidnight() {
    // A little later: a timer may come early.
    setTimeout(() => {
      this.#show()
      this.#showAtMidnight()
    }, untilMidnight() + 1_000)
  }

  #seen(entries) {
    if (entries.some((entry) => entry.isIntersecting)) this.list.more()
  }

  #click(event) {
    const link = event.target.closest("a[data-conversation], a[data-new]")
    // A click that asks for another tab or window is the browser's.
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return
    event.preventDefault()
    this.sheet.closeFor(() => this.onOpen(link.dataset.conversation ?? null))
  }
}

function isNear(one, other) {
  return Math.abs(one - other) < 0.01
}
