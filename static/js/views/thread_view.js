/**
 * The thread: a list of message views, and a scroll that follows the end only if the reader is there.
 *
 * All messages stay in the document, so that find-in-page and screen readers have the whole of them. What is
 * far from the reader is neither laid out (`content-visibility` in thread.css) nor, at first, drawn: its text
 * stands there as it came.
 */
import { roughHeight } from "#js/models/rough_height.js"
import { DrawSoon } from "#js/views/draw_soon.js"
import { focusAct } from "#js/views/foot.js"
import { h, ownsFocus } from "#js/views/dom.js"
import { messageView } from "#js/views/message_view.js"

// Within this distance the reader counts as being at the end.
const NEAR_PX = 48
// So many screens around the reader are drawn before the thread is shown.
const SCREENS = 2
// Where the browser does not keep the reader's place while heights above it come true, this page does.
const KEEPS_PLACE = CSS.supports("overflow-anchor", "auto")

export class ThreadView {
  #views = new Map() // message → view
  #viewOf = new WeakMap() // element → view
  #following = true
  #lastTop = 0
  #held = null // {view, offset}: what stays where it is while heights above it come true

  /**
   * @param {object} options {scroller, list, jump, productName, modelTitle, severalModels, actions}: elements
   *   of the shell, what views ask, and what their buttons do
   */
  constructor(options) {
    Object.assign(this, options)
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true })
    this.jump.addEventListener("click", () => this.followEnd())
    this.drawSoon = new DrawSoon(this.scroller)
    const sizes = new ResizeObserver(() => this.#resized())
    sizes.observe(this.scroller)
    sizes.observe(this.list)
  }

  reset(messages) {
    this.drawSoon.clear()
    for (const view of this.#views.values()) view.discard()
    this.#views.clear()
    this.list.replaceChildren(...this.#elements(messages))
    this.#drawAround(this.list.lastElementChild)
    this.followEnd()
  }

  /** Whether the end is followed. */
  get following() {
    return this.#following
  }

  /** Where the reader is: the message and how far below the top it stands. Null at the end. */
  get place() {
    const found = this.#following ? null : this.#topmost((view) => view.message.id)
    return found ? { id: found.view.message.id, offset: found.offset } : null
  }

  /** @param {{id, offset}} place as `place` told it @returns {boolean} whether that message is here */
  goTo({ id, offset }) {
    const view = [...this.#views.values()].find(({ message }) => message.id === id)
    if (!view) return false
    this.#drawAround(view.element)
    this.#following = false
    this.#putAt({ view, offset })
    return true
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
    const place = this.#topmost()
    this.list.prepend(...this.#elements(messages))
    andThen()
    if (!place) return
    this.#drawAround(place.view.element)
    this.#putAt(place)
  }

  /** The end of the thread gives way to another version; what stands above it stays where it is. */
  replace(removed, added) {
    this.#following = false
    for (const message of removed) this.remove(message)
    this.list.append(...this.#elements(added))
    this.#drawAround(this.#views.get(added[0])?.element)
    if (added[0]?.phase === "sending" || added.at(-1)?.phase === "sending") this.followEnd()
    else this.#settle()
  }

  remove(message) {
    const view = this.#views.get(message)
    if (!view) return
    this.drawSoon.drop(view.element)
    view.discard()
    view.element.remove()
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

  /** Focus a button under a message and bring it into view, unless its person has gone on elsewhere meanwhile. */
  focusUnder(message, act) {
    const view = this.#views.get(message)
    if (view && ownsFocus(view.element)) focusAct(view.foot, act)?.scrollIntoView({ block: "nearest" })
  }

  followEnd() {
    this.#following = true
    this.#stay()
    this.#showJump()
  }

  #elements(messages) {
    const width = this.list.clientWidth
    return messages.map((message) => this.#view(message, width).element)
  }

  #view(message, width = this.list.clientWidth) {
    const { productName, modelTitle, severalModels, actions } = this
    const view = messageView(message, { productName, modelTitle, severalModels, actions, onOpen: () => this.#opened(view) })
    view.element.style.setProperty("--rough-height", `${roughHeight(message, width)}px`)
    this.#views.set(message, view)
    this.#viewOf.set(view.element, view)
    if (!view.drawn) this.drawSoon.add(view.element, () => view.draw())
    return view
  }

  /**
   * Draw, now, what will be on the screen with `element` and near it, and give it its true height; from the
   * next frames on the browser sees for itself that it is near.
   */
  #drawAround(element) {
    const screen = this.scroller.clientHeight * SCREENS
    this.#drawAlong(element, "previousElementSibling", screen)
    this.#drawAlong(element?.nextElementSibling, "nextElementSibling", screen)
    const near = this.list.querySelectorAll(":scope > .near")
    requestAnimationFrame(() => requestAnimationFrame(() => near.forEach((one) => one.classList.remove("near"))))
  }

  #drawAlong(first, next, heightPx) {
    let left = heightPx
    for (let element = first; element && left > 0; element = element[next]) {
      const view = this.#viewOf.get(element)
      this.drawSoon.drop(element)
      view.draw()
      element.classList.add("near")
      left -= roughHeight(view.message, this.list.clientWidth)
    }
  }

  /** Something was opened under a message: it opens downwards, except at the end that is followed. */
  #opened(view) {
    if (view.element !== this.list.lastElementChild) this.#following = false
  }

  /** The topmost message that is seen. */
  #topmost(fits = () => true) {
    const top = this.#top
    const elements = [...this.list.children]
    const at = firstOf(elements, (element) => element.getBoundingClientRect().bottom > top)
    const view = elements.slice(at).map((element) => this.#viewOf.get(element)).find(fits)
    return view ? { view, offset: view.element.getBoundingClientRect().top - top } : null
  }

  /** Heights above it may come true with the next frames: until the reader moves, it is held there. */
  #putAt(place) {
    this.#held = place
    this.scroller.scrollTop += place.view.element.getBoundingClientRect().top - this.#top - place.offset
    this.#lastTop = this.scroller.scrollTop
    this.#showJump()
  }

  get #top() {
    return this.scroller.getBoundingClientRect().top
  }

  #stay() {
    // An empty thread has no end to follow: what stands in its place is read from above.
    if (this.#following) this.scroller.scrollTop = this.list.firstElementChild ? this.scroller.scrollHeight : 0
    else this.#showJump()
  }

  /** Before it is painted. A message that is being edited grows downwards. */
  #resized() {
    if (!this.list.querySelector(":scope > .editing")) this.#stay()
    if (!this.#following && this.#held?.view.element.isConnected) this.#putAt(this.#held)
  }

  /** Only a scroll upwards lets go of the end: growth moves the end away, not the reader. */
  #scrolled() {
    const { scrollTop } = this.scroller
    if (this.#atEnd) this.#following = true
    else if (scrollTop < this.#lastTop) this.#following = false
    if (scrollTop !== this.#lastTop) this.#held = KEEPS_PLACE ? null : this.#topmost()
    this.#lastTop = scrollTop
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
    // The button goes; the keyboard goes on in the thread.
    if (this.#following && document.activeElement === this.jump) this.list.closest("[tabindex]").focus({ preventScroll: true })
    this.jump.hidden = this.#following
  }
}

/** Where the first stands that fits; all after it do too. */
function firstOf(elements, fits) {
  let [from, to] = [0, elements.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if (fits(elements[middle])) to = middle
    else from = middle + 1
  }
  return from
}

/** The line above the thread that fetches what came before. */
export function earlierButton(onclick) {
  return h("button", { type: "button", class: "quiet earlier", onclick })
}
