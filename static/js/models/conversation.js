/**
 * The thread that is open: saved messages, what is being sent, the reply being written.
 *
 * Changes it tells: `reset` (draw everything), `added` {message, own}, `prepended` {messages}, `text` {message},
 * `changed` {message}, `removed` {message}, `replaced` {removed, added} (the end of the thread, by another
 * version), `earlierFailed`, `named` (it got its id), `titled`, `state` (what is waited for), `started`,
 * `ended` {message}, `refused` {text, error, edited}.
 */
import { compare, newestRunBelow, takeParting, takeRows } from "#js/models/branch.js"
import { Emitter } from "#js/models/emitter.js"
import { rate } from "#js/models/feedback.js"
import { choose, chooseInsteadOf, readUpTo } from "#js/models/leaf.js"
import { freshBeside, pairOf, randomKey, sendBody } from "#js/models/letters.js"
import { Message, SAVED, WRITING } from "#js/models/message.js"
import { RunStream } from "#js/models/run_stream.js"
import { noticeAfter } from "#js/models/waiting.js"

const NOT_FOUND = new Set([400, 404])

export class Conversation extends Emitter {
  #streams = new Map() // reply → RunStream
  #stopWanted = new Set() // replies to stop as soon as their run has a name
  #aside = new Map() // id → a live reply that was left for another version
  #waiting = null // {letter, user, reply, after}: a send that waits for a stop
  #moves = 0 // how often the thread shown has moved: an answer that was asked for before is out of date
  #looking = false
  #lookAgain = false // what was seen last is out of date
  #lookAtEnd = false // the thread has gone on elsewhere while its end is still being written here

  /** @param {object} options {api, id|null, outbox, newKey, streamOptions} */
  constructor({ api, id = null, outbox, newKey = randomKey, streamOptions = {} }) {
    super()
    Object.assign(this, { api, id, outbox, newKey, streamOptions })
    this.title = ""
    this.messages = []
    this.liveRuns = new Map() // reply id → run, as the server told last
    this.activeLeaf = null
    this.before = null
    this.hasMoreBefore = false
    this.status = id ? "loading" : "ready" // "loading" | "ready" | "missing" | "failed"
    this.link = null // the live stream's connection, as RunStream tells it
    this.notice = null // the last notice of the live reply
    this.loadError = null
    this.earlierError = null // why the last try to load earlier messages failed
    this.ended = null // the reply that ended last while this page was looking
    this.refusal = null // {error, kept, at} of what was asked for last, when nothing of it was kept on the server
    this.failure = null // {what: "switch"|"feedback", error}
    this.switching = false // another version is being fetched
    this.elsewhere = false // the conversation goes on in another version, chosen on another device
    this.signedOut = false
  }

  /** The reply that is being sent for, waited for or written; null when the composer is free. */
  get liveReply() {
    return this.messages.findLast((message) => message.role === "assistant" && message.live) ?? null
  }

  get leaf() {
    return this.messages.at(-1) ?? null
  }

  /** A send that the server has not answered yet: it must not be cut by leaving the conversation. */
  get unanswered() {
    return Boolean(this.#waiting) || [...this.#streams.values()].some((stream) => stream.send && !stream.run)
  }

  /** Whether something new can be asked for at another place of the thread. */
  get free() {
    return this.status === "ready" && !this.unanswered && !this.switching
  }

  // --- reading ---------------------------------------------------------------------------------

  async load() {
    try {
      this.#show(await this.api.conversation(this.id))
    } catch (error) {
      this.#loadFailed(error)
    }
    this.emit("reset")
    this.emit("state")
  }

  /**
   * Look again: something changed elsewhere, or the page was hidden or cut off. The thread grows at its end;
   * where it goes on in another version, that is told, and what is read stays.
   */
  async look() {
    if (!this.id || this.status === "loading") return
    if (this.leaf?.error?.status) return this.load() // it could not be followed; perhaps it can now
    if (this.#looking) return void (this.#lookAgain = true)
    this.#looking = true
    this.#lookAgain = false
    const moves = this.#moves
    const detail = await this.api.conversation(this.id, { limit: 100 }).catch((error) => this.#lookFailed(error))
    this.#looking = false
    if (detail) this.#saw(detail, moves)
    if (this.#lookAgain && this.free) return this.look()
  }

  #lookFailed(error) {
    if (error.status !== 404 || this.status !== "ready" || this.unanswered) return
    this.#loadFailed(error)
    this.#clear()
  }

  #clear() {
    this.close()
    this.#moves += 1
    this.messages = []
    this.hasMoreBefore = false
    this.emit("reset")
    this.emit("state")
  }

  #saw(detail, moves) {
    if (this.status !== "ready") {
      this.#show(detail)
      this.emit("reset")
      return this.emit("state")
    }
    this.#takeDetail(detail)
    this.#takeRows(detail.messages)
    // What moved meanwhile, or is about to, makes this picture old.
    if (moves !== this.#moves || !this.free) this.#lookAgain = true
    else this.#grow(detail)
    this.emit("state")
  }

  #takeDetail(detail) {
    const title = detail.title ?? ""
    const renamed = title !== this.title
    this.title = title
    this.activeLeaf = detail.active_leaf ?? null
    this.liveRuns = new Map(detail.live_runs.map((run) => [run.reply_id, run]))
    if (renamed) this.emit("titled")
  }

  #takeRows(rows) {
    for (const message of takeRows(this.messages, rows, this.liveRuns)) this.emit("changed", { message })
  }

  #grow(detail) {
    const { relation, rest } = compare(this.messages, detail.messages)
    // A live reply that the reader went to see is no thread of another device.
    this.elsewhere = relation === "elsewhere" && !this.leaf?.mayReplace
    this.#lookAtEnd = relation === "wait" || relation === "elsewhere"
    const parted = relation === "elsewhere" && takeParting(this.messages, detail.messages, detail.live_runs)
    if (parted) this.emit("changed", { message: parted })
    for (const row of rest) this.#add(Message.fromApi(row), { own: false })
    if (["longer", "same"].includes(relation) && !this.liveReply) this.#resumeNewest()
  }

  #resumeNewest() {
    const run = this.leaf && newestRunBelow(this.liveRuns.values(), this.leaf.id)
    if (!run) return
    const reply = this.#liveReplyOf(run)
    this.#add(reply, { own: false })
    this.#follow(reply, { run: run.id })
  }

  /** Never rejects: a failure is told, and kept until the next page that comes. */
  async loadEarlier() {
    if (!this.hasMoreBefore || this.loadingEarlier) return
    this.loadingEarlier = true
    const { before } = this
    const found = await this.api.conversation(this.id, { before }).catch((error) => error)
    this.loadingEarlier = false
    if (found instanceof Error) this.#earlierFailed(found)
    else if (before === this.before) this.#prepend(found)
  }

  #prepend(page) {
    const messages = page.messages.map(Message.fromApi)
    this.messages.unshift(...messages)
    this.#takePaging(page)
    this.emit("prepended", { messages })
  }

  #earlierFailed(error) {
    this.earlierError = error
    this.emit("earlierFailed")
  }

  #show(detail) {
    this.close()
    this.#moves += 1
    this.status = "ready"
    this.loadError = null
    this.elsewhere = false
    this.#takeDetail(detail)
    this.messages = detail.messages.map(Message.fromApi)
    this.#takePaging(detail)
    const run = this.leaf && newestRunBelow(detail.live_runs, this.leaf.id)
    if (!run) return
    const reply = this.#liveReplyOf(run)
    this.messages.push(reply)
    this.#follow(reply, { run: run.id })
  }

  #takePaging(page) {
    this.hasMoreBefore = Boolean(page.has_more_before)
    this.before = page.before ?? null
    this.earlierError = null
  }

  #loadFailed(error) {
    this.status = NOT_FOUND.has(error.status) ? "missing" : "failed"
    this.loadError = error
  }

  // --- sending ---------------------------------------------------------------------------------

  /**
   * Send below what is shown. Where that is an answer which is being stopped, the send waits for its end.
   * @returns {boolean} false where nothing can be sent now
   */
  sendText(text, { model = null, key = this.newKey() } = {}) {
    const live = this.liveReply
    if (this.status !== "ready" || this.switching || (live && !this.#endsSoon(live))) return false
    const letter = this.#letter({ key, body: sendBody(text, { parent: this.leaf?.id, model }) })
    if (live) return this.#postAfter(live, letter)
    return this.#post(letter, this.messages.length)
  }

  #endsSoon(live) {
    return live.stopping && live.id && !this.#waiting
  }

  /**
   * Another version of the reader's own message, with an answer of its own.
   * @returns {boolean} false where nothing can be sent now
   */
  edit(message, text, { model = null } = {}) {
    const at = this.messages.indexOf(message)
    if (!this.free || at < 0 || !message.id) return false
    const letter = this.#letter({ body: sendBody(text, { parent: message.parentId, model }) })
    return this.#post(letter, at, message)
  }

  /** Another answer, by the same model or another. @returns {boolean} */
  regenerate(reply, { model = null } = {}) {
    return this.#again(reply, this.#letter({ verb: "regenerate", message: reply.id, body: model ? { model } : {} }))
  }

  /** A new version that begins with the text of this reply and goes on. @returns {boolean} */
  continueReply(reply) {
    const letter = this.#letter({ verb: "continue", message: reply.id, body: {} })
    return reply.continuable && this.#again(reply, letter, reply.text)
  }

  /** Send again what a reload cut off before the server had answered; the key makes it the same send. */
  sendAgain(letter) {
    const parent = letter.body.parent_id
    const above = this.messages.findIndex((message) => message.id === parent)
    const first = parent === null && this.id !== null
    return this.#post(letter, first ? 0 : above < 0 ? this.messages.length : above + 1)
  }

  #letter(more) {
    return { conversation: this.id, key: more.key ?? this.newKey(), ...more }
  }

  /** A user's message and its reply, in place of everything from `at` on. */
  #post(letter, at, edited = null) {
    this.outbox.put(letter)
    const [user, reply] = pairOf(letter, edited)
    const cut = this.#replaceFrom(at, [user, reply])
    this.#follow(reply, { send: letter, user, cut, edited })
    return true
  }

  #postAfter(after, letter) {
    this.outbox.put(letter)
    const [user, reply] = pairOf(letter)
    this.#waiting = { letter, user, reply, after }
    this.#replaceFrom(this.messages.length, [user, reply])
    this.emit("state")
    return true
  }

  #again(reply, letter, text = "") {
    const at = this.messages.indexOf(reply)
    if (!this.free || at < 1 || !reply.id) return false
    const fresh = freshBeside(reply, letter.key, text)
    fresh.mayReplace = this.#leavesBeside(reply.parentId)
    const cut = this.#replaceFrom(at, [fresh])
    this.#follow(fresh, { send: letter, cut })
    return true
  }

  /** Leaves that nobody chose instead: the message itself, and answers that are being written beside. */
  #leavesBeside(parentId) {
    const beside = [...this.liveRuns.values()].filter((run) => run.parent_id === parentId)
    return new Set([parentId, ...beside.map((run) => run.reply_id)])
  }

  /** @returns {object[]} what was cut off */
  #replaceFrom(at, added) {
    this.#moves += 1
    this.refusal = this.ended = this.failure = null
    this.elsewhere = false
    const cut = this.messages.splice(at)
    this.messages.push(...added)
    for (const message of cut) this.#setAside(message)
    if (cut.length) this.emit("replaced", { removed: cut, added })
    else for (const message of added) this.emit("added", { message, own: true })
    return cut
  }

  /** A reply that is being written goes on without this page; its text so far is kept. */
  #setAside(message) {
    const stream = this.#streams.get(message)
    if (!stream?.run) return
    message.cursor = stream.cursor
    this.#aside.set(message.id, message)
    this.#streams.delete(message)
    stream.close()
  }

  #liveReplyOf(run) {
    const known = this.#aside.get(run.reply_id)
    this.#aside.delete(run.reply_id)
    const reply = known ?? Message.fromRun(run)
    reply.versions = run.versions ?? reply.versions
    return reply
  }

  async #follow(reply, { send = null, run = null, user = null, cut = [], edited = null }) {
    const stream = new RunStream({
      api: this.api,
      send,
      run,
      after: reply.cursor,
      onEvent: (event) => this.#take(reply, { send, user }, event),
      onLink: (link) => this.#linked(reply, link),
      ...this.streamOptions,
    })
    this.#streams.set(reply, stream)
    this.notice = null
    this.emit("state")
    const { error } = await stream.follow()
    this.#unfollow(reply, stream, error, { send, user, cut, edited })
  }

  #take(reply, asked, event) {
    const wasWriting = reply.phase === WRITING
    const textChanged = reply.apply(event)
    if (event.name === "start") this.#started(reply, asked, event.data)
    if (event.name === "notice") this.notice = noticeAfter(this.notice, event.data)
    if (event.name === "done") reply.leafAtEnd = event.data.active_leaf
    this.emit(textChanged ? "text" : "changed", { message: reply })
    if (reply.phase === WRITING && !wasWriting) this.emit("started", { message: reply })
    this.emit("state")
  }

  #started(reply, { send, user }, data) {
    this.#moves += 1
    // A send repeated after a reload may turn out to be in the thread already.
    if (user && this.messages.some((other) => other !== user && other.id === data.user_msg)) {
      this.outbox.drop(user.key)
      return void this.load()
    }
    if (user) {
      user.id = data.user_msg
      user.phase = SAVED
      this.outbox.drop(user.key)
      this.emit("changed", { message: user })
    }
    if (!this.id) {
      this.id = data.conversation
      this.emit("named")
    }
    if (this.leaving) return this.close()
    if (this.#stopWanted.delete(reply)) this.#stopRun(reply)
    // Its place among the versions is known by now, and so is what happened elsewhere meanwhile.
    const placed = reply.versions || user?.versions
    if ((send && placed) || this.#lookAgain) this.look()
  }

  #linked(reply, link) {
    if (reply !== this.liveReply) return
    this.link = link
    this.emit("state")
  }

  #unfollow(reply, stream, error, asked) {
    if (this.#streams.get(reply) !== stream) return // closed: someone else follows it now, or nobody
    this.#streams.delete(reply)
    this.#stopWanted.delete(reply)
    this.#moves += 1
    this.link = null
    if (error && !stream.run) return this.#refused(reply, error, asked)
    if (error) this.#lost(reply, error)
    this.liveRuns.delete(reply.id)
    reply.stopping = false
    this.ended = reply
    this.emit("changed", { message: reply })
    this.emit("ended", { message: reply })
    this.#afterEnd(reply)
    this.emit("state")
  }

  #afterEnd(reply) {
    if (this.#waiting?.after === reply) return this.#sendWaiting()
    if (!this.messages.includes(reply) || reply.error?.status) return
    const chosen = reply.mayReplace
    reply.mayReplace = null
    if (chosen && reply.leafAtEnd && reply.leafAtEnd !== reply.id) this.#makeLeaf(reply, chosen)
    else if (this.#lookAgain || this.#lookAtEnd) this.look()
  }

  #sendWaiting() {
    const { letter, user, reply } = this.#waiting
    this.#waiting = null
    this.#follow(reply, { send: letter, user })
  }

  /** The reader chose a reply while it was being written, when it could not be the active leaf. Now it can. */
  async #makeLeaf(reply, replaceable) {
    await chooseInsteadOf(this.api, this.id, reply.id, replaceable)
    this.look()
  }

  /** Nothing was written on the server: what was shown before is back, the text goes to where it was typed. */
  #refused(reply, error, { send, user, cut, edited }) {
    const words = { error, kept: edited ? "in its place" : user ? "below" : null, at: Date.now() }
    const lookAgain = this.#lookAgain || error.status === 409
    if (user) this.outbox.drop(send.key)
    this.#takeBack(reply, user, cut)
    this.refusal = words
    this.emit("refused", { text: user?.text ?? null, error, edited })
    this.emit("state")
    if (lookAgain) this.look()
  }

  #takeBack(reply, user, cut) {
    const at = this.messages.indexOf(user ?? reply)
    if (at < 0) return
    const removed = this.messages.splice(at)
    this.messages.push(...cut)
    if (cut.length) this.emit("replaced", { removed, added: cut })
    else for (const message of removed) this.emit("removed", { message })
    for (const message of cut) {
      if (!this.#aside.delete(message.id)) continue
      this.#follow(message, { run: message.run })
    }
  }

  /** The run is there, but it cannot be followed (signed out, deleted). */
  #lost(reply, error) {
    reply.phase = SAVED
    reply.error = { code: error.code ?? "lost", message: error.message, retryable: true, status: error.status }
  }

  #add(message, { own = true } = {}) {
    this.#moves += 1
    this.messages.push(message)
    this.emit("added", { message, own })
  }

  // --- versions ----------------------------------------------------------------------------------

  /**
   * Show the previous or the next version of a message, and what stands below it.
   * @param {"previous"|"next"} side
   * @returns {Promise<object|null>} the message that is shown instead; null where nothing changed
   */
  async showVersion(message, side) {
    const id = message.versions?.[side]
    if (!id || !this.free) return null
    this.switching = true
    this.failure = null
    this.emit("state")
    let shown = null
    try {
      shown = await this.#switchTo(message, id)
    } catch (error) {
      this.failure = { what: "switch", error }
    }
    this.switching = false
    this.emit("state")
    if (this.#lookAgain) this.look()
    return shown
  }

  async #switchTo(message, id) {
    if (!this.liveRuns.has(id) && !(await choose(this.api, this.id, id))) {
      const detail = await this.api.conversation(this.id)
      this.#takeDetail(detail)
      // It was being written, and has ended since the refusal: now it can be chosen.
      if (!this.liveRuns.has(id)) await this.api.setActiveLeaf(this.id, id)
    }
    const run = this.liveRuns.get(id)
    return run ? this.#showLive(message, run) : this.#showBranch(message)
  }

  /** A reply that is being written cannot be the active leaf; it is shown by following its run. */
  #showLive(message, run) {
    const leaves = this.#leavesBeside(run.parent_id).add(this.activeLeaf)
    const reply = this.#liveReplyOf(run)
    reply.mayReplace = leaves
    const at = this.messages.indexOf(message)
    this.#replaceFrom(at < 0 ? this.messages.length : at, [reply])
    this.#follow(reply, { run: run.id })
    return reply
  }

  async #showBranch(message) {
    const { detail, rows, joined } = await readUpTo(this.api, this.id, message.parentId)
    this.#takeDetail(detail)
    const at = this.messages.indexOf(message)
    if (!joined || at < 0) return this.#showAll(detail)
    const added = rows.map(Message.fromApi)
    this.#replaceFrom(at, added)
    this.#takeRows(detail.messages)
    if (at === 0 && message.parentId === null) this.#takePaging({ has_more_before: false })
    this.#resumeNewest()
    return added[0] ?? null
  }

  #showAll(detail) {
    this.#show(detail)
    this.emit("reset")
    return null
  }

  /** @param {"up"|"down"|null} rating null takes it back @returns {Promise<boolean>} whether it was saved */
  rate(reply, rating, reason = "") {
    return rate(this, reply, rating, reason)
  }

  // --- stopping, leaving, coming back ------------------------------------------------------------

  get stopping() {
    return this.liveReply?.stopping ?? false
  }

  /** A send that waits for the end of the stopped answer above it. */
  get waitsForStop() {
    return this.#waiting !== null
  }

  async stop() {
    if (this.#waiting) return this.#cancelWaiting(null)
    const reply = this.liveReply
    if (!reply || reply.stopping) return
    reply.stopping = true
    this.emit("state")
    if (reply.run) await this.#stopRun(reply)
    else this.#stopWanted.add(reply)
  }

  async #stopRun(reply) {
    try {
      await this.api.stopRun(reply.run)
    } catch (error) {
      reply.stopping = false
      this.notice = { code: "stop_failed", text: error.message }
      if (this.#waiting?.after === reply) this.#cancelWaiting(error)
      this.emit("state")
    }
  }

  /** Before anything of it has left this page, a waiting send can be taken back. */
  #cancelWaiting(error) {
    const { letter, user, reply } = this.#waiting
    this.#waiting = null
    this.outbox.drop(letter.key)
    this.#takeBack(reply, user, [])
    this.emit("refused", { text: user.text, error, edited: null })
    this.emit("state")
  }

  /** Stop following; the server writes on. A send that is not answered yet is seen through first. */
  leave() {
    this.leaving = this.unanswered
    if (!this.leaving) this.close()
  }

  comeBack() {
    this.leaving = false
  }

  close() {
    const streams = [...this.#streams.values()]
    this.#streams.clear()
    this.#aside.clear()
    for (const stream of streams) stream.close()
  }

  wakeStreams() {
    for (const stream of this.#streams.values()) stream.wake()
  }

  refreshStreams() {
    for (const stream of this.#streams.values()) stream.refresh()
  }
}
