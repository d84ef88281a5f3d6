/**
 * The one message that waits for the end of an answer. It is kept in this browser, so that it survives a
 * reload; where two tabs show the conversation, the first that sees the end sends it. That of a conversation
 * without an id is kept in its tab: other tabs have new conversations of their own.
 *
 * Tells `changed` (show it anew) and `held` (it was not sent, since the answer did not end by itself).
 */
import { Emitter } from "#js/models/emitter.js"
import { randomKey } from "#js/models/letters.js"
import { byteLength } from "#js/models/size.js"
import { nextKey } from "#js/models/storage.js"

// Whoever comes back later than that is asked, lest a message goes out that nobody remembers.
export const MAX_AGE_MS = 15 * 60 * 1000

const ENDED_BY_ITSELF = new Set(["stop", "length"])

export class NextMessage extends Emitter {
  #conversation = null
  #next = null // {text, model, key, after, at, held}
  #seen = null // the live reply that was seen last

  /** @param {object} options {storage: of the browser, tabStorage: of this tab, user, newKey, now} */
  constructor({ storage, tabStorage, user, newKey = randomKey, now = Date.now }) {
    super()
    Object.assign(this, { storage, tabStorage, user, newKey, now })
  }

  /** What waits: {text, held}; null where nothing does. */
  get shown() {
    return this.#next && { text: this.#next.text, held: this.#next.held }
  }

  /** Another conversation is shown; null for a new one. */
  open(conversation) {
    this.#conversation = conversation
    this.#read()
  }

  /** The new conversation has got its id. */
  rename(conversation) {
    this.#write(null)
    this.#conversation = conversation
    if (this.#next) this.#write(this.#next)
  }

  /**
   * The new conversation is left before it has an id.
   * @returns {(id: string|null) => string} to be called with its id, or with null where it got none; the text
   */
  leaveUnnamed() {
    const left = this.#next
    this.#set(null)
    return (id) => {
      if (left && id) this.#write(left, id)
      return left?.text ?? ""
    }
  }

  /** Another tab has changed what this browser keeps. @param {string|null} key null: everything */
  changedElsewhere(key) {
    if (key === null || key === nextKey(this.user, this.#conversation)) this.#read()
  }

  /**
   * Keep `text` for the end of `live`. What waits already stays before it.
   * @returns {boolean} false where both together would be longer than any message
   */
  put(text, { live, model = null, maxBytes = Infinity }) {
    if (!this.#isStillHere()) this.#read()
    const before = this.#next?.text
    const all = before ? `${before}\n\n${text}` : text
    if (byteLength(all) > maxBytes) return false
    this.#set({ text: all, model, key: this.newKey(), after: live?.id ?? null, at: this.now(), held: false })
    return true
  }

  /** It goes back to where it was typed, or away. @returns {string} its text */
  drop() {
    if (!this.#isStillHere()) this.#read()
    const text = this.#next?.text ?? ""
    this.#set(null)
    return text
  }

  /** Send it after all: at once, or, where an answer is being written, at its end. */
  release(conversation) {
    const live = conversation.liveReply
    if (live && this.#next) this.#change({ ...this.#next, held: false, after: live.id, at: this.now() })
    else this.#send(conversation)
  }

  /** The conversation's state has changed: perhaps the answer has ended that this waits for. */
  consider(conversation) {
    if (!this.#next || this.#next.held || conversation.id !== this.#conversation) return
    const live = conversation.liveReply
    if (live) return this.#waitFor(live)
    // `done` has come, but the conversation has not seen to its end yet.
    const ending = this.#seen !== null && conversation.leaf === this.#seen && conversation.ended !== this.#seen
    if (ending || !conversation.free) return
    if (this.#mayGo(conversation.leaf)) this.#send(conversation)
    else this.#hold()
  }

  #waitFor(live) {
    const { id } = live
    this.#seen = live
    if (id && id !== this.#next.after) this.#change({ ...this.#next, after: id })
  }

  #mayGo(leaf) {
    const { after, at } = this.#next
    const young = this.now() - at < MAX_AGE_MS
    return young && leaf?.id === after && ENDED_BY_ITSELF.has(leaf.finish) && !leaf.error
  }

  #hold() {
    if (this.#change({ ...this.#next, held: true })) this.emit("held")
  }

  /** Written only over itself: another tab may have sent it, and it must not come back. @returns {boolean} */
  #change(next) {
    const here = this.#isStillHere()
    if (here) this.#set(next)
    else this.#read()
    return here
  }

  /** Taken out of the storage first: who finds it gone does not send it. The key makes a twin the same send. */
  #send(conversation) {
    if (!this.#isStillHere()) return this.#read()
    const next = this.#next
    this.#set(null)
    const sent = conversation.sendText(next.text, { model: next.model, key: next.key })
    if (!sent) this.#set({ ...next, held: true })
  }

  #isStillHere() {
    const stored = this.#stored()
    return stored === undefined || stored?.key === this.#next?.key
  }

  #set(next) {
    this.#next = next
    this.#write(next)
    this.emit("changed")
  }

  #read() {
    const stored = this.#stored()
    if (stored !== undefined) this.#next = stored
    this.emit("changed")
  }

  /** @returns {object|null|undefined} null: nothing waits; undefined: this browser keeps nothing */
  #stored() {
    try {
      const next = JSON.parse(this.#storageOf(this.#conversation).getItem(nextKey(this.user, this.#conversation)))
      return typeof next?.text === "string" && next.text && next.key ? next : null
    } catch (error) {
      return error instanceof SyntaxError ? null : undefined
    }
  }

  #write(next, conversation = this.#conversation) {
    const key = nextKey(this.user, conversation)
    try {
      if (next) this.#storageOf(conversation).setItem(key, JSON.stringify(next))
      else this.#storageOf(conversation).removeItem(key)
    } catch {
      // Full or switched off: then it lives as long as the page.
    }
  }

  #storageOf(conversation) {
    return conversation === null ? this.tabStorage : this.storage
  }
}
