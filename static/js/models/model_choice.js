/** Which model answers new messages: the person's choice, remembered in this browser. Tells `changed`. */
import { Emitter } from "#js/models/emitter.js"

export class ModelChoice extends Emitter {
  constructor({ api, storage, user }) {
    super()
    Object.assign(this, { api, storage, key: `hearth:model:${user}` })
    this.items = []
    this.status = "loading" // "loading" | "ready" | "failed"
  }

  async load() {
    try {
      this.items = (await this.api.models()).data
      this.status = "ready"
    } catch {
      if (this.status !== "ready") this.status = "failed"
    }
    this.emit("changed")
  }

  /** What a send names: null where the person has chosen nothing that is still there; then the server's default answers. */
  get wanted() {
    const slug = this.#remembered()
    return this.items.some((model) => model.id === slug) ? slug : null
  }

  get current() {
    const { wanted } = this
    return this.items.find((model) => (wanted ? model.id === wanted : model.default)) ?? this.items[0] ?? null
  }

  choose(slug) {
    try {
      this.storage.setItem(this.key, slug)
    } catch {
      this.kept = slug // no storage: for as long as the page lives
    }
    this.emit("changed")
  }

  titleOf(slug) {
    return this.items.find((model) => model.id === slug)?.title ?? slug ?? ""
  }

  #remembered() {
    try {
      return this.storage.getItem(this.key) ?? this.kept
    } catch {
      return this.kept
    }
  }
}
