import assert from "node:assert/strict"
import { test } from "node:test"

import { compare, newestRunBelow, parting } from "#js/models/branch.js"
import { besideSibling, newestBeside, placeText, placeWords } from "#js/models/versions.js"

const place = (index, count, previous = null, next = null) => ({ index, count, previous, next })

test("a new version stands at the end; its left neighbour is known beside the newest only", () => {
  assert.deepEqual(newestBeside({ id: "m_1", versions: null }), place(2, 2, "m_1"))
  assert.deepEqual(newestBeside({ id: "m_3", versions: place(3, 3, "m_2") }), place(4, 4, "m_3"))
  assert.deepEqual(newestBeside({ id: "m_1", versions: place(1, 3, null, "m_2") }), place(4, 4, null))
})

test("a newer sibling tells how many there are and who comes next", () => {
  const own = { id: "m_1", versions: null }
  assert.deepEqual(besideSibling(own, { id: "m_2", versions: place(2, 2, "m_1") }), place(1, 2, null, "m_2"))
  assert.deepEqual(besideSibling(own, { id: "m_3", versions: place(3, 3, "m_2") }), place(1, 3, null, "m_2"))
  const known = { id: "m_1", versions: place(1, 2, null, "m_2") }
  assert.deepEqual(besideSibling(known, { id: "m_4", versions: place(4, 4, "m_3") }), place(1, 4, null, "m_2"))
  assert.deepEqual(besideSibling(known, { id: "m_2", versions: null }), known.versions, "nothing new")
})

test("a place is written for eyes and for ears", () => {
  assert.equal(placeText(place(2, 3)), "2/3")
  assert.equal(placeWords(place(2, 3)), "Version 2 of 3")
})

const saved = (...ids) => ids.map((id, index) => ({ id, live: false, parentId: ids[index - 1] ?? null }))
const rows = (...ids) => ids.map((id, index) => ({ id, parent_id: ids[index - 1] ?? null }))
const live = (id) => ({ id, live: true })
const relation = (shown, server) => compare(shown, server).relation

test("the thread grows at its end, and only there", () => {
  assert.equal(relation(saved("a", "b"), rows("a", "b")), "same")
  assert.deepEqual(compare(saved("a", "b"), rows("a", "b", "c", "d")).rest.map((row) => row.id), ["c", "d"])
  assert.equal(relation(saved("b"), rows("a", "b")), "same", "only the end of it is shown")
  assert.equal(relation([], rows("a")), "longer")
  assert.equal(relation([], []), "same")
})

test("another branch, a shorter one, or one beside the live reply is told and not shown", () => {
  assert.equal(relation(saved("a", "b"), rows("a", "x")), "elsewhere")
  assert.equal(relation(saved("a", "b"), rows("a")), "elsewhere")
  assert.equal(relation([...saved("a"), live("b")], rows("a", "x")), "elsewhere")
})

test("a live reply that has just been stored is left to its stream", () => {
  assert.equal(relation([...saved("a"), live("b")], rows("a")), "same")
  assert.equal(relation([...saved("a"), live("b")], rows("a", "b")), "wait")
  assert.equal(relation([...saved("a"), live("b")], rows("a", "b", "c")), "wait")
})

test("where two branches part is found, if it is on the page", () => {
  const found = parting(saved("a", "b", "c"), rows("a", "x", "y"))
  assert.deepEqual([found.own.id, found.instead.id], ["b", "x"])
  assert.equal(parting(saved("a", "b"), rows("a")).instead, null, "an answer that is being written has no row yet")
  assert.deepEqual(Object.values(parting(saved("a", "b"), rows("x"))).map(({ id }) => id), ["a", "x"], "the first message has versions too")
  assert.equal(parting(saved("a", "b"), [{ id: "y", parent_id: "x" }]), null, "far below the root nothing is known")
  assert.equal(parting(saved("a", "b"), rows("a", "b", "c")), null)
})

test("of several live replies the newest is shown", () => {
  const runs = [{ reply_id: "m_2", parent_id: "m_1" }, { reply_id: "m_4", parent_id: "m_1" }, { reply_id: "m_5", parent_id: "m_9" }]
  assert.equal(newestRunBelow(runs, "m_1").reply_id, "m_4")
  assert.equal(newestRunBelow(runs, "m_7"), null)
})
