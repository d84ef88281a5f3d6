/** The sidebar's list: newest activity first, page by page. Tells `changed`. */
import { Emitter } from "#js/models/emitter.js"

// What `listConversations` gives at once.
const FIRST_PAGE = 30
// Who goes on down gets more at a time.
const NEXT_PAGE = 100
// Conversations below the first page that one refresh reads; the rest is read when it is opened.
const MAX_READ = 10

export class ConversationList extends Emitter {
  #reading = null // the page that is under way
  #gone = new Set() // deleted here: a page that was under way must not bring them back

  constructor({ api }) {
    super()
    this.api = api
    this.items = []
    this.nextCursor = null
    this.status = "loading" // "loading" | "ready" | "failed"
    this.current = null
    this.moreFailed = false
  }

  /** A further page is under way. */
  get loadingMore() {
    return this.#reading !== null
  }

  /** The whole list again, for who was told that it could not be loaded. */
  retry() {
    this.status = "loading"
    this.emit("changed")
    return this.refresh()
  }

  /** The first page again; what was loaded below it stays. `ids`: conversations that are said to have changed. */
  async refresh(ids = []) {
    for (const id of ids) this.#gone.delete(id) // perhaps another device has brought it back
    try {
      const page = await this.api.listConversations()
      const joins = this.status !== "failed" && meets(page, this.items)
      this.items = merge(this.#listed(page.items), joins ? below(this.items, page) : [])
      if (!joins) this.nextCursor = page.next_cursor
      await this.#readBelow(ids)
      this.status = "ready"
    } catch {
      if (this.status === "loading") this.status = "failed"
    }
    this.emit("changed")
  }

  /** What has changed further down than the first page is read one by one. */
  async #readBelow(ids) {
    const known = new Set(ids)
    const below = this.items.slice(FIRST_PAGE).filter((item) => known.has(item.id))
    const absent = ids.filter((id) => !this.items.some((item) => item.id === id))
    for (const id of [...below.map((item) => item.id), ...absent].slice(0, MAX_READ)) await this.#read(id)
  }

  async #read(id) {
    const found = await this.api.conversation(id, { limit: 1 }).catch((error) => error)
    if (found.status === 404) this.items = this.items.filter((item) => item.id !== id)
    else if (found.id) this.#place(found)
  }

  /** Gone: at once, whatever a page that is under way still says. */
  take(id) {
    this.#gone.add(id)
    this.items = this.items.filter((item) => item.id !== id)
    this.emit("changed")
  }

  /** (Back) in its place, if that is among what is loaded. */
  put(item) {
    this.#gone.delete(item.id)
    this.#place(item)
    this.emit("changed")
  }

  #place(item) {
    if (this.#gone.has(item.id)) return
    const rest = this.items.filter((other) => other.id !== item.id)
    const at = rest.findIndex((other) => isBefore(item, other))
    if (at < 0 && this.nextCursor) this.items = rest
    else this.items = at < 0 ? [...rest, item] : rest.toSpliced(at, 0, item)
  }

  /** Give it another title. Rejects with what the server says; nothing has changed then. */
  async rename(id, title) {
    const renamed = await this.api.rename(id, title)
    this.items = this.items.map((item) => (item.id === id ? { ...item, title: renamed.title } : item))
    this.emit("changed")
    return renamed.title
  }

  #listed(items) {
    return items.filter((item) => !this.#gone.has(item.id))
  }

  /** The next page, where there is one; a failure is in `moreFailed`. One at a time: who asks meanwhile gets the same. */
  async more() {
    if (!this.nextCursor) return
    if (!this.#reading) {
      this.#reading = this.#readMore()
      this.emit("changed")
    }
    await this.#reading
  }

  async #readMore() {
    this.moreFailed = false
    const cursor = this.nextCursor
    try {
      const page = await this.api.listConversations({ cursor, limit: NEXT_PAGE })
      if (cursor === this.nextCursor) this.#append(page) // else the list goes on from elsewhere by now
    } catch {
      this.moreFailed = true
    }
    this.#reading = null
    this.emit("changed")
  }

  #append(page) {
    this.items = merge(this.items, this.#listed(page.items))
    this.nextCursor = page.next_cursor
  }

  mark(id) {
    this.current = id
    this.emit("changed")
  }
}

/** Newest activity first; the larger id where two have the same. */
function isBefore(one, other) {
  if (one.last_activity !== other.last_activity) return one.last_activity > other.last_activity
  return one.id > other.id
}

/**
 * Whether a first page that was read again reaches down to what was listed. If all of it is newer, more has
 * changed than a page holds: what lies between would never be listed, so the list begins anew.
 */
function meets(page, items) {
  return items.length > 0 && Boolean(page.next_cursor) && !isBefore(page.items.at(-1), items[0])
}

/** What may still stand below such a page: what should be in it and is not, is gone. */
function below(items, page) {
  const last = page.items.at(-1)
  return items.filter((item) => isBefore(last, item))
}

/** `first` before `rest`, each conversation once, newest activity first. */
function merge(first, rest) {
  const known = new Set(first.map((item) => item.id))
  return [...first, ...rest.filter((item) => !known.has(item.id))]
}
