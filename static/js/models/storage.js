/**
 * What the page keeps in the browser. Storage may be full, switched off or broken by hand: then the page
 * works without, and nothing here throws.
 */

// A draft is text that a person typed; far above that it is a paste, and would fill the browser's 5 MB.
export const MAX_DRAFT_CHARS = 200_000

const DRAFTS = "hearth:draft:"
const OUTBOX = "hearth:outbox:"

/**
 * What others left here is not for this person's eyes, nor for the developer tools of whoever sits here:
 * the drafts and unanswered sends of everybody but `user` are removed.
 */
export function forgetOthers({ storages, user }) {
  const own = (key) => key.startsWith(draftPrefix(user)) || key === OUTBOX + user
  const text = (key) => key.startsWith(DRAFTS) || key.startsWith(OUTBOX)
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
    return attempt(() => this.storage.getItem(this.#key(conversation))) ?? ""
  }

  put(conversation, text) {
    if (text.length > MAX_DRAFT_CHARS) return
    if (text) attempt(() => this.storage.setItem(this.#key(conversation), text))
    else attempt(() => this.storage.removeItem(this.#key(conversation)))
  }

  #key(conversation) {
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
    const letter = this.#all().find((other) => (other.conversation ?? null) === conversation)
    return letter && this.now() - letter.at < MAX_LETTER_AGE_MS ? letter : null
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

// Well inside the server's memory of a key (24 h): an older one could become a second message.
const MAX_LETTER_AGE_MS = 60 * 60 * 1000

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
