/** The thread: a list of message views, and a scroll that follows the end only if the reader is there. */
import { h } from "#js/views/dom.js"
import { messageView } from "#js/views/message_view.js"

// Within this distance the reader counts as being at the end.
const NEAR_PX = 48

export class ThreadView {
  #views = new Map() // message → view
  #following = true
  #lastTop = 0

  /** @param {object} options {scroller, list, earlier, jump, productName, modelTitle} elements of the shell */
  constructor(options) {
    Object.assign(this, options)
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true })
    this.jump.addEventListener("click", () => this.followEnd())
    new ResizeObserver(() => this.#stay()).observe(this.scroller)
  }

  reset(messages) {
    this.#views.clear()
    this.list.replaceChildren(...messages.map((message) => this.#view(message).element))
    this.followEnd()
  }

  add(message) {
    this.list.append(this.#view(message).element)
    this.followEnd()
  }

  /** Older messages go above; what the reader looks at stays where it is. */
  prepend(messages) {
    const anchor = this.list.firstElementChild
    const topBefore = anchor?.getBoundingClientRect().top ?? 0
    this.list.prepend(...messages.map((message) => this.#view(message).element))
    if (anchor) this.scroller.scrollTop += anchor.getBoundingClientRect().top - topBefore
  }

  remove(message) {
    this.#views.get(message)?.element.remove()
    this.#views.delete(message)
  }

  grow(message) {
    this.#views.get(message)?.grow()
  }

  update(message) {
    this.#views.get(message)?.update(message)
    this.#stay()
  }

  updateAll() {
    for (const [message, view] of this.#views) view.update(message)
  }

  followEnd() {
    this.#following = true
    this.#stay()
    this.#showJump()
  }

  #view(message) {
    const { productName, modelTitle } = this
    const view = messageView(message, { productName, modelTitle, onGrow: () => this.#stay() })
    this.#views.set(message, view)
    return view
  }

  #stay() {
    if (this.#following) this.scroller.scrollTop = this.scroller.scrollHeight
    else this.#showJump()
  }

  /** Only a scroll upwards lets go of the end: growth moves the end away, not the reader. */
  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_PX
    if (atEnd) this.#following = true
    else if (scrollTop < this.#lastTop) this.#following = false
    this.#lastTop = scrollTop
    this.#showJump()
  }

  #showJump() {
    this.jump.hidden = this.#following
  }
}

/** The line above the thread that fetches what came before. */
export function earlierButton(onclick) {
  return h("button", { type: "button", class: "quiet earlier", onclick })
}
