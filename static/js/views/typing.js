/** What all fields for messages have in common. */

/** An Enter that sends: not with Shift, and not the one that ends the composition of a character. */
export function isSendKey(event) {
  // Safari tells the end of a composition only by 229.
  const composing = event.isComposing || event.keyCode === 229
  return event.key === "Enter" && !event.shiftKey && !composing
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

function byteLength(text) {
  return new TextEncoder().encode(text).length
}
