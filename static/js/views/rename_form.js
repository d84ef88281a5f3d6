/** A conversation's title as a field, in the place where it was read. */
import { t } from "#js/models/i18n.js"
import { h, icon, iconButton, ownsFocus, spoken } from "#js/views/dom.js"
import { closeOnEscape } from "#js/views/typing.js"

const MAX_CHARS = 200 // what the API takes
let made = 0

/** @param {object} hooks {title, onSave(title) → Promise<string|null> what went wrong, onCancel()} */
export function renameForm({ title, onSave, onCancel }) {
  const id = `rename-problem-${(made += 1)}`
  const field = h("input", { type: "text", dir: "auto", maxlength: String(MAX_CHARS), autocomplete: "off", "aria-describedby": id })
  field.value = title
  const problem = h("p", { class: "form-problem", id, hidden: true })
  const form = h(
    "form",
    { class: "rename" },
    h("label", {}, spoken(t("Title")), field),
    h("button", { type: "submit", class: "icon-button", title: t("Save the title") }, icon("check"), spoken(t("Save the title"))),
    iconButton({ name: "close", label: t("Cancel"), bare: true, onclick: onCancel }),
    problem,
  )
  closeOnEscape(form, onCancel)
  form.addEventListener("submit", (event) => {
    event.preventDefault()
    save(form, field, problem, { title, onSave, onCancel })
  })
  return { element: form, focus: () => field.select() }
}

async function save(form, field, problem, { title, onSave, onCancel }) {
  const wanted = field.value.trim()
  if (!wanted || wanted === title) return onCancel()
  if (form.ariaBusy === "true") return
  form.ariaBusy = "true"
  tell(problem, t("Saving"))
  const wrong = await onSave(wanted)
  form.ariaBusy = "false"
  tell(problem, wrong ?? "")
  if (wrong && ownsFocus(form)) field.focus()
}

function tell(problem, text) {
  problem.textContent = text
  problem.hidden = !text
}
