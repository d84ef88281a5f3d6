/** What stands under a message: its versions and what can be done with it. */
import { t } from "#js/models/i18n.js"
import { placeText, placeWords } from "#js/models/versions.js"
import { h, icon, iconButton, isRightToLeft, spoken } from "#js/views/dom.js"

const keys = new WeakMap() // element → what it shows

/** Fill `element` anew, only where `key` says that it would differ; the keyboard's focus stays on its button. */
export function fill(element, key, make) {
  if (keys.get(element) === key) return
  keys.set(element, key)
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.act : null
  element.replaceChildren(...make().filter(Boolean))
  if (focused) focusAct(element, focused)
}

/** Focus the button that does `act`, or the first one. */
export function focusAct(element, act) {
  const button = element.querySelector(`[data-act="${act}"]`) ?? element.querySelector("button")
  button?.focus({ preventScroll: true })
  return button
}

/** A small button with an icon; its label is for ears and, as a tooltip, for eyes. */
export function footButton({ act, name, label, onclick, ...more }) {
  return iconButton({ name, label, bare: true, onclick, "data-act": act, ...more })
}

/** ‹ 2/3 ›, also with the arrow keys while one of the two has the focus. */
export function versionsView(message, onVersion) {
  const { versions } = message
  if (!versions) return null
  const step = (side) => versions[side] && onVersion(message, side)
  return h(
    "div",
    { class: "versions", role: "group", "aria-label": placeWords(versions), onkeydown: (event) => arrowKey(event, step) },
    stepButton("previous", t("Previous version"), "left", versions, step),
    h("span", { class: "place", "aria-hidden": "true" }, placeText(versions)),
    stepButton("next", t("Next version"), "right", versions, step),
  )
}

function stepButton(side, label, name, versions, step) {
  const disabled = versions[side] ? null : "true"
  return footButton({ act: side, name, label, onclick: () => step(side), "aria-disabled": disabled })
}

const ARROWS = { ArrowLeft: "previous", ArrowRight: "next" }

/** The versions run as the page does: from right to left, the next one is to the left. */
function sideOf({ key, currentTarget }) {
  const side = ARROWS[key]
  if (!isRightToLeft(currentTarget)) return side
  return { previous: "next", next: "previous" }[side]
}

function arrowKey(event, step) {
  const side = sideOf(event)
  if (!side || event.altKey || event.ctrlKey || event.metaKey) return
  event.preventDefault()
  step(side)
}

/** A button that opens a menu. */
export function menuButton({ act, label, onclick, name = "chevron", ...more }) {
  return h(
    "button",
    { type: "button", class: "icon-button", title: label, "data-act": act, "aria-haspopup": "menu", "aria-expanded": "false", onclick, ...more },
    icon(name),
    spoken(label),
  )
}
