import assert from "node:assert/strict"
import { test } from "node:test"

import { leftText, ModelChoice } from "#js/models/model_choice.js"

import { MemoryStorage } from "./support.js"

const LARGE = { id: "large", title: "Large", default: true }
const SMALL = { id: "small", title: "Small", default: false }

function choice({ answers = [[LARGE, SMALL]], storage = new MemoryStorage() } = {}) {
  const models = async () => {
    const data = answers.shift()
    if (!data) throw new Error("off")
    return { data }
  }
  const api = { models }
  return new ModelChoice({ api, storage, user: "u" })
}

test("nothing chosen: the server's default answers, and no model is named", async () => {
  const models = choice()
  assert.equal(models.current, null)
  await models.load()
  assert.deepEqual([models.wanted, models.current.id, models.titleOf("small"), models.titleOf("gone"), models.titleOf(null)], [null, "large", "Small", "gone", ""])
})

test("a choice is remembered for this person", async () => {
  const storage = new MemoryStorage()
  const models = choice({ storage })
  await models.load()
  models.choose("small")
  assert.deepEqual([models.wanted, models.current.id], ["small", "small"])
  const later = choice({ storage })
  await later.load()
  assert.equal(later.wanted, "small")
  assert.deepEqual(storage.keys, ["hearth:model:u"])
})

test("a remembered model that is gone is not named", async () => {
  const storage = new MemoryStorage()
  storage.setItem("hearth:model:u", JSON.stringify({ slug: "gone", over: "large" }))
  const models = choice({ storage })
  await models.load()
  assert.deepEqual([models.wanted, models.current.id], [null, "large"])
})

test("a choice gives way when the default has become another one since", async () => {
  const storage = new MemoryStorage()
  const models = choice({ storage })
  await models.load()
  models.choose("large")
  const same = choice({ storage })
  await same.load()
  assert.equal(same.wanted, "large")
  const other = choice({ storage, answers: [[{ ...LARGE, default: false }, { ...SMALL, default: true }]] })
  await other.load()
  assert.deepEqual([other.wanted, other.current.id, storage.keys], [null, "small", []])
  other.choose("large")
  await other.load()
  assert.equal(other.wanted, "large", "the newer choice, over the newer default; a failed look changes nothing")
})

test("a choice that another version of the page wrote is no choice", async () => {
  const storage = new MemoryStorage()
  storage.setItem("hearth:model:u", "small")
  const models = choice({ storage })
  await models.load()
  assert.deepEqual([models.wanted, models.current.id], [null, "large"])
})

test("without storage the choice lasts as long as the page; without an answer there is none", async () => {
  const models = choice({ storage: null, answers: [[LARGE, SMALL]] })
  await models.load()
  models.choose("small")
  assert.equal(models.wanted, "small")
  await models.load()
  assert.deepEqual([models.status, models.items.length], ["ready", 2], "a failure keeps what is there")
  const never = choice({ answers: [] })
  await never.load()
  assert.deepEqual([never.status, never.current], ["failed", null])
})

const LIMIT = { model: "large", limit: 40, used: 9, remaining: 31, resets_at: "2026-01-05T18:30:00", reset_s: 60 }
const NOW = new Date("2026-01-05T09:00:00")

test("what is left is said, and when it is back", () => {
  assert.match(leftText(LIMIT, NOW), /^31 of 40 messages left, all back at 6:30\sPM$/)
  assert.match(leftText({ ...LIMIT, remaining: 1 }, NOW), /^1 of 40 messages left/)
  assert.equal(leftText({ ...LIMIT, remaining: 40 }, NOW), "40 of 40 messages left")
  assert.match(leftText({ ...LIMIT, remaining: 0, resets_at: "2026-01-07T08:00:00" }, NOW), /^No message left, all back on Wed, Jan 7 at 8:00\sAM$/)
  assert.equal(leftText({ limit: null, remaining: null, resets_at: null }), "No limit")
  assert.equal(leftText(undefined), "")
})

test("each model has a note: whether it is the default, and what is left once that is known", async () => {
  const models = choice()
  await models.load()
  models.api.usage = async () => ({ limits: { messages: [{ ...LIMIT, limit: null, remaining: null, resets_at: null }] } })
  const kinds = []
  models.on(({ kind }) => kinds.push(kind))
  assert.equal(models.noteOf(LARGE), "Default · Looking up what is left")
  await models.loadLimits()
  assert.deepEqual([models.noteOf(LARGE), models.noteOf(SMALL), kinds], ["Default · No limit", "", ["limits"]])
  models.api.usage = async () => {
    throw new Error("off")
  }
  await models.loadLimits()
  assert.equal(models.noteOf(LARGE), "Default · No limit", "what was known last")
})

test("the plan and what is left of the model for new messages stand under the person's name", async () => {
  const models = choice()
  await models.load()
  assert.equal(models.standing, "")
  models.api.usage = async () => ({ plan: { title: "Free" }, limits: { messages: [LIMIT] } })
  await models.loadLimits()
  assert.equal(models.standing, "Free · 31 left")
  models.api.usage = async () => ({ plan: { title: "Team" }, limits: { messages: [{ ...LIMIT, limit: null, remaining: null }] } })
  await models.loadLimits()
  assert.equal(models.standing, "Team")
})
