/** The sheet of keyboard shortcuts, made from the same list that the keys are matched against. */
import { t } from "#js/models/i18n.js"
import { shortcutGroups } from "#js/models/shortcuts.js"
import { h } from "#js/views/dom.js"
import { closeButton, makeDialog } from "#js/views/dialog.js"
import { keysView } from "#js/views/keys_view.js"

/** @param {object} options {apple, single: boolean, onSingle(on)} `single`: shortcuts of one character are on */
export function helpDialog({ apple, single, onSingle }) {
  const groups = shortcutGroups().map((group) => groupView(group, apple))
  const dialog = makeDialog(
    { label: t("Keyboard shortcuts"), className: "help-sheet" },
    h("div", { class: "help-head" }, h("h2", {}, t("Keyboard shortcuts")), closeButton(() => dialog)),
    // Focusable: whoever has keys alone scrolls it.
    h("div", { class: "help-body", tabindex: "0", role: "group", "aria-label": t("List of shortcuts") }, groups, singleSwitch(single, onSingle)),
  )
  return dialog
}

function groupView({ title, shortcuts }, apple) {
  const rows = shortcuts.map((shortcut) => h("div", { class: "help-row" }, h("dt", {}, shortcut.label()), h("dd", {}, keysView(shortcut, { apple }))))
  return h("section", {}, h("h3", {}, title), h("dl", {}, rows))
}

function singleSwitch(single, onSingle) {
  const box = h("input", { type: "checkbox" })
  box.checked = single
  box.addEventListener("change", () => onSingle(box.checked))
  const why = t("Switch it off if you speak to your computer, or press them by accident.")
  return h("label", { class: "help-switch" }, box, h("span", {}, t("Shortcuts of a single key, such as / and ?"), h("small", {}, why)))
}
