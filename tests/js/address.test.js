import assert from "node:assert/strict"
import { test } from "node:test"

import { conversationIn } from "#js/models/address.js"

test("an address names a conversation, or none", () => {
  assert.equal(conversationIn("/c/c_1"), "c_1")
  assert.equal(conversationIn("/c/c_1/"), "c_1")
  assert.equal(conversationIn("/c/a%20b"), "a b")
  for (const path of ["/", "/c/", "/c/c_1/more", "/x/c/c_1"]) assert.equal(conversationIn(path), null, path)
})

test("an address that cannot be decoded names what nobody has", () => {
  for (const name of ["%ff", "%", "%zz", "%c3%28"]) assert.equal(conversationIn(`/c/${name}`), name)
})
