import assert from "node:assert/strict"
import { test } from "node:test"

import { Drafts, forgetOthers, joined, MAX_DRAFT_CHARS, Outbox } from "#js/models/storage.js"

import { MemoryStorage } from "./support.js"

const BROKEN = {
  get length() {
    throw new Error("switched off")
  },
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

test("drafts wait for the same person, and are gone when another one comes", () => {
  const storages = [new MemoryStorage(), new MemoryStorage()]
  const [local, session] = storages
  const draftsOf = (user) => new Drafts({ storage: local, user })
  const outboxOf = (user) => new Outbox({ storage: session, user, now: () => 0 })
  local.setItem("theme", "dark")
  for (const conversation of [null, "c_1", "c_2"]) draftsOf("ada").put(conversation, "mine")
  outboxOf("ada").put({ conversation: null, body: { content: "sent" }, key: "k1" })
  forgetOthers({ storages, user: "ada" })
  assert.deepEqual([draftsOf("ada").get("c_2"), outboxOf("ada").find(null).key], ["mine", "k1"])
  draftsOf("ad").put(null, "a name that begins another's")
  forgetOthers({ storages, user: "ad" })
  assert.deepEqual(local.keys, ["theme", "hearth:draft:ad:new"])
  assert.deepEqual(session.keys, [])
})

test("a huge paste is not kept, does not replace what was, and that is told", () => {
  const drafts = new Drafts({ storage: new MemoryStorage(), user: "ada" })
  assert.equal(drafts.put("c_1", "small"), true)
  assert.equal(drafts.put("c_1", "x".repeat(MAX_DRAFT_CHARS + 1)), false)
  assert.equal(drafts.get("c_1"), "small")
  assert.equal(drafts.put("c_1", ""), true)
  assert.equal(new Drafts({ storage: BROKEN, user: "ada" }).put("c_1", "x"), false)
})

test("a refused message and the one that waited behind it are a draft, before what was begun since", () => {
  const drafts = new Drafts({ storage: new MemoryStorage(), user: "ada" })
  const longest = "x".repeat(128 * 1024)
  assert.equal(drafts.putBefore("c_1", joined(longest, longest)), true)
  drafts.put("c_2", "begun since")
  drafts.putBefore("c_2", joined("refused", ""))
  assert.equal(drafts.get("c_2"), "refused\n\nbegun since")
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
  outbox.put({ conversation: null, body: { content: "c" }, key: "k3" })
  assert.deepEqual(outbox.findAll(null).map(({ key }) => key), ["k1", "k3"])
  outbox.drop("k3")
  outbox.drop("k1")
  assert.equal(outbox.find(null), null)
  now = 61 * 60 * 1000
  assert.equal(outbox.find("c_1"), null)
})

test("storage that is off, full or tampered with breaks nothing", () => {
  const tampered = new MemoryStorage()
  tampered.setItem("hearth:outbox:ada", '[{"key":1},null,"x"]')
  for (const storage of [BROKEN, null, tampered]) {
    forgetOthers({ storages: [storage], user: "ada" })
    const drafts = new Drafts({ storage, user: "ada" })
    drafts.put("c_1", "x")
    drafts.get("c_1")
    const outbox = new Outbox({ storage, user: "ada" })
    assert.equal(outbox.find(null), null)
    outbox.put({ conversation: null, body: { content: "a" }, key: "k1" })
    outbox.drop("k1")
  }
})
