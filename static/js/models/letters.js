/** What begins a run, as it is sent, kept and shown. */
import { Message, SENDING } from "#js/models/message.js"
import { newestBeside } from "#js/models/versions.js"

/** The body of a send. `parent` undefined: a new conversation's first message; null: a first message beside others. */
export function sendBody(text, { parent, model = null }) {
  return { content: text, ...(parent === undefined ? {} : { parent_id: parent }), ...(model ? { model } : {}) }
}

/** A letter's message and reply as the page shows them until the server has answered. */
export function pairOf({ key, body }, edited = null) {
  const versions = edited && newestBeside(edited)
  const user = new Message({ key, role: "user", text: body.content, phase: SENDING, parentId: body.parent_id ?? null, versions })
  return [user, new Message({ key: `${key}-reply`, role: "assistant", phase: SENDING })]
}

/** A new version of `reply`, which begins with `text`. */
export function freshBeside(reply, key, text) {
  const { parentId, model } = reply
  return new Message({ key, role: "assistant", phase: SENDING, text, parentId, model, versions: newestBeside(reply) })
}

/** An Idempotency-Key. (`crypto.randomUUID` is missing on a page without https.) */
export function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")
}
