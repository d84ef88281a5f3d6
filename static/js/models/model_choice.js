/**
 * Which model answers new messages: the person's choice, remembered in this browser. Tells `changed`.
 *
 * A choice is one over the default of that time. When the person (on any device) or the server has another
 * default, that is the newer word, and what this browser remembers is forgotten.
 */
import { Emitter } from "#js/models/emitter.js"
import { number, plural, t } from "#js/models/i18n.js"
import { momentText } from "#js/models/waiting.js"

export class ModelChoice extends Emitter {
  constructor({ api, storage, user }) {
    super()
    Object.assign(this, { api, storage, key: `hearth:model:${user}` })
    this.items = []
    this.status = "loading" // "loading" | "ready" | "failed"
    this.kept = null
    this.limits = null // slug → what the plan allows and what is left; null: not known yet
    this.limitsFailed = false
    this.plan = ""
  }

  async load() {
    try {
      this.items = (await this.api.models()).data
      this.status = "ready"
    } catch {
      if (this.status !== "ready") this.status = "failed"
    }
    if (this.status === "ready") this.#forgetOld()
    this.emit("changed")
  }

  /** What is left of each model now; tells `limits`. */
  async loadLimits() {
    try {
      const { limits, plan } = await this.api.usage()
      this.plan = plan?.title ?? ""
      this.limits = new Map(limits.messages.map((limit) => [limit.model, limit]))
      this.limitsFailed = false
    } catch {
      this.limitsFailed = true
    }
    this.emit("limits")
  }

  /** "Free · 31 left": the plan, and what is left of the model for new messages; "" until that is known. */
  get standing() {
    const left = this.limits?.get(this.current?.id)?.remaining ?? null
    return [this.plan, left === null ? "" : t("{count} left", { count: number(left) })].filter(Boolean).join(" · ")
  }

  /** What stands under a model's name. */
  noteOf(model) {
    const left = this.limits ? leftText(this.limits.get(model.id)) : this.limitsFailed ? "" : t("Looking up what is left")
    return [model.default ? t("Default") : "", left].filter(Boolean).join(" · ")
  }

  /** What a send names: null where the person has chosen nothing that is still there; then the server's default answers. */
  get wanted() {
    const slug = this.#remembered()?.slug
    return this.items.some((model) => model.id === slug) ? slug : null
  }

  get current() {
    const { wanted } = this
    return this.items.find((model) => (wanted ? model.id === wanted : model.default)) ?? this.items[0] ?? null
  }

  choose(slug) {
    this.#keep({ slug, over: this.#default })
    this.emit("changed")
  }

  titleOf(slug) {
    return this.items.find((model) => model.id === slug)?.title ?? slug ?? ""
  }

  get #default() {
    return this.items.find((model) => model.default)?.id ?? null
  }

  #forgetOld() {
    const kept = this.#remembered()
    if (kept && kept.over !== this.#default) this.#keep(null)
  }

  #keep(choice) {
    this.kept = null
    try {
      if (choice) this.storage.setItem(this.key, JSON.stringify(choice))
      else this.storage.removeItem(this.key)
    } catch {
      this.kept = choice // no storage, or a full one: for as long as the page lives
    }
  }

  /** What this browser has, which another page may have changed. */
  #remembered() {
    try {
      return choiceOf(this.storage.getItem(this.key)) ?? this.kept
    } catch {
      return this.kept
    }
  }
}

/** @returns {{slug, over} | null} null for what no page of this kind wrote */
function choiceOf(text) {
  const { slug, over } = JSON.parse(text ?? "null") ?? {}
  return slug ? { slug, over } : null
}

/** "31 of 40 messages left, all back at 18:30" */
export function leftText(limit, now = new Date()) {
  if (!limit) return ""
  const { limit: most, remaining, resets_at: resetsAt } = limit
  if (most === null) return t("No limit")
  if (!remaining) return resetsAt ? t("No message left, all back {time}", { time: momentText(resetsAt, now) }) : t("No message left")
  const left = plural("{count} of {most} messages left", "{count} of {most} messages left", remaining, { most: number(most) })
  return remaining < most && resetsAt ? t("{left}, all back {time}", { left, time: momentText(resetsAt, now) }) : left
}
