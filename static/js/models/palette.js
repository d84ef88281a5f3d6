/**
 * The command palette: what it offers for what is typed, and which of it is chosen. Tells `changed`.
 *
 * Titles are sealed where they are stored, so no server can search them: they are searched here, among what
 * is loaded and then page by page further down, so far that nobody waits for long.
 */
import { Emitter } from "#js/models/emitter.js"
import { plural, t } from "#js/models/i18n.js"
import { titleText } from "#js/models/words.js"

export const MAX_FOUND = 20
export const MAX_RECENT = 6
// 2,000 conversations for as long as the palette is open; whoever has more asks for the next ones.
export const MAX_PAGES = 20
// So long nothing more is typed before older pages are asked for.
export const REST_MS = 200
// One letter is in nearly every title: older pages would be read for nothing.
const MIN_LETTERS = 2

export class Palette extends Emitter {
  #turn = 0 // counts what is typed: an older search gives way
  #pages = 0
  #timer = null
  #offered = null // the list's items when something was last offered
  #matches = { items: null, query: "", found: [] } // the last search

  /** @param {object} options {list, commands() → as `commandsFor` gives them, timers: a test's own} */
  constructor({ list, commands, timers = globalThis }) {
    super()
    Object.assign(this, { list, commands, timers, isOpen: false, query: "", groups: [], looking: false })
    this.active = null // the chosen option's id
    list.on(() => this.isOpen && this.#listChanged())
  }

  open() {
    this.isOpen = true
    this.#pages = 0
    this.type("")
  }

  close() {
    this.isOpen = false
    this.#rest()
  }

  type(query) {
    this.query = query
    this.active = null
    this.#rest()
    this.looking = this.#wantsMore() && this.#pages < MAX_PAGES && [...query.trim()].length >= MIN_LETTERS
    if (this.looking) this.#timer = this.timers.setTimeout(() => this.#lookFurther(), REST_MS)
    this.#offer()
  }

  /** The next pages, after the search has stopped by itself or by a failure. */
  lookOn() {
    this.#rest()
    this.#pages = 0
    this.looking = true
    this.#offer()
    this.#lookFurther()
  }

  get options() {
    return this.groups.flatMap((group) => group.options)
  }

  get chosen() {
    return this.options.find((option) => option.id === this.active) ?? null
  }

  /** Choose another option: a step on or back, around the ends. */
  move(step) {
    const { options } = this
    if (!options.length) return
    const at = options.findIndex((option) => option.id === this.active)
    this.active = options.at((at + step) % options.length).id
    this.emit("changed")
  }

  moveToEnd(end) {
    this.active = this.options.at(end === "first" ? 0 : -1)?.id ?? null
    this.emit("changed")
  }

  /** What is said and shown of the search. */
  get status() {
    if (this.looking) return t("Looking through older conversations")
    const found = this.options.filter((option) => option.kind !== "look").length
    if (!this.query.trim()) return ""
    return found ? plural("{count} result", "{count} results", found) : t("Nothing was found.")
  }

  /** A search that is under way, or about to be, is given up. */
  #rest() {
    this.#turn += 1
    this.looking = false
    this.timers.clearTimeout(this.#timer)
  }

  async #lookFurther() {
    const turn = this.#turn
    while (this.#wantsMore() && this.#pages < MAX_PAGES) {
      this.#pages += 1
      await this.list.more()
      if (turn !== this.#turn) return
      if (this.list.moreFailed) break
    }
    this.looking = false
    this.#offer()
  }

  #wantsMore() {
    return Boolean(this.query.trim()) && this.list.nextCursor !== null && this.#found().length < MAX_FOUND
  }

  /** Once for each query and each state of the list. */
  #found() {
    const { items } = this.list
    if (this.#matches.items !== items || this.#matches.query !== this.query) {
      this.#matches = { items, query: this.query, found: search(items, this.query, titleText) }
    }
    return this.#matches.found
  }

  /** The list also tells that a page is under way, which changes nothing here. */
  #listChanged() {
    if (this.#offered !== this.list.items) this.#offer()
  }

  #offer() {
    this.#offered = this.list.items
    const groups = this.query.trim() ? this.#results() : this.#start()
    this.groups = groups.filter((group) => group.options.length)
    if (!this.chosen) this.active = this.options[0]?.id ?? null
    this.emit("changed")
  }

  /** Before anything is typed. */
  #start() {
    const recent = this.list.items.filter((item) => item.id !== this.list.current).slice(0, MAX_RECENT)
    return [
      { key: "recent", title: t("Recent conversations"), options: recent.map(conversationOption) },
      { key: "commands", title: t("Commands"), options: this.commands().map(commandOption) },
    ]
  }

  #results() {
    const commands = search(this.commands(), this.query, (one) => `${one.title} ${one.words}`, { starts: true })
    const found = this.#found().slice(0, MAX_FOUND)
    return [
      { key: "commands", title: t("Commands"), options: commands.map(commandOption) },
      { key: "found", title: t("Conversations"), options: found.map(conversationOption) },
      { key: "look", title: "", options: this.#lookOption() },
    ]
  }

  #lookOption() {
    if (this.looking || !this.#wantsMore()) return []
    const title = this.list.moreFailed ? t("Older conversations could not be loaded. Try again") : t("Look through still older conversations")
    return [{ id: "option-look", kind: "look", icon: "again", title }]
  }
}

function conversationOption(item) {
  return { id: `option-${item.id}`, kind: "conversation", icon: "chat", title: titleText(item), conversation: item.id, at: item.last_activity }
}

function commandOption({ id, icon, title }) {
  return { id: `option-${id}`, kind: "command", icon, title, command: id }
}

/**
 * Those of `items` whose text has every word of `query`: first where it begins with the query, then where its
 * words begin so, then the rest; each in the order they came.
 * @param {{starts?: boolean}} options `starts`: words must begin so
 */
export function search(items, query, textOf, { starts = false } = {}) {
  const words = folded(query).split(/\s+/u).filter(Boolean)
  const ranks = [[], [], []]
  for (const item of items) ranks[rankOf(foldedText(item, textOf), words)]?.push(item)
  return starts ? [...ranks[0], ...ranks[1]] : ranks.flat()
}

function rankOf(text, words) {
  if (!words.every((word) => text.includes(word))) return -1
  if (text.startsWith(words.join(" "))) return 0
  return words.every((word) => beginsWord(text, word)) ? 1 : 2
}

function beginsWord(text, word) {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (at === 0 || !/[\p{L}\p{N}\p{M}]/u.test(text[at - 1])) return true
  }
  return false
}

const foldedTexts = new WeakMap() // item → [text, folded]

function foldedText(item, textOf) {
  const text = textOf(item)
  const known = foldedTexts.get(item)
  if (known?.[0] === text) return known[1]
  const found = folded(text)
  foldedTexts.set(item, [text, found])
  return found
}

// The accents of Latin, Greek and Cyrillic, and Arabic's vowel signs. Not the vowels of Hindi: they are letters.
const ACCENTS = /[\u0300-\u036f\u064b-\u065f\u0670]/gu

/** Without case and accents. */
export function folded(text) {
  return text.normalize("NFKD").replace(ACCENTS, "").toLowerCase().trim()
}
