/** A thumb that sweeps over the thread brings the sheet, and sends it away again; the buttons do the same. */
import { swipeOf } from "#js/models/swipe.js"
import { isRightToLeft } from "#js/views/dom.js"

export class Swipe {
  #start = null

  /** @param {object} parts {main, sidebar: elements, sheet} */
  constructor({ main, sidebar, sheet }) {
    this.sheet = sheet
    for (const element of [main, sidebar]) {
      element.addEventListener("touchstart", (event) => this.#begin(event), { passive: true })
      element.addEventListener("touchend", (event) => this.#end(event, element === main), { passive: true })
      element.addEventListener("touchcancel", () => (this.#start = null), { passive: true })
    }
  }

  #begin(event) {
    const taken = event.touches.length > 1 || isTaken(event.target)
    this.#start = taken ? null : placeOf(event)
  }

  #end(event, onMain) {
    const start = this.#start
    this.#start = null
    // The sheet comes only where the page is narrow; a marked text is held by the same finger.
    if (!start || !this.sheet.isUsed || !getSelection().isCollapsed) return
    const side = swipeOf(start, placeOf(event), innerWidth)
    const inwards = isRightToLeft(document.body) ? "left" : "right"
    if (side) this.#sweep(side === inwards, onMain)
  }

  #sweep(inwards, onMain) {
    if (onMain && inwards) this.sheet.setOpen(true)
    if (!onMain && !inwards) this.sheet.setOpen(false)
  }
}

function placeOf({ changedTouches: [touch], timeStamp }) {
  return { x: touch.clientX, y: touch.clientY, ms: timeStamp }
}

/** In a field, or in what scrolls sideways itself (code, a table), the finger has other business. */
function isTaken(target) {
  for (let one = target; one && one !== document.body; one = one.parentElement) {
    if (one.matches("input, textarea, select")) return true
    if (one.scrollWidth > one.clientWidth && /auto|scroll/.test(getComputedStyle(one).overflowX)) return true
  }
  return false
}
