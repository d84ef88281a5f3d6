/** One message of the thread shown, saved or still being written. */

/** What a message is doing: only a reply is ever live. */
export const SAVED = "saved"
export const SENDING = "sending"
export const QUEUED = "queued"
export const WRITING = "writing"

export class Message {
  /** `key` names the message in the page for as long as it is shown: a client id at first. */
  constructor({ key, id = null, role, text = "", phase = SAVED, finish = null, usage = null, model = null, run = null }) {
    Object.assign(this, { key, id, role, text, phase, finish, usage, model, run })
    this.retracted = finish === "moderation"
    this.error = null
    this.anchor = null // the text at the cursor, under a snapshot that moved no cursor
  }

  static fromApi(row) {
    const run = row.run ?? {}
    return new Message({
      key: row.id,
      id: row.id,
      role: row.role,
      text: textOf(row.content),
      finish: run.finish ?? null,
      usage: run.usage ?? null,
      model: run.model ?? null,
      run: run.id ?? null,
    })
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
    take(this, data)
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

const EVENTS = {
  start(message, data) {
    message.id = data.reply_msg
    message.run = data.run
    message.model = data.model ?? message.model
    message.phase = QUEUED
  },
  notice() {},
  delta(message, data) {
    message.phase = WRITING
    message.text += data.text
  },
  snapshot(message, data) {
    if (data.text) message.phase = WRITING
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
