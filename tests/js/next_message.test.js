import assert from "node:assert/strict"
import { test } from "node:test"

import { MAX_AGE_MS, NextMessage } from "#js/models/next_message.js"
import { forgetOthers, nextKey } from "#js/models/storage.js"

import { answer, doneData, errorResponse, frame, MemoryStorage, RUN, settle, startData, streamResponse, until } from "./support.js"
import { detail, LIVE, open, row } from "./threads.js"

const HEAD = [frame("start", startData(), 1), frame("delta", { text: "one" }, 2)]
const end = (more) => frame("done", doneData(more), 3)

/** A page: a conversation and its next message, wired as the controller does. */
function page({ answers, storage = new MemoryStorage(), tabStorage = new MemoryStorage(), id = null, now = () => 0 }) {
  const thread = open(answers, { id })
  const next = new NextMessage({ storage, tabStorage, user: "u", newKey: () => "next-key", now })
  const told = []
  next.on(({ kind }) => told.push(kind))
  next.open(id)
  thread.conversation.on(({ kind }) => {
    if (kind === "named") next.rename(thread.conversation.id)
    if (kind === "state") next.consider(thread.conversation)
  })
  const bodies = () => thread.requests.filter(({ method }) => method === "POST").map(({ body, headers }) => [JSON.parse(body).content, headers["Idempotency-Key"]])
  return { ...thread, next, storage, tabStorage, told, bodies }
}

/** A stream whose end the test lets come. */
function held() {
  let finish
  const gate = new Promise((resolve) => (finish = resolve))
  const body = new ReadableStream({
    async start(controller) {
      for (const piece of HEAD) controller.enqueue(new TextEncoder().encode(piece))
      const last = await gate
      controller.enqueue(new TextEncoder().encode(last))
      controller.close()
    },
  })
  return { response: () => new Response(body, { status: 200 }), finish }
}

async function writing(more = {}) {
  const stream = held()
  const here = page({ answers: [stream.response, ...(more.answers ?? [])], ...more.options })
  here.conversation.sendText("first")
  here.next.put("second", { live: here.conversation.liveReply })
  await until(() => here.conversation.liveReply?.text === "one")
  return { ...here, finish: stream.finish }
}

const SECOND = () => streamResponse(answer(["two"]))
const NEW_REPLY = { answers: [SECOND] }

test("what waits is sent when the answer has ended, below it, with its own key", async () => {
  const here = await writing(NEW_REPLY)
  assert.deepEqual(here.next.shown, { text: "second", held: false })
  assert.equal(here.bodies().length, 1, "not before")
  here.finish(end())
  await until(() => here.bodies().length === 2)
  assert.deepEqual(here.bodies()[1], ["second", "next-key"])
  assert.equal(JSON.parse(here.requests[1].body).parent_id, "m_2")
  assert.equal(here.next.shown, null)
  assert.deepEqual([here.storage.keys, here.tabStorage.keys], [[], []])
})

test("one that reached its length limit ended by itself, too", async () => {
  const here = await writing(NEW_REPLY)
  here.finish(end({ finish: "length" }))
  await until(() => here.bodies().length === 2)
})

for (const finish of ["user_stopped", "interrupted", "error", "moderation", "unwatched"]) {
  test(`after an answer that ended as ${finish} it is held, and sent when told to`, async () => {
    const here = await writing(NEW_REPLY)
    here.finish(end({ finish }))
    await until(() => here.told.includes("held"))
    await settle()
    assert.deepEqual([here.next.shown, here.bodies().length], [{ text: "second", held: true }, 1])
    here.next.release(here.conversation)
    await until(() => here.bodies().length === 2)
    assert.equal(here.next.shown, null)
  })
}

test("a send that was refused leaves it held", async () => {
  const here = page({ answers: [() => errorResponse(429, { code: "busy", retryAfterS: 5 })] })
  here.conversation.sendText("first")
  here.next.put("second", { live: here.conversation.liveReply })
  await until(() => here.told.includes("held"))
  assert.deepEqual(here.next.shown, { text: "second", held: true })
})

test("after a reload it still waits for the answer that is being written", async () => {
  const { storage } = await writing()
  const stream = held()
  const user = row("m_8", "user", "first")
  const again = page({ storage, id: "c_1", answers: [detail({ messages: [user], live: LIVE }), stream.response, SECOND] })
  assert.deepEqual(again.next.shown, { text: "second", held: false }, "kept under the id that it got")
  await again.conversation.load()
  await settle()
  assert.deepEqual(again.bodies(), [])
  stream.finish(end())
  await until(() => again.bodies().length === 1)
})

test("an answer that ended while the page was away lets it go; a long absence asks first", async () => {
  const ended = [row("m_8", "user", "first"), row("m_2", "assistant", "one", { id: RUN, finish: "stop", model: "demo", usage: null })]
  const { storage } = await writing()
  const copy = new MemoryStorage()
  for (const key of storage.keys) copy.setItem(key, storage.getItem(key))
  const soon = page({ storage, id: "c_1", answers: [detail({ messages: ended }), SECOND] })
  await soon.conversation.load()
  await until(() => soon.bodies().length === 1)
  const late = page({ storage: copy, id: "c_1", answers: [detail({ messages: ended })], now: () => MAX_AGE_MS + 1 })
  await late.conversation.load()
  await settle()
  assert.deepEqual([late.next.shown.held, late.bodies()], [true, []])
})

test("a conversation that went on elsewhere holds it", async () => {
  const { storage } = await writing()
  const other = [row("m_8", "user", "x"), row("m_77", "assistant", "y", { id: RUN, finish: "stop", model: "demo", usage: null })]
  const again = page({ storage, id: "c_1", answers: [detail({ messages: other })] })
  await again.conversation.load()
  assert.equal(again.next.shown.held, true)
})

test("of two tabs only one sends it", async () => {
  const first = await writing(NEW_REPLY)
  const stream = held()
  const second = page({ storage: first.storage, id: "c_1", answers: [detail({ messages: [row("m_8", "user", "first")], live: LIVE }), stream.response] })
  await second.conversation.load()
  await until(() => second.conversation.liveReply?.text === "one")
  first.finish(end())
  await until(() => first.bodies().length === 2)
  stream.finish(end())
  await until(() => !second.conversation.liveReply)
  await settle()
  assert.deepEqual([second.bodies(), second.next.shown], [[], null])
})

test("what another tab has sent does not come back", async () => {
  const first = await writing({ answers: [SECOND] })
  const stream = held()
  const thread = [row("m_8", "user", "first")]
  const second = page({ storage: first.storage, id: "c_1", answers: [detail({ messages: thread, live: LIVE }), stream.response] })
  await second.conversation.load()
  await until(() => second.conversation.liveReply?.text === "one")
  first.finish(end())
  await until(() => first.bodies().length === 2)
  // The second tab sees the answer stopped: to it, the message would have to be held.
  stream.finish(end({ finish: "user_stopped" }))
  await until(() => !second.conversation.liveReply)
  await settle()
  assert.deepEqual([second.told.includes("held"), second.next.shown, first.storage.keys], [false, null, []])
})

test("what another tab has sent is not written again for another answer", async () => {
  const storage = new MemoryStorage()
  const here = page({ storage, id: "c_1", answers: [] })
  here.next.put("second", { live: { id: "m_2" } })
  storage.removeItem(nextKey("u", "c_1"))
  here.next.consider({ id: "c_1", liveReply: { id: "m_4" } })
  assert.deepEqual([here.next.shown, storage.keys], [null, []])
  here.next.put("third", { live: { id: "m_4" } })
  storage.removeItem(nextKey("u", "c_1"))
  assert.equal(here.next.drop(), "", "what has been sent is not given back either")
})

test("new conversations of several tabs know nothing of each other's message", () => {
  const storage = new MemoryStorage()
  const tabs = [1, 2].map(() => page({ storage, answers: [] }))
  tabs[0].next.put("waits", { live: null })
  tabs[1].next.changedElsewhere(nextKey("u", null))
  assert.equal(tabs[1].next.shown, null)
  tabs[1].next.open(null)
  tabs[1].next.consider({ id: null, liveReply: null, leaf: null, free: true })
  assert.deepEqual([tabs[0].next.shown, tabs[1].next.shown], [{ text: "waits", held: false }, null])
  assert.deepEqual([storage.keys, tabs[0].tabStorage.keys], [[], [nextKey("u", null)]])
})

test("more is added to what waits, but not beyond what a message may have", async () => {
  const here = await writing(NEW_REPLY)
  const live = here.conversation.liveReply
  assert.equal(here.next.put("third", { live, maxBytes: 13 }), true)
  assert.equal(here.next.put("é", { live, maxBytes: 15 }), false)
  assert.equal(here.next.shown.text, "second\n\nthird")
  here.finish(end())
  await until(() => here.bodies().length === 2)
})

test("taken back, nothing is sent", async () => {
  const here = await writing()
  assert.equal(here.next.drop(), "second")
  here.finish(end())
  await here.ended()
  await settle()
  assert.deepEqual([here.bodies().length, here.storage.keys, here.tabStorage.keys], [1, [], []])
})

test("left before its conversation has an id, it is kept for that id", () => {
  const storage = new MemoryStorage()
  const tabStorage = new MemoryStorage()
  const next = new NextMessage({ storage, tabStorage, user: "u", newKey: () => "k", now: () => 0 })
  next.open(null)
  next.put("waits", { live: null })
  const settleIt = next.leaveUnnamed()
  assert.deepEqual([next.shown, storage.keys, tabStorage.keys], [null, [], []])
  assert.equal(settleIt("c_5"), "waits")
  next.open("c_5")
  assert.equal(next.shown.text, "waits")
})

test("without storage, or with rubbish in it, it lives with the page", () => {
  const none = new NextMessage({ storage: null, tabStorage: null, user: "u" })
  none.open("c_1")
  none.put("text", { live: null })
  assert.equal(none.shown.text, "text")
  const storage = new MemoryStorage()
  for (const rubbish of ["{", "[]", "null", '{"text":5}']) {
    storage.setItem(nextKey("u", "c_1"), rubbish)
    const next = new NextMessage({ storage, user: "u" })
    next.open("c_1")
    assert.equal(next.shown, null, rubbish)
  }
})

test("another person's waiting message is removed", () => {
  const storage = new MemoryStorage()
  storage.setItem(nextKey("ada", "c_1"), "{}")
  storage.setItem(nextKey("bob", null), "{}")
  forgetOthers({ storages: [storage], user: "bob" })
  assert.deepEqual(storage.keys, [nextKey("bob", null)])
})
