/** The thread: a list of message views, and a scroll that follows the end only if the reader is there. */
import { focusAct } from "#js/views/foot.js"
import { h } from "#js/views/dom.js"
import { messageView } from "#js/views/message_view.js"

// Within this distance the reader counts as being at the end.
const NEAR_PX = 48

export class ThreadView {
  #views = new Map() // message → view
  #following = true
  #lastTop = 0

  /**
   * @param {object} options {scroller, list, jump, productName, modelTitle, severalModels, actions}: elements
   *   of the shell, what views ask, and what their buttons do
   */
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

  /** @param {boolean} own the reader's own doing is followed; what comes from elsewhere only by who is at the end */
  add(message, { own = true } = {}) {
    this.list.append(this.#view(message).element)
    if (own) this.followEnd()
    else this.#stay()
  }

  /**
   * Older messages go above; what the reader looks at stays where it is.
   * @param {() => void} andThen changes what stands above the list, in the same breath
   */
  prepend(messages, andThen) {
    const anchor = this.list.firstElementChild
    const topBefore = anchor?.getBoundingClientRect().top ?? 0
    this.list.prepend(...messages.map((message) => this.#view(message).element))
    andThen()
    if (anchor) this.scroller.scrollTop += anchor.getBoundingClientRect().top - topBefore
  }

  /** The end of the thread gives way to another version; what stands above it stays where it is. */
  replace(removed, added) {
    this.#following = false
    for (const message of removed) this.remove(message)
    this.list.append(...added.map((message) => this.#view(message).element))
    if (added[0]?.phase === "sending" || added.at(-1)?.phase === "sending") this.followEnd()
    else this.#settle()
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

  /** @param {object} hooks as `editForm` takes them */
  edit(message, hooks, options) {
    this.#views.get(message)?.edit(hooks, options)
  }

  /** The button that began it has the focus again. */
  stopEditing(message) {
    const view = this.#views.get(message)
    if (view?.stopEditing()) focusAct(view.foot, "edit")
  }

  /** Focus a button under a message and bring it into view. */
  focusUnder(message, act) {
    const view = this.#views.get(message)
    if (view) focusAct(view.foot, act)?.scrollIntoView({ block: "nearest" })
  }

  followEnd() {
    this.#following = true
    this.#stay()
    this.#showJump()
  }

  #view(message) {
    const { productName, modelTitle, severalModels, actions } = this
    const view = messageView(message, { productName, modelTitle, severalModels, actions, onGrow: () => this.#stay() })
    this.#views.set(message, view)
    return view
  }

  #stay() {
    if (this.#following) this.scroller.scrollTop = this.scroller.scrollHeight
    else this.#showJump()
  }

  /** Only a scroll upwards lets go of the end: growth moves the end away, not the reader. */
  #scrolled() {
    if (this.#atEnd) this.#following = true
    else if (this.scroller.scrollTop < this.#lastTop) this.#following = false
    this.#lastTop = this.scroller.scrollTop
    this.#showJump()
  }

  #settle() {
    this.#following = this.#atEnd
    this.#lastTop = this.scroller.scrollTop
    this.#showJump()
  }

  get #atEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller
    return scrollHeight - scrollTop - clientHeight < NEAR_PX
  }

  #showJump() {
    this.jump.hidden = this.#following
  }
}

/** The line above the thread that fetches what came before. */
export function earlierButton(onclick) {
  return h("button", { type: "button", class: "quiet earlier", onclick })
}
