/** Why an answer was good or bad: optional, small, under the answer. */
import { h } from "#js/views/dom.js"

const MAX_CHARS = 2_000 // what the API takes

const QUESTIONS = { up: "What was good about it? (optional)", down: "What was wrong with it? (optional)" }

/** @param {object} hooks {rating, reason, onSend(reason), onClose()} */
export function feedbackForm({ rating, reason, onSend, onClose }) {
  const field = h("textarea", { rows: "2", dir: "auto", maxlength: String(MAX_CHARS) })
  field.value = reason
  const form = h(
    "form",
    { class: "feedback" },
    h("label", {}, QUESTIONS[rating], field),
    h(
      "div",
      { class: "form-actions" },
      h("button", { type: "button", class: "button", onclick: onClose }, "Close"),
      h("button", { type: "submit", class: "button" }, "Send"),
    ),
  )
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return
    event.stopPropagation()
    onClose()
  })
  form.addEventListener("submit", (event) => {
    event.preventDefault()
    onSend(field.value.trim())
  })
  return form
}
