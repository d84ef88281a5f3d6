/** The sidebar as a phone's sheet: opened, closed by button, Escape, tap beside it, or the way back. */

import { ownsFocus } from "#js/views/dom.js"

const NARROW = "(width < 48rem)"

export class Sheet {
  /** @param {object} parts {toggle, close, scrim, behind: elements that rest meanwhile, first: of the list, where the focus goes when the page has got wide} */
  constructor(parts) {
    Object.assign(this, parts)
    this.toggle.addEventListener("click", () => this.setOpen(true))
    this.close.addEventListener("click", () => this.setOpen(false))
    this.scrim.addEventListener("click", () => this.setOpen(false))
    document.addEventListener("keydown", (event) => this.#key(event))
    addEventListener("popstate", () => this.isOpen && this.#show(false))
    this.narrow = matchMedia(NARROW)
    this.narrow.addEventListener("change", ({ matches }) => matches || this.setOpen(false))
    if (history.state?.sheet) history.replaceState(null, "") // the page was loaded again with the sheet open
  }

  /** On a wide page the list stands beside the thread, always. */
  get isUsed() {
    return this.narrow.matches
  }

  get isOpen() {
    return document.body.classList.contains("sheet-open")
  }

  /** Only a phone's sheet opens and closes; beside it, the rest of the page rests. */
  setOpen(open) {
    if (this.isOpen === open) return
    this.#show(open)
    if (open) history.pushState({ sheet: true }, "")
    else this.forgetPlace()
  }

  /** Closed by going somewhere: the address that comes takes the sheet's place in the history. */
  closeFor(go) {
    if (!this.isOpen) return go()
    this.#show(false)
    go()
    this.forgetPlace()
  }

  /** The history has no entry for a sheet that is closed. */
  forgetPlace() {
    if (history.state?.sheet) history.back()
  }

  #show(open) {
    document.body.classList.toggle("sheet-open", open)
    this.toggle.setAttribute("aria-expanded", String(open))
    for (const element of this.behind) element.inert = open
    this.#target(open)?.focus({ preventScroll: true })
  }

  /** On a page that has got wide, both buttons are hidden and the list stays: so does the focus in it. */
  #target(open) {
    if (open) return this.close
    if (this.isUsed) return this.toggle
    return ownsFocus(this.close) ? this.first : null
  }

  #key(event) {
    if (event.key !== "Escape" || event.defaultPrevented || !this.isOpen) return
    if (document.querySelector("dialog[open]")) return // its own Escape
    event.preventDefault()
    this.setOpen(false)
  }
}
