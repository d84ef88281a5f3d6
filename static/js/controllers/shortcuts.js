/** Hears the page's keyboard shortcuts and tells which was pressed. */
import { shortcutFor } from "#js/models/shortcuts.js"

export class Shortcuts {
  /** @param {object} parts {apple, composer: its field, single(): whether single keys are on, act(id) → boolean} */
  constructor(parts) {
    Object.assign(this, parts)
    document.addEventListener("keydown", (event) => this.#key(event))
  }

  #key(event) {
    if (event.defaultPrevented) return
    const found = shortcutFor(event, { apple: this.apple, place: this.#place(event.target), single: this.single() })
    // Where there is nothing to do, the key stays the browser's.
    if (found && this.#isHeard(found) && this.act(found.id)) event.preventDefault()
  }

  /** A dialog has keys of its own; only the palette's closes it again. */
  #isHeard({ id }) {
    const dialog = document.querySelector("dialog[open]")
    return !dialog || (id === "palette" && dialog.classList.contains("palette"))
  }

  #place(target) {
    if (target === this.composer) return target.value === "" ? "empty" : "composer"
    const field = target.closest?.("input, textarea, select, [contenteditable], [role=menu]")
    return field ? "field" : "page"
  }
}
