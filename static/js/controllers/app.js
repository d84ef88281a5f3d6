/** Wires the open conversation to the page: which one it is, what it shows, what the buttons do. */
import { conversationIn } from "#js/models/address.js"
import { Conversation } from "#js/models/conversation.js"
import { t } from "#js/models/i18n.js"
import { joined } from "#js/models/storage.js"
import { earlierLabel, endAnnouncement, headingOf } from "#js/models/words.js"
import { Places } from "#js/controllers/places.js"
import { watchPresence } from "#js/controllers/presence.js"
import { spoken } from "#js/views/dom.js"
import { earlierButton } from "#js/views/thread_view.js"

// Earlier messages are asked for before the reader meets the top.
const EARLIER_MARGIN = "1600px 0px 0px 0px"

export class App {
  #conversation = null
  #silence = () => {}
  #unanswered = new Map() // id → a conversation left while its send was under way
  #drawn = [] // what the page's controls were drawn for

  /** @param {object} parts {api, list, drafts, outbox, models, thread, waits, next, composer, sidebar, announcer, elements, productName, signIn, tell(text)} */
  constructor(parts) {
    Object.assign(this, parts)
    const { scroller } = this.elements
    this.places = new Places(this.thread)
    this.topSeen = new IntersectionObserver((entries) => this.#topSeen(entries), { root: scroller, rootMargin: EARLIER_MARGIN })
    addEventListener("popstate", () => this.#cameBack(conversationIn(location.pathname)))
  }

  /** @param {object} parts {messages, names, trash, live}: controllers that need this one */
  async start({ messages, names, trash, live }) {
    Object.assign(this, { messages, names, trash, live })
    trash.on(({ kind, item }) => kind === "restored" && this.#restored(item))
    watchPresence({ onLine: (online) => this.#lineChanged(online), onReturn: () => this.#lookAgain(), onGlance: () => live.glanced() })
    this.models.on(() => this.thread.updateAll())
    this.#show(conversationIn(location.pathname), { keepTyped: true })
    this.#sendUnnamed(this.#conversation)
    this.list.refresh()
    await this.models.load()
    this.models.loadLimits()
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
      // A phone's sheet has an entry of its own, which leads nowhere once it is closed.
      const write = history.state?.sheet ? "replaceState" : "pushState"
      history[write](null, "", id ? `/c/${id}` : "/")
      this.#show(id)
    }
    if (matchMedia("(pointer: fine)").matches) this.composer.focus()
  }

  /** Back or forward; between the entries of one conversation (a sheet was open) nothing changes. */
  #cameBack(id) {
    const place = this.trash.took(id) ? null : id
    if (place !== id) history.replaceState(null, "", "/")
    if (place !== this.#conversation.id) this.#show(place)
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
    this.next.open(conversation)
    this.list.mark(id)
    this.#drawAll()
    if (id && !kept) await conversation.load()
    const isOpen = () => this.#conversation === conversation
    if (isOpen()) this.#sendUnsent(conversation)
    await this.places.goBack(conversation, isOpen)
  }

  #create(id) {
    return new Conversation({ api: this.api, id, outbox: this.outbox })
  }

  #leave() {
    const left = this.#conversation
    if (!left) return
    this.#silence()
    this.places.keep(left.id)
    this.waits.disarm()
    left.leave()
    if (left.leaving) this.#keepUntilAnswered(left)
  }

  #keepUntilAnswered(conversation) {
    const { id } = conversation
    if (id && this.#unanswered.get(id) === conversation) return // left once more, and seen to already
    if (id) this.#unanswered.set(id, conversation)
    this.#seeThrough(conversation, id ? () => "" : this.next.message.leaveUnnamed())
  }

  /** @param {(id: string|null) => string} keepNext as `NextMessage.leaveUnnamed` gives it */
  #seeThrough(conversation, keepNext) {
    const { id } = conversation
    const stop = conversation.on((change) => {
      const { kind } = change
      if (kind === "named") keepNext(conversation.id)
      // Where it is open again, its text goes back as always.
      if (kind === "refused" && conversation !== this.#conversation) this.#refusedAway(id, change, keepNext)
      if (!["refused", "named", "state"].includes(kind) || conversation.unanswered) return
      stop()
      if (id) this.#unanswered.delete(id)
      this.list.refresh()
    })
  }

  /** Refused after its conversation was left: the text goes before what has been begun there since. */
  #refusedAway(id, { text, error, edited }, keepNext) {
    if (!text) return
    const all = joined(text, keepNext(null))
    if (!edited && id === this.#conversation.id) {
      this.composer.giveBack(all)
      return void (error && this.#refuse({ error, kept: "below", at: Date.now() }))
    }
    const kept = this.drafts.putBefore(edited ? `edit:${edited.id}` : id, all)
    this.tell(awayText({ id, kept }))
  }

  /** A reload in the middle of a send: the same key again is the same send. */
  #sendUnsent(conversation) {
    const { id } = conversation
    // Those of new conversations are seen to once, when the page begins: later they are this page's own.
    const letter = id && this.outbox.find(id)
    if (letter && !conversation.liveReply && conversation.status === "ready") conversation.sendAgain(letter)
  }

  /** Sends of new conversations that a reload has cut off: one where a new one is open, the others without being shown. */
  #sendUnnamed(open) {
    const [first, ...others] = this.outbox.findAll(null)
    if (first && open.id === null) open.sendAgain(first)
    else if (first) others.unshift(first)
    for (const letter of others) this.#sendAside(letter)
  }

  #sendAside(letter) {
    const conversation = this.#create(null)
    conversation.sendAgain(letter)
    conversation.leave()
    this.#seeThrough(conversation, () => "")
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
      state: () => this.#stateChanged(),
      started: () => this.announcer.say(t("{product} is answering.", { product: this.productName })),
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

  /** It comes with every event of an answer; the controls change far less often. */
  #stateChanged() {
    const drawn = this.#controls
    if (drawn.some((one, index) => one !== this.#drawn[index])) this.#drawState()
    else this.waits.draw(this.#conversation)
    this.next.consider(this.#conversation)
  }

  get #controls() {
    const { id, status, liveReply, stopping, messages } = this.#conversation
    return [id, status, liveReply, stopping, messages.length === 0]
  }

  #drawState() {
    this.#drawn = this.#controls
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
    this.waits.draw(conversation)
  }

  #drawTitle() {
    const known = this.list.items.find((item) => item.id === this.#conversation.id)
    const { text, named } = headingOf(this.#conversation, known)
    const { title } = this.elements
    title.classList.toggle("unread", !named)
    title.replaceChildren(named ? text : spoken(text))
    document.title = named && this.#conversation.id ? `${text} · ${this.productName}` : this.productName
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
    this.next.message.rename(id)
    this.list.mark(id)
    this.#refreshList()
  }

  #ended(message) {
    this.thread.update(message)
    this.announcer.say(endAnnouncement(message))
    this.models.loadLimits()
    this.#refreshList()
    this.#sendUnsent(this.#conversation)
  }

  /** The text goes back to where it was typed. */
  #refused({ text, error, edited }) {
    if (edited) this.messages.edit(edited, text, { focus: !this.composer.text.trim() })
    else if (text) this.composer.giveBack(text)
    if (error?.code === "unknown_model") this.models.load()
    this.#drawState()
    this.announcer.say(this.waits.words(this.#conversation))
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

  /** The text waits for the end of the answer that is being written. @returns {boolean} */
  sendLater(text) {
    return this.next.put(text, this.models.wanted)
  }

  stop() {
    this.#conversation.stop()
  }

  /** @returns {boolean} whether there was something to end: an answer, or a send that was about to go by itself */
  escape() {
    const { liveReply, stopping, waitsForStop } = this.#conversation
    if (!liveReply || (stopping && !waitsForStop)) return this.waits.disarm()
    this.stop()
    return true
  }

  /** Where the keyboard goes on when the button it was on is gone; a phone's keyboard stays down. */
  toComposer() {
    if (matchMedia("(pointer: fine)").matches) this.composer.focus()
    else this.elements.content.focus({ preventScroll: true })
  }

  /** A paste larger than any message; the strip says so until the next send. */
  refusePaste(sizes) {
    this.#refuse({ paste: sizes })
  }

  /** What no server would take is not sent. */
  refuseLong() {
    this.#refuse({ error: { status: 413, code: "too_large" }, kept: "below" })
  }

  #refuse(refusal) {
    this.#conversation.refusal = refusal
    this.#drawState()
    this.announcer.say(this.waits.words(this.#conversation))
  }

  /** What the strip offers. */
  do(verb) {
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
    // In its own place, so that the way back does not lead to what is gone; a phone's sheet keeps its entry.
    history.replaceState(history.state, "", "/")
    this.#show(null)
  }

  /** Brought back: if nothing else was begun meanwhile, it is open again. */
  #restored({ id }) {
    this.announcer.say(t("The conversation is back."))
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
    this.announcer.say(this.waits.words(this.#conversation))
  }

  // --- the line -----------------------------------------------------------------------------------------

  #lineChanged(online) {
    this.#drawState()
    if (!online) return void this.announcer.say(t("You are offline. Nothing is lost."))
    this.#conversation.wakeStreams()
    this.#lookAgain()
  }

  #lookAgain() {
    this.#conversation.refreshStreams()
    this.live.returned()
    if (this.models.status !== "ready") this.models.load()
  }
}

function awayText({ id, kept }) {
  if (!kept) return t("A message was not sent. It could not be kept: together with what is there, it is too long.")
  if (id === null) return t("A message to a new chat was not sent. It is kept there as a draft.")
  return t("A message to another conversation was not sent. It is kept there as a draft.")
}
