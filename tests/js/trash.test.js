import assert from "node:assert/strict"
import { test } from "node:test"

import { ApiError } from "#js/models/api.js"
import { ConversationList } from "#js/models/conversation_list.js"
import { OFFERED_MS, Trash } from "#js/models/trash.js"
import { trashLine } from "#js/models/words.js"

import { FakeTimers, settle } from "./support.js"

function item(id, minute = 0) {
  return { id, title: id, active_leaf: "m_1", last_activity: `2026-11-29T10:${String(minute).padStart(2, "0")}:00Z` }
}

const refusal = (status) => new ApiError({ status, code: "x", message: "No" })

async function world({ deletion = async () => null, restore = async () => null } = {}) {
  const asked = []
  const api = {
    listConversations: async () => ({ items: [item("a", 3), item("b", 2), item("c", 1)], next_cursor: null }),
    deleteConversation: (id) => (asked.push(`delete ${id}`), deletion(id)),
    restoreConversation: (id) => (asked.push(`restore ${id}`), restore(id)),
  }
  const list = new ConversationList({ api })
  await list.refresh()
  const timers = new FakeTimers()
  const trash = new Trash({ api, list, timers })
  const restored = []
  trash.on((change) => change.kind === "restored" && restored.push(change.item.id))
  return { trash, list, timers, asked, restored, ids: () => list.items.map(({ id }) => id).join("") }
}

test("gone from the list at once, back in its place with undo", async () => {
  const { trash, asked, restored, ids, timers } = await world()
  trash.remove(item("b", 2))
  assert.deepEqual([ids(), trash.offer.state], ["ac", "deleting"])
  await settle()
  assert.deepEqual([trash.offer.state, timers.pending], ["deleted", [OFFERED_MS]])
  await trash.undo()
  assert.deepEqual([ids(), restored, trash.offer, timers.pending], ["abc", ["b"], null, []])
  assert.deepEqual(asked, ["delete b", "restore b"])
})

test("a page of the list that was under way does not bring it back", async () => {
  const { trash, list, ids } = await world()
  trash.remove(item("b", 2))
  await list.refresh()
  assert.equal(ids(), "ac")
})

test("undo during the delete waits for it: the two never cross", async () => {
  let deleted
  const { trash, asked, restored } = await world({ deletion: () => new Promise((resolve) => (deleted = resolve)) })
  trash.remove(item("b", 2))
  const undone = trash.undo()
  await settle()
  assert.deepEqual([asked, trash.offer.state], [["delete b"], "restoring"])
  deleted()
  await undone
  assert.deepEqual([asked, restored], [["delete b", "restore b"], ["b"]])
})

test("a delete that fails is told, the conversation is back, and can be deleted again", async () => {
  let fails = true
  const { trash, ids, asked } = await world({ deletion: async () => (fails ? Promise.reject(refusal(500)) : null) })
  await trash.remove(item("b", 2))
  assert.deepEqual([ids(), trash.offer.state], ["abc", "failed"])
  fails = false
  trash.again()
  await settle()
  assert.deepEqual([ids(), trash.offer.state, asked.length], ["ac", "deleted", 2])
})

test("undo of a delete that fails leaves it where it is", async () => {
  const { trash, ids, restored, asked } = await world({ deletion: async () => Promise.reject(refusal(500)) })
  trash.remove(item("b", 2))
  await trash.undo()
  assert.deepEqual([ids(), restored, trash.offer, asked], ["abc", ["b"], null, ["delete b"]])
})

test("deleted on another device already counts as deleted", async () => {
  const { trash } = await world({ deletion: async () => Promise.reject(refusal(404)) })
  await trash.remove(item("b", 2))
  assert.equal(trash.offer.state, "deleted")
})

test("an undo that fails stays on offer", async () => {
  let fails = true
  const { trash, ids, timers } = await world({ restore: async () => (fails ? Promise.reject(refusal(500)) : null) })
  await trash.remove(item("b", 2))
  await trash.undo()
  assert.deepEqual([ids(), trash.offer.state, timers.pending], ["ac", "lost", []])
  fails = false
  await trash.undo()
  assert.equal(ids(), "abc")
})

test("the offer ends after a while, but not while it is held; the one before comes up again", async () => {
  const { trash, timers } = await world()
  await trash.remove(item("a", 3))
  await trash.remove(item("b", 2))
  assert.equal(trash.offer.item.id, "b")
  trash.hold(true)
  assert.deepEqual(timers.pending, [])
  trash.hold(false)
  assert.deepEqual(timers.pending, [OFFERED_MS, OFFERED_MS])
  trash.dismiss()
  assert.equal(trash.offer.item.id, "a")
  timers.fireShortest()
  assert.equal(trash.offer, null)
})

test("every state of it has its words, and what to do", () => {
  const says = (state, error = null) => trashLine({ item: item("Goa trip"), state, error })
  assert.deepEqual(says("deleting"), { text: "“\u2068Goa trip\u2069” was deleted.", verb: "undo", label: "Undo" })
  assert.deepEqual(says("deleted"), says("deleting"))
  assert.deepEqual([says("restoring").text, says("restoring").verb], ["Bringing back “\u2068Goa trip\u2069”", null])
  assert.deepEqual(says("failed", refusal(500)), { text: "“\u2068Goa trip\u2069” could not be deleted. Something broke on our side.", verb: "again", label: "Try again" })
  assert.match(says("lost", refusal(401)).text, /signed out/)
  assert.match(says("lost", new Error("off")).text, /could not be reached/)
  assert.match(trashLine({ item: { ...item("c"), title: "" }, state: "deleted" }).text, /can no longer be read/)
  const long = trashLine({ item: { title: "👩‍🚀".repeat(60) }, state: "deleted" }).text
  assert.ok(long.length < 140)
})

test("what was deleted from here is known, until it comes back", async () => {
  const { trash, list, timers } = await world()
  trash.remove(item("b", 2))
  await settle()
  assert.deepEqual([trash.took("a"), trash.took("b")], [false, true])
  timers.fireShortest() // the offer is over; the conversation stays deleted
  assert.equal(trash.took("b"), true)
  trash.remove(item("a", 3))
  await trash.undo()
  assert.equal(trash.took("a"), false)
  list.put(item("b", 2)) // brought back on another device
  assert.equal(trash.took("b"), false)
  const refused = await world({ deletion: async () => { throw refusal(503) } })
  await refused.trash.remove(item("c", 1))
  assert.equal(refused.trash.took("c"), false)
})
