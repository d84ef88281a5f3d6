/** The list of conversations, grouped by day. */
import { byDay } from "#js/models/conversation_list.js"
import { h } from "#js/views/dom.js"

export function sidebarItems(list, { onMore }) {
  if (list.status === "failed") return [h("p", { class: "list-note" }, "The list could not be loaded. It is looked for again when you come back to this page.")]
  if (list.status === "loading") return []
  if (!list.items.length) return [h("p", { class: "list-note" }, "Your conversations will be listed here.")]
  return [...byDay(list.items).map((group) => groupView(group, list.current)), list.nextCursor && moreButton(onMore)].filter(Boolean)
}

function groupView({ label, items }, current) {
  const id = `day-${label.replaceAll(" ", "-").toLowerCase()}`
  return h(
    "section",
    { class: "day", "aria-labelledby": id },
    h("h2", { id }, label),
    h("ul", {}, items.map((item) => h("li", {}, link(item, item.id === current)))),
  )
}

function link({ id, title }, isCurrent) {
  const attributes = { href: `/c/${id}`, class: "conversation-link", "aria-current": isCurrent ? "page" : null, dir: "auto" }
  return h("a", { ...attributes, "data-conversation": id, title }, title || "New conversation")
}

function moreButton(onclick) {
  return h("button", { type: "button", class: "quiet more", onclick }, "Show more")
}
