/** A shortcut's keys as they stand on the keyboard. */
import { capsOf } from "#js/models/shortcuts.js"
import { h, spoken } from "#js/views/dom.js"

/** @param {object} shortcut of `models/shortcuts.js` @param {{apple: boolean, silent?: boolean}} options `silent`: for eyes only */
export function keysView(shortcut, { apple, silent = false }) {
  const caps = capsOf(shortcut, apple)
  const shown = caps.map(({ cap }) => h("kbd", {}, cap))
  const said = silent ? null : spoken(caps.map((cap) => cap.said).join(" "))
  // The order of the keys is that of the keyboard, whatever way the language runs.
  return h("span", { class: "keys" }, h("span", { class: "caps", dir: "ltr", "aria-hidden": "true" }, shown), said)
}
