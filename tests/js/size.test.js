import assert from "node:assert/strict"
import { test } from "node:test"

import { LARGE_BYTES, sizeNote as noteOf } from "#js/models/size.js"
import { MAX_DRAFT_CHARS } from "#js/models/storage.js"

import { plain } from "./support.js"

const MOST = 131_072

function sizeNote(text, most) {
  const note = noteOf(text, most)
  return note && { ...note, text: plain(note.text) }
}

test("a message of usual length has no note", () => {
  assert.equal(sizeNote("", MOST), null)
  assert.equal(sizeNote("x".repeat(LARGE_BYTES - 1), MOST), null)
})

test("a long one says its size in bytes, not in characters", () => {
  assert.deepEqual(sizeNote("x".repeat(LARGE_BYTES), MOST), { over: false, icon: "info", text: "A long message: 16 KB of at most 128 KB" })
  assert.match(sizeNote("न".repeat(LARGE_BYTES), MOST).text, /48 KB of at most/)
})

test("one that no server takes is over the limit, by one byte too", () => {
  assert.equal(sizeNote("x".repeat(MOST), MOST).over, false)
  assert.deepEqual(sizeNote("x".repeat(MOST + 1), MOST), { over: true, icon: "warn", text: "Too long to send: 129 KB, and 128 KB is the most" })
})

test("one that is not even kept as a draft says so", () => {
  assert.equal(sizeNote("x".repeat(MAX_DRAFT_CHARS), MOST).lost, undefined)
  const note = sizeNote("x".repeat(MAX_DRAFT_CHARS + 1), MOST)
  assert.deepEqual([note.over, note.lost], [true, true])
  assert.equal(note.text, "Too long to send and to be kept: 261 KB, and 128 KB is the most. It is lost when you go elsewhere")
})
