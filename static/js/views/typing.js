/** What fields and small forms have in common. */
import { isComposing } from "#js/models/shortcuts.js"
import { byteLength } from "#js/models/size.js"

/** An Enter that sends: not with Shift, and not the one that ends the composition of a character. */
export function isSendKey(event) {
  return event.key === "Enter" && !event.shiftKey && !isComposing(event)
}

/** Let Escape close what has the focus, and nothing beyond it: the page's own Escape would stop an answer. */
export function closeOnEscape(element, close) {
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || isComposing(event)) return
    event.stopPropagation()
    close()
  })
}

/** A text that no send could carry is not taken: laying out some megabytes would freeze the page. */
export function guardPaste(field, { maxBytes, onTooLarge }) {
  const check = (event, data) => {
    const bytes = byteLength(data?.getData("text/plain") ?? "") + byteLength(field.value)
    if (bytes <= maxBytes) return
    event.preventDefault()
    onTooLarge({ bytes, maxBytes })
  }
  field.addEventListener("paste", (event) => check(event, event.clipboardData))
  field.addEventListener("drop", (event) => check(event, event.dataTransfer))
}
