/** The reader's own message as a field, in place. */
import { t } from "#js/models/i18n.js"
import { closeOnEscape, guardPaste, isSendKey } from "#js/views/typing.js"
import { h, spoken } from "#js/views/dom.js"

/** @param {object} hooks {text, maxBytes, onInput(text), onSend(text), onCancel(), onTooLarge(sizes)} */
export function editForm({ text, maxBytes, onInput, onSend, onCancel, onTooLarge }) {
  const field = h("textarea", { rows: "1", dir: "auto", enterkeyhint: "send", autocomplete: "off" })
  const send = () => field.value.trim() && onSend(field.value)
  field.value = text
  field.addEventListener("input", () => onInput(field.value))
  field.addEventListener("keydown", (event) => {
    if (!isSendKey(event)) return
    event.preventDefault()
    send()
  })
  guardPaste(field, { maxBytes, onTooLarge })
  const form = h(
    "form",
    { class: "edit" },
    h("label", {}, spoken(t("Edit your message")), field),
    h(
      "div",
      { class: "form-actions" },
      h("button", { type: "button", class: "button", onclick: onCancel }, t("Cancel")),
      h("button", { type: "submit", class: "button primary" }, t("Send")),
    ),
  )
  closeOnEscape(form, onCancel)
  form.addEventListener("submit", (event) => {
    event.preventDefault()
    send()
  })
  return { element: form, focus: () => focusEnd(field) }
}

function focusEnd(field) {
  field.focus({ preventScroll: true })
  field.setSelectionRange(field.value.length, field.value.length)
  field.closest("form").scrollIntoView({ block: "nearest" })
}
