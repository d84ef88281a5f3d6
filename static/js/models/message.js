/** One message of the thread shown, saved or still being written. */

/** What a message is doing: only a reply is ever live. */
export const SAVED = "saved"
export const SENDING = "sending"
export const QUEUED = "queued"
export const WRITING = "writing"

export class Message {
  /** `key` names the message in the page for as long as it is shown: a client id at first. */
  constructor({ key, id = null, role, text = "", phase = SAVED, ...more }) {
    Object.assign(this, { finish: null, usage: null, model: null, run: null, parentId: null }, more)
    Object.assign(this, { key, id, role, text, phase })
    this.versions = more.versions ?? null // {index, count, previous, next} where there are several
    this.feedback = more.feedback ?? null // {rating, reason}
    this.readable = more.readable ?? true // false: its text is lost for good
    this.retracted = this.finish === "moderation"
    this.error = null
    this.stopping = false
    this.cursor = 0 // the last seq seen, where nobody follows it just now
    this.mayReplace = null // a live reply the reader asked for: the leaves it may follow as the active one
    this.anchor = null // the text at the cursor, under a snapshot that moved no cursor
  }

  static fromApi(row) {
    return new Message({ key: row.id, id: row.id, role: row.role, parentId: row.parent_id, ...fieldsOf(row) })
  }

  /** A reply that is still being written, as a conversation's `live_runs` has it. */
  static fromRun(run) {
    return new Message({
      key: run.reply_id,
      id: run.reply_id,
      role: "assistant",
      phase: QUEUED,
      run: run.id,
      model: run.model,
      parentId: run.parent_id,
      versions: run.versions ?? null,
    })
  }

  /**
   * Take what the server says of it now. While a feedback is being saved, the reader's own stands.
   * @returns {boolean} whether anything changed
   */
  takeRow(row) {
    const fresh = fieldsOf(row)
    if (this.rating) delete fresh.feedback
    const changed = Object.keys(fresh).filter((name) => JSON.stringify(fresh[name]) !== JSON.stringify(this[name]))
    for (const name of changed) this[name] = fresh[name]
    return changed.length > 0
  }

  /** Whether a new version can go on from where this reply was cut. */
  get continuable() {
    return !this.live && this.readable && this.text !== "" && CONTINUABLE.has(this.finish)
  }

  get live() {
    return this.phase !== SAVED
  }

  /**
   * Take one event of this reply's run.
   * @returns {boolean} whether the text changed
   */
  apply({ name, data, seq = null }) {
    const take = EVENTS[name]
    if (!take) return false // an event of a later version of the product
    const before = this.text
    this.#keepAnchor(name, seq)
    take(this, data, seq)
    return this.text !== before
  }

  /**
   * A snapshot without an id (the stored text, where the log is gone) replaces what is shown but not the
   * cursor. If the connection breaks before `done` and the log can be read again, the next delta goes on
   * from the text at the cursor; appended to the snapshot it would be there twice.
   */
  #keepAnchor(name, seq) {
    if (name === "snapshot" && seq === null) this.anchor ??= this.text
    else if (seq !== null) {
      if (name === "delta" && this.anchor !== null) this.text = this.anchor
      this.anchor = null
    }
  }
}

// The text that a continued answer begins with is told before anybody writes.
const OPENING_SEQ = 2

const CONTINUABLE = new Set(["length", "user_stopped", "unwatched", "interrupted", "error"])

function fieldsOf(row) {
  const run = row.run ?? {}
  return {
    text: textOf(row.content),
    readable: row.readable ?? true,
    versions: row.versions ?? null,
    feedback: row.feedback ?? null,
    finish: run.finish ?? null,
    usage: run.usage ?? null,
    model: run.model ?? null,
    run: run.id ?? null,
  }
}

const EVENTS = {
  start(message, data) {
    message.id = data.reply_msg
    message.parentId = data.user_msg
    message.run = data.run
    message.model = data.model ?? message.model
    message.phase = QUEUED
  },
  notice(message, data) {
    message.model = data.model ?? message.model // another one answers than `start` said
  },
  delta(message, data) {
    message.phase = WRITING
    message.text += data.text
  },
  snapshot(message, data, seq) {
    if (data.text && seq !== OPENING_SEQ) message.phase = WRITING
    message.text = data.text
  },
  retract(message, data) {
    message.phase = WRITING
    message.text = data.text
    message.retracted = true
  },
  error(message, data) {
    message.error = { code: data.code, message: data.message, retryable: Boolean(data.retryable) }
  },
  done(message, data) {
    message.phase = SAVED
    message.finish = data.finish
    message.usage = data.usage ?? null
  },
}

/** The text parts of a message's content; parts of other kinds come with later versions. */
export function textOf(content) {
  return (content ?? [])
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n\n")
}
