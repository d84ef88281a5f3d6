/** One message of the thread as a list item. */
import { finishNote } from "#js/models/words.js"
import { copyWith, h, iconButton, spoken } from "#js/views/dom.js"
import { MarkdownView } from "#js/views/markdown_view.js"

export function messageView(message, options) {
  return message.role === "user" ? new UserView(message) : new ReplyView(message, options)
}

class UserView {
  constructor(message) {
    this.text = h("div", { class: "user-text" })
    this.element = h("li", { class: "message user", "data-key": message.key }, heading("You said"), this.text)
    this.update(message)
  }

  update(message) {
    this.text.textContent = message.text
    this.element.classList.toggle("sending", message.phase === "sending")
    setId(this.element, message)
  }
}

class ReplyView {
  #frame = 0
  #costMs = 0
  #renderedAt = 0
  #final = null

  constructor(message, { productName, modelTitle, onGrow }) {
    Object.assign(this, { message, modelTitle, onGrow })
    this.markdown = new MarkdownView()
    this.caret = h("div", { class: "thinking", "aria-hidden": "true" }, h("i"), h("i"), h("i"))
    this.foot = h("div", { class: "message-foot" })
    this.element = h(
      "li",
      { class: "message reply", "data-key": message.key },
      heading(`${productName} said`),
      this.markdown.element,
      this.caret,
      this.foot,
    )
    this.#render()
    this.update(message)
  }

  /** The text changed: draw it with the next frame, once, however many events come before it. */
  grow() {
    this.#showState()
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#renderSoon())
  }

  update(message) {
    this.message = message
    setId(this.element, message)
    if (!message.live) this.#render()
    this.#showState()
  }

  /** A block that is costly to read again (a hostile or a huge one) is drawn less often. */
  #renderSoon() {
    this.#frame = 0
    const restMs = this.#renderedAt + this.#costMs * 3 - performance.now()
    if (restMs > 0) this.#frame = requestAnimationFrame(() => this.#renderSoon())
    else this.#render()
  }

  #render() {
    const final = !this.message.live
    if (final && this.#final === this.message.text) return
    this.#final = final ? this.message.text : null
    const startedAt = performance.now()
    this.markdown.show(this.message.text, final)
    this.#renderedAt = performance.now()
    this.#costMs = this.#renderedAt - startedAt
    this.onGrow?.()
  }

  #showState() {
    const { live, text, retracted } = this.message
    this.caret.hidden = !live || text !== ""
    this.element.classList.toggle("live", live)
    this.element.classList.toggle("retracted", retracted)
    this.element.setAttribute("aria-busy", String(live))
    this.#showFoot()
  }

  #showFoot() {
    const { live, text, finish } = this.message
    const state = live ? "" : `${finish} ${text !== ""} ${this.modelTitle(this.message.model)}`
    if (this.foot.dataset.state === state) return
    this.foot.dataset.state = state
    this.foot.replaceChildren(...(live ? [] : this.#footParts()))
  }

  #footParts() {
    const note = finishNote(this.message.finish)
    const facts = [this.modelTitle(this.message.model), tokensText(this.message.usage)].filter(Boolean).join(" · ")
    return [
      note && h("span", { class: "finish-note" }, note),
      !this.message.text && h("span", { class: "finish-note" }, "Nothing was written"),
      this.message.text && this.#copyButton(),
      facts && h("span", { class: "facts" }, facts),
    ].filter(Boolean)
  }

  #copyButton() {
    const onclick = (event) => copyWith(event.currentTarget, this.message.text)
    return iconButton({ name: "copy", label: "Copy", onclick })
  }
}

function tokensText(usage) {
  const tokens = usage?.output_tokens
  return tokens ? `${tokens.toLocaleString("en")} tokens` : ""
}

function heading(text) {
  const element = spoken(text)
  element.setAttribute("role", "heading")
  element.setAttribute("aria-level", "2")
  return element
}

function setId(element, message) {
  if (message.id) element.dataset.id = message.id
}
