/** One message of the thread as a list item. */
import { plural, t } from "#js/models/i18n.js"
import { finishNote, unreadableText } from "#js/models/words.js"
import { copyWith, h, iconButton, ownsFocus, spoken } from "#js/views/dom.js"
import { detailsView } from "#js/views/details.js"
import { editForm } from "#js/views/edit_form.js"
import { feedbackForm } from "#js/views/feedback_form.js"
import { fill, focusAct, footButton, menuButton, versionsView } from "#js/views/foot.js"
import { MarkdownView } from "#js/views/markdown_view.js"

/** @param {object} options what the page offers: {productName, modelTitle, severalModels, onOpen, actions} */
export function messageView(message, options) {
  return message.role === "user" ? new UserView(message, options) : new ReplyView(message, options)
}

class UserView {
  #form = null
  drawn = true

  constructor(message, { actions }) {
    Object.assign(this, { message, actions })
    this.text = h("div", { class: "user-text" })
    this.foot = h("div", { class: "message-foot" })
    this.element = h("li", { class: "message user", "data-key": message.key }, heading(t("You said")), this.text, this.foot)
    this.update(message)
  }

  update(message) {
    this.text.textContent = message.readable ? message.text : unreadableText()
    this.text.classList.toggle("unreadable", !message.readable)
    this.element.classList.toggle("sending", message.phase === "sending")
    setId(this.element, message)
    const key = JSON.stringify([message.id, message.readable, message.versions])
    fill(this.foot, key, () => this.#footParts())
  }

  draw() {}

  discard() {}

  #footParts() {
    const { message, actions } = this
    const ready = message.id && message.readable
    return [
      ready && footButton({ act: "edit", name: "pencil", label: t("Edit your message"), onclick: () => actions.onEdit(message) }),
      ready && copyButton(t("Copy your message"), message),
      versionsView(message, actions.onVersion),
    ]
  }

  /** The text becomes a field. @param {object} hooks as `editForm` takes them */
  edit(hooks, { focus = true } = {}) {
    this.stopEditing()
    this.#form = editForm(hooks)
    this.element.classList.add("editing")
    this.text.before(this.#form.element)
    if (focus) this.#form.focus()
  }

  /** @returns {boolean} whether it had been edited */
  stopEditing() {
    const edited = this.#form !== null
    this.#form?.element.remove()
    this.#form = null
    this.element.classList.remove("editing")
    return edited
  }
}

class ReplyView {
  #frame = 0
  #costMs = 0
  #renderedAt = 0
  #final = null
  #feedback = null
  #details = null

  constructor(message, { productName, modelTitle, severalModels, onOpen, actions }) {
    Object.assign(this, { message, modelTitle, severalModels, onOpen, actions })
    this.markdown = new MarkdownView()
    this.lost = h("p", { class: "unreadable", hidden: true }, unreadableText())
    this.caret = h("div", { class: "thinking", "aria-hidden": "true" }, h("i"), h("i"), h("i"))
    this.foot = h("div", { class: "message-foot" })
    this.element = h(
      "li",
      { class: "message reply", "data-key": message.key },
      heading(t("{product} said", { product: productName })),
      this.markdown.element,
      this.lost,
      this.caret,
      this.foot,
    )
    this.drawn = message.live
    if (this.drawn) this.#render()
    this.update(message)
  }

  /** Until then the text stands as it came: it can be found and heard, and costs nothing. */
  draw() {
    if (this.drawn) return
    this.drawn = true
    this.markdown.element.classList.remove("undrawn")
    this.markdown.element.replaceChildren()
    this.#render()
  }

  /** It left the page for good: nothing more is done for it. */
  discard() {
    cancelAnimationFrame(this.#frame)
    this.markdown.discard()
  }

  #showPlain() {
    this.markdown.element.classList.add("undrawn")
    this.markdown.element.textContent = this.message.text
  }

  /** The text changed: draw it with the next frame, once, however many events come before it. */
  grow() {
    this.draw()
    this.#showState()
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#renderSoon())
  }

  update(message) {
    this.message = message
    setId(this.element, message)
    if (!this.drawn) this.#showPlain()
    else if (!message.live) this.#render()
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
  }

  #showState() {
    const { live, text, retracted, readable } = this.message
    this.caret.hidden = !live || text !== ""
    this.lost.hidden = readable
    this.element.classList.toggle("live", live)
    this.element.classList.toggle("retracted", retracted)
    this.element.setAttribute("aria-busy", String(live))
    this.#showFoot()
  }

  #showFoot() {
    const { id, live, text, finish, versions, feedback, readable, model, usage } = this.message
    const settled = live ? null : [id, finish, text !== "", readable, this.modelTitle(model), usage, feedback?.rating, this.severalModels()]
    fill(this.foot, JSON.stringify([versions, settled]), () => [
      versionsView(this.message, this.actions.onVersion),
      ...(live ? [] : this.#settledParts()),
    ])
  }

  #settledParts() {
    const { message } = this
    const note = finishNote(message.finish)
    return [
      note && h("span", { class: "finish-note" }, note),
      !message.text && message.readable && h("span", { class: "finish-note" }, t("Nothing was written")),
      message.continuable && iconButton({ name: "forward", label: t("Continue"), "data-act": "continue", onclick: () => this.actions.onContinue(message) }),
      message.text && copyButton(t("Copy"), message),
      ...(message.id ? this.#actionButtons() : []),
      message.run && this.#factsButton(),
    ]
  }

  /** Names the model; the rest is told where it is wanted. */
  #factsButton() {
    const open = String(this.#details !== null)
    const onclick = () => this.#toggleDetails()
    const { model, usage } = this.message
    const [title, tokens] = [this.modelTitle(model), tokensText(usage)]
    // The name is a Latin one in most languages: isolated, it does not turn the count beside it around.
    const facts = [title && h("bdi", {}, title), title && tokens && " · ", tokens].filter(Boolean)
    return h(
      "button",
      { type: "button", class: "quiet facts", "data-act": "details", "aria-expanded": open, title: t("Details of this answer"), onclick, onkeydown: (event) => this.#key(event) },
      facts.length ? spoken(t("Details:")) : t("Details"),
      facts.length ? h("span", {}, facts) : null,
    )
  }

  /** Escape on the button closes what it has opened; else it is the page's. */
  #key(event) {
    if (event.key !== "Escape" || !this.#details) return
    event.stopPropagation()
    this.#closeDetails()
  }

  #toggleDetails() {
    if (this.#details) return this.#closeDetails()
    this.onOpen?.()
    this.#details = detailsView({
      known: this.message,
      modelTitle: this.modelTitle,
      read: () => this.actions.onDetails(this.message),
      onClose: () => this.#closeDetails(),
    })
    this.foot.after(this.#details)
    this.#expand(true)
  }

  #closeDetails() {
    this.#details?.remove()
    this.#details = null
    this.#expand(false)
    focusAct(this.foot, "details")
  }

  #expand(open) {
    this.foot.querySelector('[data-act="details"]')?.setAttribute("aria-expanded", String(open))
  }

  #actionButtons() {
    const { message, actions } = this
    return [
      footButton({ act: "regenerate", name: "again", label: t("Regenerate"), onclick: () => actions.onRegenerate(message) }),
      this.severalModels() &&
        menuButton({ act: "other-model", label: t("Regenerate with another model"), onclick: (event) => actions.onOtherModel(message, event.currentTarget) }),
      message.readable && this.#thumb("up", t("Good answer")),
      message.readable && this.#thumb("down", t("Bad answer")),
    ]
  }

  #thumb(rating, label) {
    const pressed = this.message.feedback?.rating === rating
    return footButton({ act: rating, name: `thumb-${rating}`, label, "aria-pressed": String(pressed), onclick: () => this.#rate(rating, pressed) })
  }

  #rate(rating, pressed) {
    this.#closeFeedback()
    this.actions.onRate(this.message, pressed ? null : rating, "")
    if (!pressed) this.#openFeedback(rating)
  }

  #openFeedback(rating) {
    const close = () => {
      if (this.#feedback !== form) return // closed already, and perhaps another one is open
      const mayFocus = ownsFocus(form) || ownsFocus(this.foot)
      this.#closeFeedback()
      if (mayFocus) focusAct(this.foot, rating)
    }
    const onSend = async (reason) => (await this.actions.onRate(this.message, rating, reason)) && close()
    this.onOpen?.()
    const form = feedbackForm({ rating, reason: this.message.feedback?.reason ?? "", onSend, onClose: close })
    this.#feedback = form
    this.foot.after(form)
    this.element.classList.add("rating")
  }

  #closeFeedback() {
    this.#feedback?.remove()
    this.#feedback = null
    this.element.classList.remove("rating")
  }
}

function copyButton(label, message) {
  const onclick = (event) => copyWith(event.currentTarget, message.text)
  return footButton({ act: "copy", name: "copy", label, onclick })
}

function tokensText(usage) {
  const tokens = usage?.output_tokens
  return tokens ? plural("{count} token", "{count} tokens", tokens) : ""
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
