/** Wires the open conversation to the page: which one it is, what it shows, what the buttons do. */
import { conversationIn } from "#js/models/address.js"
import { Conversation } from "#js/models/conversation.js"
import { earlierLabel, endAnnouncement, stripFor, titleText } from "#js/models/words.js"
import { watchPresence } from "#js/controllers/presence.js"
import { earlierButton } from "#js/views/thread_view.js"

// Earlier messages are asked for before the reader meets the top.
const EARLIER_MARGIN = "800px 0px 0px 0px"

export class App {
  #conversation = null
  #silence = () => {}
  #unanswered = new Map() // id → a conversation left while its send was under way

  /** @param {object} parts {api, list, drafts, outbox, models, thread, strip, composer, sidebar, announcer, elements, productName, signIn} */
  constructor(parts) {
    Object.assign(this, parts)
    const { scroller } = this.elements
    this.topSeen = new IntersectionObserver((entries) => this.#topSeen(entries), { root: scroller, rootMargin: EARLIER_MARGIN })
    addEventListener("popstate", () => this.#show(conversationIn(location.pathname)))
  }

  /** @param {object} parts {messages, names, trash, live}: controllers that need this one */
  async start({ messages, names, trash, live }) {
    Object.assign(this, { messages, names, trash, live })
    trash.on(({ kind, item }) => kind === "restored" && this.#restored(item))
    watchPresence({ onLine: (online) => this.#lineChanged(online), onReturn: () => this.#lookAgain(), onGlance: () => live.glanced() })
    this.models.on(() => this.thread.updateAll())
    this.#show(conversationIn(location.pathname), { keepTyped: true })
    this.list.refresh()
    await this.models.load()
  }

  // --- which conversation ------------------------------------------------------------------------

  get conversation() {
    return this.#conversation
  }

  /** The open conversation as the list has it; null for one that has no id yet, or is not here. */
  get item() {
    const { id, title, activeLeaf, status } = this.#conversation
    if (!id || status !== "ready") return null
    return this.list.items.find((item) => item.id === id) ?? { id, title, active_leaf: activeLeaf }
  }

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
    this.names.closeForm()
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
    const stop = conversation.on(({ kind, text, edited }) => {
      if (kind === "refused" && text) this.drafts.put(edited ? `edit:${edited.id}` : id, text)
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
      added: () => this.#added(change),
      prepended: () => this.#prepended(change.messages),
      replaced: () => this.thread.replace(change.removed, change.added),
      earlierFailed: () => this.#earlierFailed(),
      removed: () => this.thread.remove(change.message),
      text: () => this.thread.grow(change.message),
      changed: () => this.thread.update(change.message),
      named: () => this.#named(),
      titled: () => this.#drawTitle(),
      state: () => this.#drawState(),
      started: () => this.announcer.say(`${this.productName} is answering.`),
      ended: () => this.#ended(change.message),
      refused: () => this.#refused(change),
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
    this.elements.more.hidden = !this.item
    this.composer.setUsable(status !== "missing")
    const live = conversation.liveReply
    this.composer.setMode(live ? (conversation.stopping ? "stopping" : "stop") : "send")
    this.strip.show(stripFor(conversation, { online: navigator.onLine }), (verb) => this.#do(verb))
  }

  #drawTitle() {
    const { id, title, status, activeLeaf } = this.#conversation
    const known = this.list.items.find((item) => item.id === id)
    const text = status === "missing" ? "Not here" : titleText(status === "loading" ? known : { title: title || known?.title, active_leaf: id && activeLeaf })
    this.elements.title.textContent = text
    document.title = id ? `${text} · ${this.productName}` : this.productName
  }

  #drawEarlier() {
    const { hasMoreBefore, earlierError, loadingEarlier } = this.#conversation
    const line = this.elements.earlier
    this.topSeen.disconnect()
    if (!hasMoreBefore) return line.replaceChildren()
    // The button stays the same one: a new one would not have the keyboard's focus.
    if (!line.firstElementChild) line.append(earlierButton(() => this.#loadEarlier()))
    line.firstElementChild.textContent = earlierLabel(earlierError, loadingEarlier)
    // After a failure only the reader asks again.
    if (!earlierError && !loadingEarlier) this.topSeen.observe(line)
  }

  #topSeen(entries) {
    if (entries.some((entry) => entry.isIntersecting)) this.#loadEarlier()
  }

  #loadEarlier() {
    this.#conversation.loadEarlier()
    this.#drawEarlier()
  }

  #earlierFailed() {
    this.#drawEarlier()
    this.announcer.say(earlierLabel(this.#conversation.earlierError))
  }

  #prepended(messages) {
    this.thread.prepend(messages, () => this.#drawEarlier())
  }

  #added({ message, own }) {
    this.elements.empty.hidden = true
    this.thread.add(message, { own })
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
    this.#sendUnsent(this.#conversation)
  }

  /** The text goes back to where it was typed. */
  #refused({ text, error, edited }) {
    if (edited) this.messages.edit(edited, text, { focus: !this.composer.text.trim() })
    else if (text) this.composer.giveBack(text)
    if (error?.code === "unknown_model") this.models.load()
    this.#drawState()
    this.announcer.say(stripFor(this.#conversation)?.text ?? "")
  }

  async #refreshList() {
    await this.list.refresh()
    this.listChanged()
  }

  /** The list was read again: the title may have come with it. */
  listChanged() {
    this.#drawTitle()
    this.elements.more.hidden = !this.item
  }

  // --- what the buttons do ---------------------------------------------------------------------------

  send(text) {
    return this.#conversation.sendText(text, { model: this.models.wanted })
  }

  stop() {
    this.#conversation.stop()
  }

  /** Where the keyboard goes on when the button it was on is gone; a phone's keyboard stays down. */
  toComposer() {
    if (matchMedia("(pointer: fine)").matches) this.composer.focus()
    else this.elements.content.focus({ preventScroll: true })
  }

  /** A paste larger than any message; the strip says so until the next send. */
  refusePaste(sizes) {
    this.#conversation.refusal = { paste: sizes }
    this.#drawState()
    this.announcer.say(stripFor(this.#conversation)?.text ?? "")
  }

  #do(verb) {
    const conversation = this.#conversation
    if (verb === "sign-in") location.assign(`${this.signIn}?next=${encodeURIComponent(location.pathname)}`)
    if (verb === "try-again") this.#show(conversation.id)
    if (verb === "show-elsewhere") conversation.load()
    if (verb === "continue") this.messages.continueReply(conversation.ended)
  }

  // --- names, deletion -------------------------------------------------------------------------------

  renamed(id, title) {
    if (this.#conversation.id === id) this.#conversation.title = title
    this.#drawTitle()
  }

  deleted(id) {
    if (this.#conversation.id !== id) return
    history.pushState(null, "", "/")
    this.#show(null)
  }

  /** Brought back: if nothing else was begun meanwhile, it is open again. */
  #restored({ id }) {
    this.announcer.say("The conversation is back.")
    const { conversation } = this
    if (conversation.id === null && !conversation.messages.length && !this.composer.text.trim()) this.open(id)
    else this.live.lookAtAll()
  }

  /** Deleted on another device. */
  gone(id) {
    this.list.take(id)
    if (this.#conversation.id === id) this.#conversation.look()
  }

  signedOut() {
    this.#conversation.signedOut = true
    this.#drawState()
    this.announcer.say(stripFor(this.#conversation).text)
  }

  // --- the line -----------------------------------------------------------------------------------------

  #lineChanged(online) {
    this.#drawState()
    if (!online) return void this.announcer.say("You are offline. Nothing is lost.")
    this.#conversation.wakeStreams()
    this.#lookAgain()
  }

  #lookAgain() {
    this.#conversation.refreshStreams()
    this.live.returned()
    if (this.models.status !== "ready") this.models.load()
  }
}
