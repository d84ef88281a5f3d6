import assert from "node:assert/strict"
import { test } from "node:test"

import { ModelChoice } from "#js/models/model_choice.js"

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
  storage.setItem("hearth:model:u", "gone")
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
