/** How an answer was made: opened on demand under it. What the page knows stands there at once. */
import { detailRows } from "#js/models/details.js"
import { t } from "#js/models/i18n.js"
import { h } from "#js/views/dom.js"
import { closeOnEscape } from "#js/views/typing.js"

/**
 * @param {object} options {known, modelTitle, read(): Promise<object>, onClose()}; `read` gives the run, or rejects
 * @returns {HTMLElement}
 */
export function detailsView({ known, modelTitle, read, onClose }) {
  const list = h("dl", {})
  const note = h("p", { class: "details-note", hidden: true })
  const element = h("div", { class: "details", tabindex: "-1", role: "group", "aria-label": t("Details of this answer") }, list, note)
  const show = (run) => list.replaceChildren(...rowsOf(detailRows(known, run, modelTitle)))
  const found = (run) => {
    show(run)
    // The button that asked again goes; the keyboard stays here.
    if (note.contains(document.activeElement)) element.focus({ preventScroll: true })
    note.hidden = true
  }
  const load = () => read().then(found, () => failed(note, load))
  closeOnEscape(element, onClose)
  show(null)
  load()
  return element
}

function rowsOf(rows) {
  return rows.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", { dir: "auto" }, value)))
}

function failed(note, load) {
  if (!note.hidden) return // said already; its button has the keyboard's focus
  const button = h("button", { type: "button", class: "quiet", onclick: load }, t("Try again"))
  note.replaceChildren(t("The times could not be read just now."), " ", button)
  note.hidden = false
}
