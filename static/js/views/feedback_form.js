/** Why an answer was good or bad: optional, small, under the answer. */
import { t } from "#js/models/i18n.js"
import { h } from "#js/views/dom.js"
import { closeOnEscape } from "#js/views/typing.js"

const MAX_CHARS = 2_000 // what the API takes

const QUESTIONS = {
  up: () => t("What was good about it? (optional)"),
  down: () => t("What was wrong with it? (optional)"),
}

/** @param {object} hooks {rating, reason, onSend(reason), onClose()} */
export function feedbackForm({ rating, reason, onSend, onClose }) {
  const field = h("textarea", { rows: "2", dir: "auto", maxlength: String(MAX_CHARS) })
  field.value = reason
  const form = h(
    "form",
    { class: "feedback" },
    h("label", {}, QUESTIONS[rating](), field),
    h(
      "div",
      { class: "form-actions" },
      h("button", { type: "button", class: "button", onclick: onClose }, t("Close")),
      h("button", { type: "submit", class: "button" }, t("Send")),
    ),
  )
  closeOnEscape(form, onClose)
  form.addEventListener("submit", (event) => {
    event.preventDefault()
    onSend(field.value.trim())
  })
  return form
}
