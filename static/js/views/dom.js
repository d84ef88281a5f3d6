/** Small helpers for elements; no HTML strings (Trusted Types would refuse them). */
import { t } from "#js/models/i18n.js"

let spriteUrl = ""

/** @param {string} url the address of the icon sprite, from the page */
export function setSprite(url) {
  spriteUrl = url
}

/** `h("p", {class: "x", onclick}, "text", child)`; null and false children are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value)
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false))
  return element
}

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) return
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
  else element.setAttribute(name, value === true ? "" : value)
}

const SVG = "http://www.w3.org/2000/svg"

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg")
  svg.setAttribute("class", "icon")
  svg.setAttribute("aria-hidden", "true")
  const use = document.createElementNS(SVG, "use")
  use.setAttribute("href", `${spriteUrl}#${name}`)
  svg.append(use)
  return svg
}

/** Whether the page runs from right to left where `element` stands. */
export function isRightToLeft(element) {
  return getComputedStyle(element).direction === "rtl"
}

/** Whether the focus may be moved from here: it is in `element`, or nowhere since what had it is gone. */
export function ownsFocus(element) {
  const { activeElement } = document
  return !activeElement || activeElement === document.body || element.contains(activeElement)
}

/** Text that only assistive technology gets. */
export function spoken(text) {
  return h("span", { class: "visually-hidden" }, text)
}

/** A button with an icon and a label; the label is shown unless `bare`. */
export function iconButton({ name, label, bare = false, onclick, ...attributes }) {
  return h(
    "button",
    { type: "button", class: bare ? "icon-button" : "quiet", title: bare ? label : null, onclick, ...attributes },
    icon(name),
    bare ? spoken(label) : h("span", {}, label),
  )
}

/** Copy `text` and let the button say so for a moment. */
export async function copyWith(button, text) {
  const label = button.querySelector("span")
  const was = button.dataset.label ?? label.textContent
  button.dataset.label = was
  const copied = await copyText(text)
  const show = (name, words) => {
    button.querySelector("use").setAttribute("href", `${spriteUrl}#${name}`)
    label.textContent = words
    if (button.title) button.title = words
  }
  show(copied ? "check" : "warn", copied ? t("Copied") : t("Could not copy"))
  setTimeout(() => show("copy", was), 2_000)
}

/** @returns {Promise<boolean>} whether the clipboard has it */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return copyOldWay(text) // no clipboard without https
  }
}

function copyOldWay(text) {
  const field = h("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: "-1" })
  const focused = document.activeElement
  field.value = text
  document.body.append(field)
  field.select()
  const copied = document.execCommand("copy")
  field.remove()
  focused?.focus()
  return copied
}
