/** A conversation on a scripted server, for the tests of the thread. */
import { Api } from "#js/models/api.js"
import { Conversation } from "#js/models/conversation.js"
import { Outbox } from "#js/models/storage.js"

import { FakeTimers, MemoryStorage, RUN, scriptedFetch, until } from "./support.js"

export function row(id, role, text, run = null, more = {}) {
  return { id, parent_id: null, role, content: [{ type: "text", text }], readable: true, created: "", versions: null, feedback: null, run, ...more }
}

export function detail({ messages = [], live = [], before = null, leaf = messages.at(-1)?.id ?? null, title = "T", etag = '"1"' } = {}) {
  const body = { id: "c_1", title, active_leaf: leaf, messages, has_more_before: before !== null, before, live_runs: live }
  return () => Response.json(body, { headers: { ETag: etag } })
}

export const TWO = [row("m_8", "user", "before"), row("m_9", "assistant", "answer", { id: "g_9", finish: "stop", model: "demo", usage: { output_tokens: 1 } })]
export const LIVE = [{ id: RUN, reply_id: "m_2", parent_id: "m_8", status: "running", model: "demo" }]

export function open(answers, { id = null, storage = new MemoryStorage() } = {}) {
  const { fetch, requests } = scriptedFetch(answers)
  const timers = new FakeTimers()
  let keys = 0
  const outbox = new Outbox({ storage, user: "u" })
  const conversation = new Conversation({
    api: new Api({ csrf: "x", fetch }),
    id,
    outbox,
    newKey: () => `key-${(keys += 1)}`,
    streamOptions: { timers, random: () => 0.5 },
  })
  const changes = []
  conversation.on((change) => changes.push(change))
  const ended = () => until(() => changes.some((change) => change.kind === "ended"))
  return { conversation, requests, timers, changes, outbox, storage, ended, kinds: () => changes.map((change) => change.kind) }
}

