/**
 * The page's keyboard shortcuts: the one list that the keys are matched against and the help sheet is made from.
 *
 * `mod` is Command on Apple's machines and Control elsewhere. Where a shortcut holds:
 * - `anywhere`, also while typing;
 * - `outside` of fields: a single character, which the reader can switch off (somebody who speaks to the
 *   computer would set it off by talking);
 * - `empty`: in the composer while nothing is written there.
 * One without `where` belongs to the part of the page it works in, and is here to be read about.
 */
import { t } from "#js/models/i18n.js"

export const SHORTCUTS = [
  { id: "palette", key: "k", mod: true, where: "anywhere", group: "everywhere", label: () => t("Search conversations and commands") },
  { id: "new", key: "o", mod: true, shift: true, where: "anywhere", group: "everywhere", label: () => t("New chat") },
  { id: "composer", key: "/", where: "outside", group: "everywhere", label: () => t("Go to the message field") },
  { id: "help", key: "?", where: "outside", group: "everywhere", label: () => t("Show the keyboard shortcuts") },
  { id: "undo", key: "z", mod: true, group: "everywhere", label: () => t("Bring back a deleted conversation") },
  { id: "stop", key: "Escape", where: "anywhere", group: "conversation", label: () => t("Stop the answer, or close what is open") },
  { id: "copy", key: "c", mod: true, shift: true, where: "anywhere", group: "conversation", label: () => t("Copy the last answer") },
  { id: "edit", key: "ArrowUp", where: "empty", group: "writing", label: () => t("Edit your last message, from the empty field") },
  { id: "send", key: "Enter", group: "writing", label: () => t("Send the message") },
  { id: "line", key: "Enter", shift: true, group: "writing", label: () => t("Begin a new line") },
]

/** The help sheet's sections, in their order. */
export function shortcutGroups() {
  const titles = [["everywhere", t("Everywhere")], ["conversation", t("In a conversation")], ["writing", t("While writing")]]
  return titles.map(([group, title]) => ({ title, shortcuts: SHORTCUTS.filter((one) => one.group === group) }))
}

/**
 * The shortcut that a key asks for, or null.
 * @param {object} event as `keydown` gives it
 * @param {{apple: boolean, place: "page"|"field"|"composer"|"empty", single: boolean}} state `single`: single keys are on
 */
export function shortcutFor(event, { apple, place, single = true }) {
  if (isComposing(event) || event.repeat || event.altKey) return null
  return SHORTCUTS.find((one) => holds(one.where, place, single) && isAsked(one, event, apple)) ?? null
}

function holds(where, place, single) {
  if (where === "outside") return single && place === "page"
  return where === "anywhere" || (where === "empty" && place === "empty")
}

function isAsked({ key, mod = false, shift = false }, event, apple) {
  const [wanted, other] = apple ? [event.metaKey, event.ctrlKey] : [event.ctrlKey, event.metaKey]
  if (wanted !== mod || other) return false
  // On which side of Shift a sign lies is the keyboard's affair.
  const isSign = key.length === 1 && !isLetter(key)
  return (isSign || event.shiftKey === shift) && isKey(key, event)
}

/** By what the key writes; by its place where it writes other letters (Arabic, Hindi, Greek). */
function isKey(key, event) {
  const written = event.key.toLowerCase()
  if (written === key.toLowerCase()) return true
  if (key === "?") return written === "؟"
  return isLetter(key) && !isLetter(written) && event.code === `Key${key.toUpperCase()}`
}

function isLetter(key) {
  return /^[a-z]$/i.test(key)
}

/** Whether a key belongs to the composition of a character. (Safari tells its end only by 229.) */
export function isComposing(event) {
  return event.isComposing || event.keyCode === 229
}

/** @param {string} platform as the browser names it */
export function isApple(platform = "") {
  return /mac|iphone|ipad|ipod/i.test(platform)
}

const SIGNS = { Escape: "Esc", ArrowUp: "↑", Enter: "Enter" }
const APPLE_SIGNS = { ...SIGNS, Enter: "↩" }

/**
 * The caps of a shortcut's keys, with what a screen reader says of each.
 * @returns {{cap: string, said: string}[]}
 */
export function capsOf({ key, mod = false, shift = false }, apple) {
  const caps = []
  if (mod) caps.push(apple ? { cap: "⌘", said: t("Command") } : { cap: t("Ctrl"), said: t("Control") })
  if (shift) caps.push(apple ? { cap: "⇧", said: t("Shift") } : { cap: t("Shift"), said: t("Shift") })
  const cap = (apple ? APPLE_SIGNS : SIGNS)[key] ?? key.toUpperCase()
  return [...caps, { cap, said: saidOf(key) }]
}

function saidOf(key) {
  const said = { Escape: t("Escape"), ArrowUp: t("Up arrow"), Enter: t("Enter"), "/": t("Slash"), "?": t("Question mark") }
  return said[key] ?? key.toUpperCase()
}

/** For `aria-keyshortcuts`. */
export function ariaKeys({ key, mod = false, shift = false }, apple) {
  return [mod && (apple ? "Meta" : "Control"), shift && "Shift", key.length === 1 ? key.toUpperCase() : key].filter(Boolean).join("+")
}

export function shortcut(id) {
  return SHORTCUTS.find((one) => one.id === id) ?? null
}
