import assert from "node:assert/strict"
import { test } from "node:test"

import { Message } from "#js/models/message.js"
import { startData } from "./support.js"

function reply(...events) {
  const message = new Message({ key: "k", role: "assistant" })
  for (const [name, data, seq] of events) message.apply({ name, data, seq: seq ?? null })
  return message
}

const text = (words) => ({ text: words })

test("a snapshot without id stays when done follows", () => {
  const message = reply(["delta", text("a"), 2], ["snapshot", text("abc")], ["done", { finish: "stop" }, 9])
  assert.equal(message.text, "abc")
})

test("a delta after a snapshot without id goes on from the text at the cursor", () => {
  const message = reply(
    ["delta", text("a"), 2],
    ["snapshot", text("abc")],
    ["delta", text("b"), 3],
    ["delta", text("c"), 4],
    ["done", { finish: "stop" }, 5],
  )
  assert.equal(message.text, "abc")
})

test("two snapshots without id keep the first one's cursor", () => {
  const message = reply(["delta", text("a"), 2], ["snapshot", text("abc")], ["snapshot", text("abc")], ["delta", text("b"), 3])
  assert.equal(message.text, "ab")
})

test("a snapshot with an id moves the cursor", () => {
  const message = reply(["delta", text("a"), 2], ["snapshot", text("abc"), 1000001], ["delta", text("d"), 1000002])
  assert.equal(message.text, "abcd")
})

test("a notice that another model answers names it, also where the answer began as the first one's", () => {
  const message = new Message({ key: "k", role: "assistant" })
  message.apply({ name: "start", data: startData({ model: "big" }), seq: 1 })
  message.apply({ name: "notice", data: { code: "other_model", text: "…", model: "small", instead_of: "big" }, seq: 2 })
  message.apply({ name: "notice", data: { code: "queued", position: 1 }, seq: null })
  assert.equal(message.model, "small")
})
