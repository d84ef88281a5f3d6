/** Keeps this page in step with the account's other devices: hints, and a look whenever one may have been missed. */
import { Soon } from "#js/models/soon.js"

// Several hints come with one action; the list may wait a little longer than the open thread.
const THREAD_MS = 60
const LIST_MS = 250

export class Live {
  #changed = new Set() // conversations that hints have named since the list was read

  /** @param {object} parts {line, list, look() → Promise, isOpen(id), onGone(id), onSignedOut(), onList()} */
  constructor(parts) {
    Object.assign(this, parts)
    this.thread = new Soon(() => this.look(), THREAD_MS)
    this.listSoon = new Soon(() => this.#readList(), LIST_MS)
    this.line.on((change) => this.#heard(change))
    this.line.start()
  }

  /** The page is seen again, or the network is back. */
  returned() {
    this.line.check()
    this.lookAtAll()
  }

  /** Seen again after a moment only: without a line nobody has told what happened meanwhile. */
  glanced() {
    if (!this.line.ready) this.returned()
  }

  lookAtAll() {
    this.thread.call()
    this.listSoon.call()
  }

  #heard({ kind, hint }) {
    if (kind === "ready") this.lookAtAll()
    if (kind === "signedOut") this.onSignedOut()
    if (kind === "hint") this.#hinted(hint)
  }

  #hinted({ kind, conversation }) {
    if (kind === "look_again") return this.lookAtAll()
    if (kind === "conversation_gone") return this.onGone(conversation)
    if (!KINDS.has(kind)) return
    this.#changed.add(conversation)
    this.listSoon.call()
    if (this.isOpen(conversation)) this.thread.call()
  }

  async #readList() {
    const ids = [...this.#changed]
    this.#changed.clear()
    await this.list.refresh(ids)
    this.onList()
  }
}

const KINDS = new Set(["conversation_changed", "run_started", "run_ended"])
