/**
 * What the page keeps in the browser. Storage may be full, switched off or broken by hand: then the page
 * works without, and nothing here throws.
 */

// Room for two messages as long as the server takes: one that was refused, and one that waited for its answer.
// Far above that a text is a paste, and would fill the browser's 5 MB.
export const MAX_DRAFT_CHARS = 260 * 1024

const DRAFTS = "hearth:draft:"
const OUTBOX = "hearth:outbox:"
const SINGLE_KEYS = "hearth:single-keys"
const NEXT = "hearth:next:"

/**
 * What others left here is not for this person's eyes, nor for the developer tools of whoever sits here:
 * the drafts, waiting messages and unanswered sends of everybody but `user` are removed.
 */
export function forgetOthers({ storages, user }) {
  const own = (key) => key.startsWith(draftPrefix(user)) || key.startsWith(nextKey(user, "")) || key === OUTBOX + user
  const text = (key) => [DRAFTS, OUTBOX, NEXT].some((prefix) => key.startsWith(prefix))
  for (const storage of storages) {
    for (const key of keysOf(storage)) if (text(key) && !own(key)) attempt(() => storage.removeItem(key))
  }
}

/** Drafts per user and conversation; they survive reloads and this person's sign-outs. */
export class Drafts {
  constructor({ storage, user }) {
    this.storage = storage
    this.prefix = draftPrefix(user)
  }

  get(conversation) {
    return attempt(() => this.storage.getItem(this.keyOf(conversation))) ?? ""
  }

  /** @returns {boolean} whether it is kept: false where it is too long, or the storage is full or off */
  put(conversation, text) {
    if (text.length > MAX_DRAFT_CHARS) return false
    const key = this.keyOf(conversation)
    return attempt(() => (text ? this.storage.setItem(key, text) : this.storage.removeItem(key), true)) ?? false
  }

  /** Put `text` before what is kept there already. @returns {boolean} whether it is kept */
  putBefore(conversation, text) {
    return this.put(conversation, joined(text, this.get(conversation)))
  }

  /** Its name in the storage, as another tab tells it. */
  keyOf(conversation) {
    return this.prefix + (conversation ?? "new")
  }
}

/**
 * Sends that the server has not answered yet. Kept per tab, so that a reload in that moment sends again
 * with the same key, and no other tab does.
 */
export class Outbox {
  constructor({ storage, user, now = Date.now }) {
    this.storage = storage
    this.key = OUTBOX + user
    this.now = now
  }

  put(letter) {
    const letters = this.#all().filter((other) => other.key !== letter.key)
    this.#save([...letters, { ...letter, at: this.now() }])
  }

  drop(key) {
    this.#save(this.#all().filter((letter) => letter.key !== key))
  }

  /** The unanswered send of this conversation (null: of a new one), if it is young enough to repeat. */
  find(conversation) {
    return this.findAll(conversation)[0] ?? null
  }

  findAll(conversation) {
    const young = (letter) => this.now() - letter.at < MAX_LETTER_AGE_MS
    return this.#all().filter((letter) => (letter.conversation ?? null) === conversation && young(letter))
  }

  #all() {
    const letters = attempt(() => JSON.parse(this.storage.getItem(this.key)))
    return Array.isArray(letters) ? letters.filter((letter) => letter?.key && letter.body?.content) : []
  }

  #save(letters) {
    if (letters.length) attempt(() => this.storage.setItem(this.key, JSON.stringify(letters)))
    else attempt(() => this.storage.removeItem(this.key))
  }
}

/** Whether shortcuts of a single character are on. Kept per browser: it belongs to a keyboard and who speaks near it. */
export class KeySettings {
  constructor({ storage }) {
    this.storage = storage
  }

  get single() {
    return attempt(() => this.storage.getItem(SINGLE_KEYS)) !== "off"
  }

  set single(on) {
    if (on) attempt(() => this.storage.removeItem(SINGLE_KEYS))
    else attempt(() => this.storage.setItem(SINGLE_KEYS, "off"))
  }
}

// Well inside the server's memory of a key (24 h): an older one could become a second message.
const MAX_LETTER_AGE_MS = 60 * 60 * 1000

/** Where the message is kept that waits for the end of an answer (null: in a new conversation). */
export function nextKey(user, conversation) {
  return `${NEXT}${user}:${conversation ?? "new"}`
}

/** Texts one below the other; what is empty is left out. */
export function joined(...texts) {
  return texts.filter((text) => text?.trim()).join("\n\n")
}

function draftPrefix(user) {
  return `${DRAFTS}${user}:`
}

function keysOf(storage) {
  return attempt(() => Array.from({ length: storage.length }, (_, index) => storage.key(index))) ?? []
}

function attempt(action) {
  try {
    return action()
  } catch {
    return null
  }
}
