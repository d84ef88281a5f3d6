/** The sidebar's list: newest activity first, page by page. Tells `changed`. */
import { Emitter } from "#js/models/emitter.js"

export class ConversationList extends Emitter {
  constructor({ api }) {
    super()
    this.api = api
    this.items = []
    this.nextCursor = null
    this.status = "loading" // "loading" | "ready" | "failed"
    this.current = null
  }

  /** The first page again; what was loaded below it stays. */
  async refresh() {
    try {
      const page = await this.api.listConversations()
      const first = this.items.length === 0 || this.status === "failed"
      this.items = merge(page.items, first ? [] : this.items)
      if (first) this.nextCursor = page.next_cursor
      this.status = "ready"
    } catch {
      if (this.status === "loading") this.status = "failed"
    }
    this.emit("changed")
  }

  async more() {
    if (!this.nextCursor || this.loadingMore) return
    this.loadingMore = true
    try {
      const page = await this.api.listConversations({ cursor: this.nextCursor })
      this.items = merge(this.items, page.items)
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
