/** The sidebar's list: newest activity first, page by page. Tells `changed`. */
import { Emitter } from "#js/models/emitter.js"

// What `listConversations` gives at once.
const FIRST_PAGE = 30
// Conversations below the first page that one refresh reads; the rest is read when it is opened.
const MAX_READ = 10

export class ConversationList extends Emitter {
  #gone = new Set() // deleted here: a page that was under way must not bring them back

  constructor({ api }) {
    super()
    this.api = api
    this.items = []
    this.nextCursor = null
    this.status = "loading" // "loading" | "ready" | "failed"
    this.current = null
  }

  /** The first page again; what was loaded below it stays. `ids`: conversations that are said to have changed. */
  async refresh(ids = []) {
    for (const id of ids) this.#gone.delete(id) // perhaps another device has brought it back
    try {
      const page = await this.api.listConversations()
      const first = this.items.length === 0 || this.status === "failed"
      this.items = merge(this.#listed(page.items), first ? [] : below(this.items, page))
      if (first) this.nextCursor = page.next_cursor
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

  async more() {
    if (!this.nextCursor || this.loadingMore) return
    this.loadingMore = true
    try {
      const page = await this.api.listConversations({ cursor: this.nextCursor })
      this.items = merge(this.items, this.#listed(page.items))
      this.nextCursor = page.next_cursor
    } catch {
      // The button stays; asking again is the remedy.
    } finally {
      this.loadingMore = false
    }
    this.emit("changed")
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

/** What may still stand below a first page that was read again: what should be in it and is not, is gone. */
function below(items, page) {
  if (!page.next_cursor) return []
  const last = page.items.at(-1)
  return items.filter((item) => isBefore(last, item))
}

/** `first` before `rest`, each conversation once, newest activity first. */
function merge(first, rest) {
  const known = new Set(first.map((item) => item.id))
  return [...first, ...rest.filter((item) => !known.has(item.id))]
}

const DAY_MS = 24 * 60 * 60 * 1000

/** @returns {{label: string, items: object[]}[]} in the order of the list, by the reader's own days */
export function byDay(items, now = new Date()) {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime()
  const groups = []
  for (const item of items) {
    const label = dayLabel(Date.parse(item.last_activity), midnight)
    if (groups.at(-1)?.label !== label) groups.push({ label, items: [] })
    groups.at(-1).items.push(item)
  }
  return groups
}

function dayLabel(time, midnight) {
  if (time >= midnight) return "Today"
  if (time >= midnight - DAY_MS) return "Yesterday"
  return time >= midnight - 6 * DAY_MS ? "This week" : "Earlier"
}
