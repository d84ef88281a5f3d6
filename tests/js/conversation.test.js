import assert from "node:assert/strict"
import { test } from "node:test"

import { answer, doneData, errorResponse, frame, RUN, startData, streamResponse, until } from "./support.js"
import { detail, LIVE, open, row, TWO } from "./threads.js"

test("the first message makes the conversation and gets its answer", async () => {
  const { conversation, requests, outbox, changes, kinds, ended } = open([() => streamResponse(answer(["Hi", "!"]))])
  assert.equal(conversation.sendText("hello"), true)
  assert.deepEqual(conversation.messages.map((message) => [message.role, message.text, message.phase]), [["user", "hello", "sending"], ["assistant", "", "sending"]])
  assert.equal(conversation.messages[0].key, "key-1")
  assert.ok(outbox.find(null), "kept until the server has answered")
  await ended()
  assert.equal(requests[0].url, "/v1/conversations/new/messages")
  assert.equal(conversation.id, "c_1")
  assert.equal(outbox.find(null), null)
  const [user, reply] = conversation.messages
  assert.deepEqual([user.id, user.phase], ["m_1", "saved"])
  assert.deepEqual([reply.id, reply.text, reply.finish, reply.phase, reply.live], ["m_2", "Hi!", "stop", "saved", false])
  assert.deepEqual(reply.usage, { output_tokens: 3 })
  assert.equal(kinds().filter((kind) => kind === "named").length, 1)
  assert.equal(kinds().filter((kind) => kind === "started").length, 1)
  assert.equal(changes.filter((change) => change.kind === "ended").length, 1)
})

test("a send goes below what the reader sees, and none goes while an answer is written", async () => {
  const { conversation, requests, ended } = open([detail({ messages: TWO }), () => streamResponse(answer(["x"]))], { id: "c_1" })
  await conversation.load()
  assert.equal(conversation.sendText("next"), true)
  assert.equal(conversation.sendText("too early"), false)
  assert.deepEqual(JSON.parse(requests[1].body), { content: "next", parent_id: "m_9" })
  assert.equal(requests[1].url, "/v1/conversations/c_1/messages")
  await ended()
  assert.equal(conversation.messages.length, 4)
})

test("a reply that is live elsewhere is shown, from its beginning", async () => {
  const { conversation, requests, ended } = open([detail({ messages: TWO.slice(0, 1), live: LIVE }), () => streamResponse(answer(["a", "b"]))], { id: "c_1" })
  await conversation.load()
  assert.equal(conversation.liveReply.id, "m_2")
  await ended()
  assert.equal(requests[1].url, `/v1/runs/${RUN}/stream`)
  assert.equal(conversation.messages.at(-1).text, "ab")
  assert.equal(conversation.messages.length, 2)
})

test("a live reply of another branch, or one that has just been stored, is not followed", async () => {
  const elsewhere = [{ ...LIVE[0], parent_id: "m_other" }]
  const stored = [{ ...LIVE[0], reply_id: "m_9" }]
  for (const live of [elsewhere, stored]) {
    const { conversation, requests } = open([detail({ messages: TWO, live })], { id: "c_1" })
    await conversation.load()
    assert.equal(conversation.liveReply, null)
    assert.equal(requests.length, 1)
  }
})

for (const [status, code] of [[429, "rate_limited"], [503, "unavailable"], [401, "not_signed_in"], [413, "too_large"]]) {
  test(`refused with ${status}, the message goes back and nothing of it stays`, async () => {
    const { conversation, changes, outbox, kinds } = open([detail({ messages: TWO }), () => errorResponse(status, { code, retryAfterS: 12 })], { id: "c_1" })
    await conversation.load()
    conversation.sendText("my words")
    await until(() => kinds().includes("refused"))
    const refused = changes.find((change) => change.kind === "refused")
    assert.equal(refused.text, "my words")
    assert.equal(refused.error.retryAfterS, 12)
    assert.deepEqual(conversation.messages.map((message) => message.id), ["m_8", "m_9"])
    assert.equal(conversation.liveReply, null)
    assert.equal(conversation.refusal.error.status, status)
    assert.equal(outbox.find("c_1"), null)
  })
}

test("stop before the run has a name is kept until it has one", async () => {
  let answerPost
  const posted = new Promise((resolve) => (answerPost = resolve))
  const { conversation, requests, ended } = open([
    () => posted.then(() => streamResponse([...answer([]).slice(0, 1), frame("done", doneData({ finish: "user_stopped" }), 2)])),
    () => Response.json({}),
  ])
  conversation.sendText("hello")
  await conversation.stop()
  assert.equal(conversation.stopping, true)
  assert.equal(requests.length, 1)
  answerPost()
  await ended()
  assert.equal(requests[1].url, `/v1/runs/${RUN}:stop`)
  assert.equal(requests[1].method, "POST")
  assert.equal(conversation.messages.at(-1).finish, "user_stopped")
  assert.equal(conversation.stopping, false)
})

test("a stop that fails can be pressed again", async () => {
  const { conversation, requests } = open([
    ({ signal }) => streamResponse(answer(["x"]).slice(0, 2), { then: "open", signal }),
    () => errorResponse(500),
    () => Response.json({}),
  ])
  conversation.sendText("hello")
  await until(() => conversation.liveReply.text === "x")
  await conversation.stop()
  assert.equal(conversation.stopping, false)
  assert.equal(conversation.notice.code, "stop_failed")
  await conversation.stop()
  assert.equal(requests.length, 3)
  conversation.close()
})

test("left before the server has answered, the send is seen through, then let go", async () => {
  let answerPost
  const { conversation, requests } = open([({ signal }) => new Promise((resolve) => (answerPost = () => resolve(streamResponse(answer(["x"]).slice(0, 1), { then: "open", signal }))))])
  conversation.sendText("hello")
  await until(() => answerPost)
  conversation.leave()
  assert.equal(conversation.leaving, true)
  answerPost()
  await until(() => conversation.id)
  assert.equal(conversation.unanswered, false)
  assert.equal(requests.length, 1)
})

test("left in mid-answer, it stops listening and tells nothing more", async () => {
  const { conversation, kinds } = open([({ signal }) => streamResponse(answer(["x"]).slice(0, 2), { then: "open", signal })])
  conversation.sendText("hello")
  await until(() => conversation.liveReply?.text === "x")
  conversation.leave()
  const before = kinds().length
  await new Promise((resolve) => setImmediate(resolve))
  assert.ok(!kinds().slice(before).includes("ended"))
})

test("a send repeated after a reload that turns out to be in the thread is shown once", async () => {
  const messages = [row("m_1", "user", "hello")]
  const live = [{ ...LIVE[0], parent_id: "m_1" }]
  const { conversation, outbox, ended } = open(
    [detail({ messages }), () => streamResponse(answer(["x"]).slice(0, 1), { then: "open" }), detail({ messages, live }), () => streamResponse(answer(["x", "y"]))],
    { id: "c_1" },
  )
  await conversation.load()
  conversation.sendAgain({ conversation: "c_1", body: { content: "hello" }, key: "key-0" })
  await ended()
  assert.deepEqual(conversation.messages.map((message) => message.text), ["hello", "xy"])
  assert.equal(outbox.find("c_1"), null)
})

test("a retract replaces the text and an error marks it", async () => {
  const frames = [
    frame("start", startData(), 1),
    frame("delta", { text: "bad" }, 2),
    frame("retract", { text: "taken back" }, 3),
    frame("error", { code: "x", message: "It broke", retryable: true }, 4),
    frame("done", doneData({ finish: "moderation" }), 5),
  ]
  const { conversation, ended } = open([() => streamResponse(frames)])
  conversation.sendText("hello")
  await ended()
  const reply = conversation.messages.at(-1)
  assert.deepEqual([reply.text, reply.retracted, reply.finish], ["taken back", true, "moderation"])
  assert.deepEqual(reply.error, { code: "x", message: "It broke", retryable: true })
})

test("an event of a later version is passed over", async () => {
  const frames = [frame("start", startData(), 1), frame("thought", { text: "hm" }, 2), frame("delta", { text: "x" }, 3), frame("done", doneData(), 4)]
  const { conversation, ended } = open([() => streamResponse(frames)])
  conversation.sendText("hello")
  await ended()
  assert.equal(conversation.messages.at(-1).text, "x")
})

test("missing and failed are told apart, and failed can be loaded again", async () => {
  const missing = open([() => errorResponse(404)], { id: "c_1" })
  await missing.conversation.load()
  assert.equal(missing.conversation.status, "missing")
  const failed = open([() => errorResponse(500), detail({ messages: TWO })], { id: "c_1" })
  await failed.conversation.load()
  assert.equal(failed.conversation.status, "failed")
  await failed.conversation.load()
  assert.equal(failed.conversation.status, "ready")
})

test("earlier messages come before, and their cursor is passed on", async () => {
  const { conversation, requests, changes } = open(
    [detail({ messages: TWO, before: "m_8" }), detail({ messages: [row("m_6", "user", "first")] })],
    { id: "c_1" },
  )
  await conversation.load()
  assert.equal(conversation.hasMoreBefore, true)
  await conversation.loadEarlier()
  assert.match(requests[1].url, /before=m_8/)
  assert.deepEqual(conversation.messages.map((message) => message.id), ["m_6", "m_8", "m_9"])
  assert.equal(conversation.hasMoreBefore, false)
  assert.deepEqual(changes.at(-1).messages.map((message) => message.id), ["m_6"])
})

test("earlier messages that cannot be loaded are told, and can be asked for again", async () => {
  const { conversation, kinds } = open(
    [detail({ messages: TWO, before: "m_8" }), () => errorResponse(500), detail({ messages: [row("m_6", "user", "first")] })],
    { id: "c_1" },
  )
  await conversation.load()
  await conversation.loadEarlier()
  assert.deepEqual([conversation.earlierError.status, conversation.hasMoreBefore, kinds().at(-1)], [500, true, "earlierFailed"])
  await conversation.loadEarlier()
  assert.deepEqual([conversation.earlierError, conversation.messages[0].id, kinds().at(-1)], [null, "m_6", "prepended"])
})

test("looking again draws only what another device has changed", async () => {
  const more = [...TWO, row("m_a", "user", "from the phone"), row("m_b", "assistant", "there")]
  const { conversation, changes } = open([detail({ messages: TWO }), detail({ messages: TWO }), detail({ messages: more })], { id: "c_1" })
  await conversation.load()
  const drawn = () => changes.filter(({ kind }) => ["reset", "added"].includes(kind)).map(({ kind, own }) => [kind, own])
  await conversation.look()
  assert.deepEqual(drawn(), [["reset", undefined]])
  await conversation.look()
  assert.deepEqual(drawn().slice(1), [["added", false], ["added", false]], "below, and not as the reader's own doing")
  assert.equal(conversation.messages.length, 4)
})
