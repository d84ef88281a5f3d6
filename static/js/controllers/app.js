/** Wires the open conversation to the page: which one it is, what it shows, what the buttons do. */
import { conversationIn } from "#js/models/address.js"
import { Conversation } from "#js/models/conversation.js"
import { earlierLabel, endAnnouncement, stripFor } from "#js/models/words.js"
import { watchPresence } from "#js/controllers/presence.js"
import { earlierButton } from "#js/views/thread_view.js"

export class App {
  #conversation = null
  #silence = () => {}
  #unanswered = new Map() // id → a conversation left while its send was under way
  #models = new Map()

  /** @param {object} parts {api, list, drafts, outbox, thread, strip, composer, sidebar, announcer, elements, productName, signIn} */
  constructor(parts) {
    Object.assign(this, parts)
    this.thread.modelTitle = (slug) => this.#models.get(slug)?.title ?? slug ?? ""
    addEventListener("popstate", () => this.#show(conversationIn(location.pathname)))
    watchPresence({ onLine: (online) => this.#lineChanged(online), onReturn: () => this.#lookAgain() })
  }

  async start() {
    this.#show(conversationIn(location.pathname), { keepTyped: true })
    this.list.refresh()
    await this.#loadModels()
  }

  // --- which conversation ------------------------------------------------------------------------

  /** Go to a conversation, or (null) to a new one. */
  open(id) {
    if (id !== this.#conversation.id || !id) {
      history.pushState(null, "", id ? `/c/${id}` : "/")
      this.#show(id)
    }
    if (matchMedia("(pointer: fine)").matches) this.composer.focus()
  }

  async #show(id, { keepTyped = false } = {}) {
    this.#leave()
    const kept = this.#unanswered.get(id)
    const conversation = kept ?? this.#create(id)
    this.#conversation = conversation
    conversation.comeBack()
    this.#silence = conversation.on((change) => this.#changed(change))
    this.composer.open(id, { keepTyped })
    this.list.mark(id)
    this.#drawAll()
    if (id && !kept) await conversation.load()
    if (this.#conversation === conversation) this.#sendUnsent(conversation)
  }

  #create(id) {
    return new Conversation({ api: this.api, id, outbox: this.outbox })
  }

  #leave() {
    const left = this.#conversation
    if (!left) return
    this.#silence()
    left.leave()
    if (left.leaving) this.#keepUntilAnswered(left)
  }

  #keepUntilAnswered(conversation) {
    const { id } = conversation
    if (id) this.#unanswered.set(id, conversation)
    const stop = conversation.on(({ kind, text }) => {
      if (kind === "refused") this.drafts.put(id, text)
      if (!["refused", "named", "state"].includes(kind) || conversation.unanswered) return
      stop()
      this.#unanswered.delete(id)
      this.list.refresh()
    })
  }

  /** A reload in the middle of a send: the same key again is the same send. */
  #sendUnsent(conversation) {
    const letter = this.outbox.find(conversation.id)
    if (letter && !conversation.liveReply && conversation.status === "ready") conversation.sendAgain(letter)
  }

  // --- what it shows -------------------------------------------------------------------------------

  #changed(change) {
    const draw = {
      reset: () => this.#drawAll(),
      added: () => this.#added(change.message),
      prepended: () => this.#prepended(change.messages),
      earlierFailed: () => this.#earlierFailed(),
      removed: () => this.thread.remove(change.message),
      text: () => this.thread.grow(change.message),
      changed: () => this.thread.update(change.message),
      named: () => this.#named(),
      state: () => this.#drawState(),
      started: () => this.announcer.say(`${this.productName} is answering.`),
      ended: () => this.#ended(change.message),
      refused: () => this.#refused(change.text),
    }
    draw[change.kind]?.()
  }

  #drawAll() {
    this.thread.reset(this.#conversation.messages)
    this.#drawEarlier()
    this.#drawState()
    this.#drawTitle()
  }

  #drawState() {
    const conversation = this.#conversation
    const { status } = conversation
    const blank = status === "ready" && conversation.messages.length === 0
    this.elements.empty.hidden = !blank || conversation.id !== null
    this.elements.missing.hidden = status !== "missing"
    this.elements.loading.hidden = status !== "loading"
    this.composer.setUsable(status !== "missing")
    const live = conversation.liveReply
    this.composer.setMode(live ? (conversation.stopping ? "stopping" : "stop") : "send")
    this.strip.show(stripFor(conversation, { online: navigator.onLine }), (verb) => this.#do(verb))
  }

  #drawTitle() {
    const { id, title, status } = this.#conversation
    const known = this.list.items.find((item) => item.id === id)
    const text = status === "missing" ? "Not here" : title || known?.title || "New conversation"
    this.elements.title.textContent = text
    document.title = id ? `${text} · ${this.productName}` : this.productName
  }

  #drawEarlier() {
    const { hasMoreBefore, earlierError } = this.#conversation
    const line = this.elements.earlier
    if (!hasMoreBefore) return line.replaceChildren()
    // The button stays the same one: a new one would not have the keyboard's focus.
    if (!line.firstElementChild) line.append(earlierButton(() => this.#conversation.loadEarlier()))
    line.firstElementChild.textContent = earlierLabel(earlierError)
  }

  #earlierFailed() {
    this.#drawEarlier()
    this.announcer.say(earlierLabel(this.#conversation.earlierError))
  }

  #prepended(messages) {
    this.thread.prepend(messages)
    this.#drawEarlier()
  }

  #added(message) {
    this.elements.empty.hidden = true
    this.thread.add(message)
  }

  #named() {
    const { id } = this.#conversation
    history.replaceState(null, "", `/c/${id}`)
    this.composer.rename(id)
    this.list.mark(id)
    this.#refreshList()
  }

  #ended(message) {
    this.thread.update(message)
    this.announcer.say(endAnnouncement(message))
    this.#refreshList()
  }

  #refused(text) {
    this.composer.giveBack(text)
    this.#drawState()
    this.announcer.say(stripFor(this.#conversation)?.text ?? "")
  }

  async #refreshList() {
    await this.list.refresh()
    this.#drawTitle()
  }

  // --- what the buttons do ---------------------------------------------------------------------------

  send(text) {
    return this.#conversation.status === "ready" && this.#conversation.sendText(text)
  }

  stop() {
    this.#conversation.stop()
  }

  /** A paste larger than any message; the strip says so until the next send. */
  refusePaste(sizes) {
    this.#conversation.refusal = { paste: sizes }
    this.#drawState()
    this.announcer.say(stripFor(this.#conversation)?.text ?? "")
  }

  #do(verb) {
    if (verb === "sign-in") location.assign(`${this.signIn}?next=${encodeURIComponent(location.pathname)}`)
    if (verb === "try-again") this.#show(this.#conversation.id)
  }

  // --- the line -----------------------------------------------------------------------------------------

  #lineChanged(online) {
    this.#drawState()
    if (!online) return void this.announcer.say("You are offline. Nothing is lost.")
    this.#conversation.wakeStreams()
    this.#lookAgain()
  }

  #lookAgain() {
    this.#conversation.look()
    this.#refreshList()
  }

  async #loadModels() {
    const models = await this.api.models().catch(() => ({ data: [] }))
    for (const model of models.data) this.#models.set(model.id, model)
    const chosen = models.data.find((model) => model.default) ?? models.data[0]
    this.elements.model.textContent = chosen?.title ?? ""
    this.thread.updateAll()
  }
}
