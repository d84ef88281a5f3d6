/** The list of conversations, grouped by day. */
import { byDay } from "#js/models/conversation_list.js"
import { titleText } from "#js/models/words.js"
import { h } from "#js/views/dom.js"
import { menuButton } from "#js/views/foot.js"

/** @param {object} hooks {onMore(), onMenu(item, button)} */
export function sidebarItems(list, { onMore, onMenu }) {
  if (list.status === "failed") return [h("p", { class: "list-note" }, "The list could not be loaded. It is looked for again when you come back to this page.")]
  if (list.status === "loading") return []
  if (!list.items.length) return [h("p", { class: "list-note" }, "Your conversations will be listed here.")]
  const groups = byDay(list.items).map((group) => groupView(group, list.current, onMenu))
  return [...groups, list.nextCursor && moreButton(onMore)].filter(Boolean)
}

function groupView({ label, items }, current, onMenu) {
  const id = `day-${label.replaceAll(" ", "-").toLowerCase()}`
  return h(
    "section",
    { class: "day", "aria-labelledby": id },
    h("h2", { id }, label),
    h("ul", {}, items.map((item) => row(item, item.id === current, onMenu))),
  )
}

function row(item, isCurrent, onMenu) {
  const title = titleText(item)
  return h(
    "li",
    { class: "conversation-item", "data-item": item.id },
    h("a", { href: `/c/${item.id}`, class: "conversation-link", "aria-current": isCurrent ? "page" : null, dir: "auto", "data-conversation": item.id, title }, title),
    menuButton({ act: "menu", name: "more", label: `More about ${title}`, onclick: (event) => onMenu(item, event.currentTarget) }),
  )
}

function moreButton(onclick) {
  return h("button", { type: "button", class: "quiet more", onclick }, "Show more")
}
