/** The list of conversations, grouped by day; of a long one, the part that is near the reader. */
import { t } from "#js/models/i18n.js"
import { titleText } from "#js/models/words.js"
import { arrange } from "#js/views/arrange.js"
import { h } from "#js/views/dom.js"
import { menuButton } from "#js/views/foot.js"

/** Rows are kept and moved, never made anew: a row that is replaced under a finger is not pressed. */
export class SidebarView {
  #rows = new Map() // conversation's id → {element, item, key}
  #days = new Map() // group's key → {element, heading, list}

  /** @param {object} options {element, onMenu(item, button), onMore(), onRetry()} */
  constructor({ element, onMenu, onMore, onRetry }) {
    Object.assign(this, { element, onMenu, onMore, onRetry })
    this.before = space()
    this.after = space()
    this.end = h("div", { class: "list-end" })
    this.note = h("p", { class: "list-note" })
    this.more = h("button", { type: "button", class: "quiet more", onclick: () => this.onMore() })
    this.end.append(this.note, this.more)
  }

  row(id) {
    return this.#rows.get(id)?.element ?? null
  }

  /** The sizes of what is in the page; null where there is none of it. */
  measure() {
    const [row] = this.#rows.values()
    const [day] = this.#days.values()
    return { rowPx: heightOf(row?.element), headPx: heightOf(day?.heading) }
  }

  /** No list yet: the shell's grey lines stay. */
  showFailed() {
    const again = h("button", { type: "button", class: "quiet more", onclick: () => this.onRetry() }, t("Try again"))
    this.element.replaceChildren(h("p", { class: "list-note" }, t("Your conversations could not be loaded. Nothing is lost.")), again)
  }

  showNone() {
    this.element.replaceChildren(h("p", { class: "list-note" }, t("Your conversations will be listed here.")))
  }

  /** @param {object[]} rows as `layOut` gives them @param {object} part {beforePx, afterPx, current} */
  show(rows, { beforePx, afterPx, current }) {
    this.before.style.height = `${beforePx}px`
    this.after.style.height = `${afterPx}px`
    const sections = sectionsOf(rows).map((section) => this.#section(section, current))
    arrange(this.element, [this.before, ...sections, this.after, this.end])
    this.#forget(rows)
  }

  /** @param {{more: boolean, loading: boolean, failed: boolean}} state */
  showEnd({ more, loading, failed }) {
    this.end.hidden = !more
    this.note.hidden = !failed
    this.note.textContent = failed ? t("Older conversations could not be loaded.") : ""
    this.more.textContent = loading ? t("Loading older conversations") : failed ? t("Try again") : t("Show more")
  }

  #section({ group, heading, items }, current) {
    const day = this.#days.get(group.key) ?? this.#makeDay(group)
    day.heading.textContent = group.label
    day.element.setAttribute("aria-label", group.label)
    arrange(day.list, items.map((item) => this.#row(item, item.id === current)))
    arrange(day.element, heading ? [day.heading, day.list] : [day.list])
    return day.element
  }

  #makeDay({ key }) {
    const heading = h("h2")
    const list = h("ul")
    const day = { element: h("section", { class: "day", "data-day": key }), heading, list }
    this.#days.set(key, day)
    return day
  }

  #row(item, isCurrent) {
    const row = this.#rows.get(item.id) ?? this.#makeRow(item)
    row.item = item
    const title = titleText(item)
    const key = `${isCurrent} ${title}`
    if (row.key === key) return row.element
    row.key = key
    this.#fill(row, title, isCurrent)
    return row.element
  }

  #makeRow({ id }) {
    const row = { key: "", item: null }
    const menu = menuButton({ act: "menu", name: "more", label: "", onclick: (event) => this.onMenu(row.item, event.currentTarget) })
    const link = h("a", { href: `/c/${id}`, class: "conversation-link", dir: "auto", "data-conversation": id })
    row.element = h("li", { class: "conversation-item", "data-item": id }, link, menu)
    this.#rows.set(id, row)
    return row
  }

  #fill({ element }, title, isCurrent) {
    const [link, menu] = element.children
    link.textContent = link.title = title
    if (isCurrent) link.setAttribute("aria-current", "page")
    else link.removeAttribute("aria-current")
    menu.title = menu.querySelector("span").textContent = t("More about {title}", { title })
  }

  #forget(rows) {
    const shown = new Set(rows.map((row) => row.key))
    for (const id of this.#rows.keys()) if (!shown.has(id)) this.#rows.delete(id)
    for (const [key, { element }] of this.#days) if (!element.isConnected) this.#days.delete(key)
  }
}

/** With its fractions: ten thousand rows would add them up. */
function heightOf(element) {
  return element?.getBoundingClientRect().height || null
}

function space() {
  return h("div", { class: "list-space", "aria-hidden": "true" })
}

/** Neighbours of one group together; `heading` where the group's own row is among them. */
function sectionsOf(rows) {
  const sections = []
  for (const { group, item } of rows) {
    if (sections.at(-1)?.group !== group) sections.push({ group, heading: false, items: [] })
    if (item) sections.at(-1).items.push(item)
    else sections.at(-1).heading = true
  }
  return sections
}
