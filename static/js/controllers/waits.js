/** The status strip of the open conversation: drawn anew while it counts down, and what its clock does by itself. */
import { dueNow } from "#js/models/refusals.js"
import { stripFor } from "#js/models/words.js"

const TICK_MS = 1_000

export class Waits {
  #conversation = null
  #timer = 0

  /** @param {object} parts {strip, models, onVerb(verb), onSendNow({byItself})} */
  constructor(parts) {
    Object.assign(this, parts)
  }

  draw(conversation = this.#conversation) {
    this.#conversation = conversation
    const line = stripFor(conversation, this.#view)
    this.strip.show(line, (verb) => this.#do(verb))
    clearTimeout(this.#timer)
    if (line?.ticks) this.#timer = setTimeout(() => this.#tick(), TICK_MS)
  }

  /** What the strip says, for ears. */
  words(conversation) {
    return stripFor(conversation, this.#view)?.text ?? ""
  }

  /** The person has done something else with the text: it is not sent by itself any more. @returns {boolean} whether it would have been */
  disarm() {
    const refusal = this.#conversation?.refusal
    if (!refusal?.armed) return false
    refusal.armed = false
    this.draw()
    return true
  }

  get #view() {
    return { online: navigator.onLine, now: Date.now(), titleOf: (slug) => this.models.titleOf(slug) }
  }

  #do(verb) {
    if (verb === "send-then") this.#arm()
    else if (verb === "do-not-send") this.disarm()
    else if (verb === "send-now") this.onSendNow({ byItself: false })
    else this.onVerb(verb)
  }

  #arm() {
    this.#conversation.refusal.armed = true
    this.draw()
  }

  #tick() {
    const due = dueNow(this.#conversation.refusal, Date.now())
    // Without a line it waits for that, too.
    if (due === "wait" || (due === "send" && !navigator.onLine)) return this.draw()
    this.disarm()
    if (due === "send") this.onSendNow({ byItself: true })
  }
}
