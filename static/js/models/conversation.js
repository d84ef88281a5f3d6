/**
 * The thread that is open: saved messages, the one being sent, the reply being written.
 *
 * Changes it tells: `reset` (draw everything), `added` {message}, `prepended` {messages}, `text` {message},
 * `changed` {message}, `removed` {message}, `earlierFailed`, `named` (it got its id), `state` (what is waited for), `started`, `ended` {message},
 * `refused` {text, error}.
 */
import { Emitter } from "#js/models/emitter.js"
import { Message, QUEUED, SAVED, SENDING } from "#js/models/message.js"
import { RunStream } from "#js/models/run_stream.js"

const NOT_FOUND = new Set([400, 404])

export class Conversation extends Emitter {
  #streams = new Map() // reply → RunStream
  #stopWanted = new Set() // replies to stop as soon as their run has a name

  /** @param {object} options {api, id|null, outbox, newKey, streamOptions} */
  constructor({ api, id = null, outbox, newKey = randomKey, streamOptions = {} }) {
    super()
    Object.assign(this, { api, id, outbox, newKey, streamOptions })
    this.title = ""
    this.messages = []
    this.before = null
    this.hasMoreBefore = false
    this.status = id ? "loading" : "ready" // "loading" | "ready" | "missing" | "failed"
    this.link = null // the live stream's connection, as RunStream tells it
    this.notice = null // the last notice of the live reply
    this.loadError = null
    this.earlierError = null // why the last try to load earlier messages failed
    this.ended = null // the reply that ended last while this page was looking
    this.refusal = null // {error} of the last send, when nothing of it was kept on the server
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
    return [...this.#streams.values()].some((stream) => stream.send && !stream.run)
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
   * Look again after having been hidden or cut off. A reply that is being followed says everything
   * itself; else the thread is compared and drawn again only if another device has changed it.
   */
  async look() {
    if (this.liveReply || !this.id || this.status === "loading") return this.refreshStreams()
    const known = this.messages.map((message) => message.id).join()
    const detail = await this.api.conversation(this.id).catch(() => null)
    if (!detail || this.liveReply) return
    if (this.status === "ready" && !this.#differs(detail, known)) return
    this.#show(detail)
    this.emit("reset")
    this.emit("state")
  }

  #differs(detail, known) {
    const shown = detail.messages.map((row) => row.id).join()
    return detail.live_runs.length > 0 || !known.endsWith(shown)
  }

  /** Never rejects: a failure is told, and kept until the next page that comes. */
  async loadEarlier() {
    if (!this.hasMoreBefore || this.loadingEarlier) return
    this.loadingEarlier = true
    const page = await this.api.conversation(this.id, { before: this.before }).catch((error) => this.#earlierFailed(error))
    this.loadingEarlier = false
    if (page) this.#prepend(page)
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
    return null
  }

  #show(detail) {
    this.close()
    this.status = "ready"
    this.loadError = null
    this.title = detail.title ?? ""
    this.messages = detail.messages.map(Message.fromApi)
    this.#takePaging(detail)
    const leaf = this.leaf
    for (const run of detail.live_runs) if (run.parent_id === leaf?.id) this.#resume(run)
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

  /** @returns {boolean} false where a reply is still being written */
  sendText(text) {
    if (this.liveReply) return false
    const parent = this.leaf?.id ?? null
    const body = { content: text, ...(parent ? { parent_id: parent } : {}) }
    return this.#post({ conversation: this.id, body, key: this.newKey() })
  }

  /** Send again what a reload cut off before the server had answered; the key makes it the same send. */
  sendAgain(letter) {
    return this.#post(letter)
  }

  #post(letter) {
    this.refusal = this.ended = null
    this.outbox.put(letter)
    const user = new Message({ key: letter.key, role: "user", text: letter.body.content, phase: SENDING })
    const reply = new Message({ key: `${letter.key}-reply`, role: "assistant", phase: SENDING })
    this.#add(user)
    this.#add(reply)
    this.#follow(reply, { send: letter, user })
    return true
  }

  #resume(run) {
    const reply = new Message({
      key: run.reply_id,
      id: run.reply_id,
      role: "assistant",
      phase: QUEUED,
      run: run.id,
      model: run.model,
    })
    this.messages.push(reply)
    this.#follow(reply, { run: run.id })
  }

  async #follow(reply, { send = null, run = null, user = null }) {
    const stream = new RunStream({
      api: this.api,
      send,
      run,
      onEvent: (event) => this.#take(reply, user, event),
      onLink: (link) => this.#linked(reply, link),
      ...this.streamOptions,
    })
    this.#streams.set(reply, stream)
    this.notice = null
    this.emit("state")
    const { error } = await stream.follow()
    this.#unfollow(reply, user, stream, error)
  }

  #take(reply, user, event) {
    const hadText = reply.text !== ""
    const textChanged = reply.apply(event)
    if (event.name === "start") this.#started(reply, user, event.data)
    if (event.name === "notice") this.notice = event.data
    if (textChanged) this.emit("text", { message: reply })
    else this.emit("changed", { message: reply })
    if (textChanged && !hadText) this.emit("started", { message: reply })
    this.emit("state")
  }

  #started(reply, user, data) {
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
    if (this.leaving) this.close()
    else if (this.#stopWanted.delete(reply)) this.#stopRun(reply)
  }

  #linked(reply, link) {
    this.link = link
    this.emit("state")
  }

  #unfollow(reply, user, stream, error) {
    if (this.#streams.get(reply) !== stream) return // closed: someone else follows it now
    this.#streams.delete(reply)
    this.#stopWanted.delete(reply)
    this.link = null
    if (error && !stream.run) return this.#refused(reply, user, error)
    if (error) this.#lost(reply, error)
    this.ended = reply
    this.emit("ended", { message: reply })
    this.emit("state")
  }

  /** Nothing was written on the server: the message goes back to the composer. */
  #refused(reply, user, error) {
    this.outbox.drop(user.key)
    this.#remove(reply)
    this.#remove(user)
    this.refusal = { error }
    this.emit("refused", { text: user.text, error })
    this.emit("state")
  }

  /** The run is there, but it cannot be followed (signed out, deleted). */
  #lost(reply, error) {
    reply.phase = SAVED
    reply.error = { code: error.code ?? "lost", message: error.message, retryable: true, status: error.status }
    this.emit("changed", { message: reply })
  }

  #add(message) {
    this.messages.push(message)
    this.emit("added", { message })
  }

  #remove(message) {
    this.messages = this.messages.filter((other) => other !== message)
    this.emit("removed", { message })
  }

  // --- stopping, leaving, coming back ------------------------------------------------------------

  get stopping() {
    return this.liveReply?.stopping ?? false
  }

  async stop() {
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
      this.emit("state")
    }
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
    for (const stream of streams) stream.close()
  }

  wakeStreams() {
    for (const stream of this.#streams.values()) stream.wake()
  }

  refreshStreams() {
    for (const stream of this.#streams.values()) stream.refresh()
  }
}

/** An Idempotency-Key. (`crypto.randomUUID` is missing on a page without https.) */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")
}
