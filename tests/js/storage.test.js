import assert from "node:assert/strict"
import { test } from "node:test"

import { Drafts, MAX_DRAFT_CHARS, Outbox } from "#js/models/storage.js"

import { MemoryStorage } from "./support.js"

const BROKEN = {
  getItem() {
    throw new Error("switched off")
  },
  setItem() {
    throw new Error("full")
  },
  removeItem() {
    throw new Error("switched off")
  },
}

test("drafts are kept per user and conversation, and emptied with their text", () => {
  const storage = new MemoryStorage()
  const ada = new Drafts({ storage, user: "ada" })
  ada.put(null, "new one")
  ada.put("c_1", "in one")
  assert.deepEqual([ada.get(null), ada.get("c_1"), ada.get("c_2")], ["new one", "in one", ""])
  assert.equal(new Drafts({ storage, user: "bob" }).get("c_1"), "")
  ada.put("c_1", "")
  assert.equal(storage.keys.length, 1)
})

test("a huge paste is not kept, and does not replace what was", () => {
  const drafts = new Drafts({ storage: new MemoryStorage(), user: "ada" })
  drafts.put("c_1", "small")
  drafts.put("c_1", "x".repeat(MAX_DRAFT_CHARS + 1))
  assert.equal(drafts.get("c_1"), "small")
})

test("unanswered sends are found by conversation, while they are young", () => {
  let now = 0
  const storage = new MemoryStorage()
  const outbox = new Outbox({ storage, user: "ada", now: () => now })
  outbox.put({ conversation: null, body: { content: "a" }, key: "k1" })
  outbox.put({ conversation: "c_1", body: { content: "b" }, key: "k2" })
  assert.equal(outbox.find(null).key, "k1")
  assert.equal(new Outbox({ storage, user: "ada", now: () => now }).find("c_1").key, "k2")
  assert.equal(outbox.find("c_2"), null)
  outbox.drop("k1")
  assert.equal(outbox.find(null), null)
  now = 61 * 60 * 1000
  assert.equal(outbox.find("c_1"), null)
})

test("storage that is off, full or tampered with breaks nothing", () => {
  const tampered = new MemoryStorage()
  tampered.setItem("hearth:outbox:ada", '[{"key":1},null,"x"]')
  for (const storage of [BROKEN, null, tampered]) {
    const drafts = new Drafts({ storage, user: "ada" })
    drafts.put("c_1", "x")
    drafts.get("c_1")
    const outbox = new Outbox({ storage, user: "ada" })
    assert.equal(outbox.find(null), null)
    outbox.put({ conversation: null, body: { content: "a" }, key: "k1" })
    outbox.drop("k1")
  }
})
