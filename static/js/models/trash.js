/**
 * Deleted conversations that can be brought back from the page for a while. The list loses them at once; the
 * server is asked meanwhile. Tells `changed`, `restored` {item}.
 */
import { Emitter } from "#js/models/emitter.js"

export const OFFERED_MS = 20_000

export class Trash extends Emitter {
  #entries = [] // oldest first: {item, state, error, timer, deletion}
  #held = false
  #taken = new Set() // ids of what was deleted from this page and has not come back

  constructor({ api, list, timers = globalThis }) {
    super()
    Object.assign(this, { api, list, timers })
  }

  /** The newest: {item, state: "deleting"|"deleted"|"failed"|"restoring"|"lost", error}, or null. */
  get offer() {
    return this.#entries.at(-1) ?? null
  }

  /** Whether this conversation was deleted from here, and is not in the list again. */
  took(id) {
    return this.#taken.has(id) && !this.list.items.some((item) => item.id === id)
  }

  remove(item) {
    this.#taken.add(item.id)
    const entry = { item, state: "deleting", error: null, timer: null, deletion: null }
    this.list.take(item.id)
    this.#entries.push(entry)
    entry.deletion = this.#delete(entry)
    this.emit("changed")
    return entry.deletion
  }

  async #delete(entry) {
    try {
      await this.api.deleteConversation(entry.item.id)
      if (entry.state === "deleting") entry.state = "deleted"
    } catch (error) {
      if (error.status !== 404) return this.#failed(entry, error) // 404: another device was faster
      entry.state = "deleted"
    }
    this.#expireLater(entry)
    this.emit("changed")
  }

  /** It is still there, and in the list again. */
  #failed(entry, error) {
    Object.assign(entry, { state: "failed", error })
    this.#taken.delete(entry.item.id)
    this.list.put(entry.item)
    this.#expireLater(entry)
    this.emit("changed")
  }

  /** Bring the newest one back. A delete that is still under way is waited for: the two must not cross. */
  async undo() {
    const entry = this.offer
    if (!entry || !["deleting", "deleted", "lost"].includes(entry.state)) return
    entry.state = "restoring"
    this.timers.clearTimeout(entry.timer)
    this.emit("changed")
    await entry.deletion
    if (entry.state === "failed") return this.#back(entry) // it had never gone
    await this.#restore(entry)
  }

  async #restore(entry) {
    try {
      await this.api.restoreConversation(entry.item.id)
    } catch (error) {
      Object.assign(entry, { state: "lost", error })
      return this.emit("changed")
    }
    this.#back(entry)
  }

  #back(entry) {
    this.#forget(entry)
    this.#taken.delete(entry.item.id)
    this.list.put(entry.item)
    this.emit("restored", { item: entry.item })
  }

  /** Try a failed delete again. */
  again() {
    const entry = this.offer
    if (entry?.state !== "failed") return
    this.#forget(entry)
    this.remove(entry.item)
  }

  dismiss() {
    if (this.offer) this.#forget(this.offer)
  }

  /** While somebody reads or reaches for the offer, it stays. */
  hold(held) {
    if (held === this.#held) return
    this.#held = held
    for (const entry of this.#entries) this.timers.clearTimeout(entry.timer)
    if (!held) for (const entry of this.#entries) this.#expireLater(entry)
  }

  #expireLater(entry) {
    if (this.#held || !["deleted", "failed"].includes(entry.state)) return
    this.timers.clearTimeout(entry.timer)
    entry.timer = this.timers.setTimeout(() => this.#forget(entry), OFFERED_MS)
  }

  #forget(entry) {
    this.timers.clearTimeout(entry.timer)
    this.#entries = this.#entries.filter((other) => other !== entry)
    this.emit("changed")
  }
}
