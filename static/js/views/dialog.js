/** What the page's dialogs have in common: opened over everything, closed by Escape, button, or a press beside them. */
import { h, iconButton } from "#js/views/dom.js"
import { t } from "#js/models/i18n.js"

/** A `<dialog>` in the page; the browser keeps the focus inside and gives it back to where it was. */
export function makeDialog({ label, className, onClose = () => {} }, ...children) {
  const dialog = h("dialog", { class: className, "aria-label": label }, ...children)
  let from = null
  dialog.addEventListener("pointerdown", (event) => (from = event.target))
  // A press that began inside (a text marked beyond the edge) is none beside it.
  dialog.addEventListener("click", (event) => event.target === dialog && from === dialog && dialog.close())
  dialog.addEventListener("close", onClose)
  document.body.append(dialog)
  return dialog
}

export function closeButton(dialog) {
  return iconButton({ name: "close", label: t("Close"), bare: true, onclick: () => dialog().close() })
}
