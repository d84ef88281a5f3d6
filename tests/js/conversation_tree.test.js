import assert from "node:assert/strict"
import { test } from "node:test"

import { answer, doneData, errorResponse, frame, RUN, startData, streamResponse, until } from "./support.js"
import { detail, LIVE, open, row } from "./threads.js"

const run = (finish = "stop") => ({ id: "g_9", finish, model: "demo", usage: { output_tokens: 1 } })
const place = (index, count, previous = null, next = null) => ({ index, count, previous, next })

/** q1, a1, q2, a2: what most of these tests begin with. */
function four(last = {}) {
  return [
    row("m_1", "user", "q1"),
    row("m_2", "assistant", "a1", run(), { parent_id: "m_1" }),
    row("m_3", "user", "q2", null, { parent_id: "m_2" }),
    row("m_4", "assistant", "a2", run(), { parent_id: "m_3", ...last }),
  ]
}

async function opened(answers, rows = four()) {
  const world = open([detail({ messages: rows }), ...answers], { id: "c_1" })
  await world.conversation.load()
  return world
}

const ids = (conversation) => conversation.messages.map((message) => message.id)
const texts = (conversation) => conversation.messages.map((message) => message.text)
const start = (more) => frame("start", startData(more), 1)
const done = (seq, more) => frame("done", doneData(more), seq)
const stays = (frames) => ({ signal }) => streamResponse(frames, { then: "open", signal })
const ends = (frames) => () => streamResponse(frames)
const bodyOf = (request) => JSON.parse(request.body)

// --- edit -------------------------------------------------------------------------------------------

test("an edit is a send to the parent of the edited message, shown in its place", async () => {
  const { conversation, requests, changes, ended } = await opened([ends([start({ user_msg: "m_5", reply_msg: "m_6" }), done(2, { active_leaf: "m_6" })]), detail({ messages: four() })])
  assert.equal(conversation.edit(conversation.messages[2], "better", { model: "small" }), true)
  assert.deepEqual(texts(conversation), ["q1", "a1", "better", ""])
  assert.deepEqual(conversation.messages[2].versions, place(2, 2, "m_3"), "counted at once")
  const { removed, added } = changes.find(({ kind }) => kind === "replaced")
  assert.deepEqual([removed.map(({ id }) => id), added.length], [["m_3", "m_4"], 2])
  await ended()
  assert.equal(requests[1].url, "/v1/conversations/c_1/messages")
  assert.deepEqual(bodyOf(requests[1]), { content: "better", parent_id: "m_2", model: "small" })
  assert.deepEqual(ids(conversation), ["m_1", "m_2", "m_5", "m_6"])
})

test("the first message is edited at the root", async () => {
  const { conversation, requests } = await opened([stays([start()])])
  conversation.edit(conversation.messages[0], "other")
  await until(() => requests.length > 1)
  assert.deepEqual(bodyOf(requests[1]), { content: "other", parent_id: null })
  conversation.close()
})

test("a refused edit brings back what was shown, and the text goes to where it was typed", async () => {
  const { conversation, changes, outbox } = await opened([() => errorResponse(429, { retryAfterS: 9 })])
  const [, , edited] = conversation.messages
  conversation.edit(edited, "my words")
  assert.ok(outbox.find("c_1"), "kept until the server has answered")
  await until(() => conversation.refusal)
  const refused = changes.find(({ kind }) => kind === "refused")
  assert.deepEqual([refused.text, refused.edited], ["my words", edited])
  assert.equal(conversation.refusal.kept, "in its place")
  assert.deepEqual(ids(conversation), ["m_1", "m_2", "m_3", "m_4"])
  assert.equal(outbox.find("c_1"), null)
})

test("an edit while another answer is being written leaves that one to itself, and takes it up again when refused", async () => {
  const rows = four().slice(0, 3)
  const runs = [{ ...LIVE[0], reply_id: "m_4", parent_id: "m_3" }]
  const world = open(
    [
      detail({ messages: rows, live: runs }),
      stays([start({ reply_msg: "m_4" }), frame("delta", { text: "a" }, 2)]),
      () => errorResponse(503),
      ends([frame("delta", { text: "b" }, 3), done(4)]),
    ],
    { id: "c_1" },
  )
  const { conversation, requests, ended } = world
  await conversation.load()
  await until(() => conversation.liveReply.text === "a")
  conversation.edit(conversation.messages[0], "other")
  assert.deepEqual(texts(conversation), ["other", ""])
  await ended()
  assert.equal(requests[3].headers["Last-Event-ID"], `${RUN}:2`, "from where it was left")
  assert.deepEqual(texts(conversation), ["q1", "a1", "q2", "ab"])
})

test("an edit that a reload cut off is sent again in its place", async () => {
  const { conversation, requests } = await opened([stays([start()])])
  const letter = { conversation: "c_1", key: "k", body: { content: "better", parent_id: "m_2" } }
  conversation.sendAgain(letter)
  assert.deepEqual(texts(conversation), ["q1", "a1", "better", ""])
  await until(() => requests.length > 1)
  assert.equal(requests[1].headers["Idempotency-Key"], "k")
  conversation.close()
})

// --- regenerate, continue --------------------------------------------------------------------------

test("regenerate shows the new version at once, with its place", async () => {
  const { conversation, requests, ended } = await opened([
    ends([start({ user_msg: "m_3", reply_msg: "m_6", model: "small" }), frame("delta", { text: "other" }, 2), done(3, { active_leaf: "m_6" })]),
    detail({ messages: four() }),
  ])
  assert.equal(conversation.regenerate(conversation.messages[3], { model: "small" }), true)
  assert.deepEqual(conversation.leaf.versions, place(2, 2, "m_4"))
  await ended()
  assert.equal(requests[1].url, "/v1/conversations/c_1/messages/m_4:regenerate")
  assert.deepEqual(bodyOf(requests[1]), { model: "small" })
  assert.ok(requests[1].headers["Idempotency-Key"])
  assert.deepEqual([conversation.leaf.id, conversation.leaf.text, conversation.leaf.model], ["m_6", "other", "small"])
})

test("a refused regenerate brings the old reply back", async () => {
  const { conversation, changes } = await opened([() => errorResponse(429)])
  const old = conversation.leaf
  conversation.regenerate(old)
  await until(() => conversation.refusal)
  assert.equal(conversation.leaf, old)
  assert.deepEqual([conversation.refusal.kept, changes.find(({ kind }) => kind === "refused").text], [null, null])
})

test("a continued reply keeps its text from the first moment", async () => {
  const { conversation, requests, ended } = await opened(
    [
      ends([start({ user_msg: "m_3", reply_msg: "m_6" }), frame("snapshot", { text: "a2" }, 2), frame("delta", { text: " goes on" }, 3), done(4, { active_leaf: "m_6" })]),
      detail({ messages: four() }),
    ],
    four({ run: run("user_stopped") }),
  )
  assert.equal(conversation.continueReply(conversation.leaf), true)
  assert.equal(conversation.leaf.text, "a2")
  await ended()
  assert.equal(requests[1].url, "/v1/conversations/c_1/messages/m_4:continue")
  assert.deepEqual(bodyOf(requests[1]), {})
  assert.equal(conversation.leaf.text, "a2 goes on")
})

test("only a reply that was cut off can be continued", async () => {
  for (const finish of ["length", "user_stopped", "interrupted", "error"]) {
    const { conversation } = await opened([], four({ run: run(finish) }))
    assert.ok(conversation.leaf.continuable, finish)
  }
  for (const rows of [four(), four({ run: run("moderation") }), four({ run: run("length"), content: [] }), four({ run: run("length"), readable: false })]) {
    const { conversation, requests } = await opened([], rows)
    assert.equal(conversation.continueReply(conversation.leaf), false)
    assert.equal(requests.length, 1)
  }
})

test("nothing else begins while the server has not answered", async () => {
  const { conversation, requests } = await opened([stays([])])
  conversation.sendText("next")
  assert.equal(conversation.edit(conversation.messages[0], "x"), false)
  assert.equal(conversation.regenerate(conversation.messages[1]), false)
  assert.equal(await conversation.showVersion(conversation.messages[0], "next"), null)
  assert.equal(requests.length, 2)
  conversation.close()
})

// --- versions ----------------------------------------------------------------------------------------

const other = (text) => [row("m_5", "user", text, null, { parent_id: "m_2", versions: place(2, 2, "m_3") }), row("m_6", "assistant", `to ${text}`, run(), { parent_id: "m_5" })]
const twoVersions = () => four().map((one) => (one.id === "m_3" ? { ...one, versions: place(1, 2, null, "m_5") } : one))

test("another version is chosen on the server and takes the place of the end", async () => {
  const { conversation, requests, changes } = await opened([() => Response.json({}), detail({ messages: [...four().slice(0, 2), ...other("q2b")] })], twoVersions())
  const shown = await conversation.showVersion(conversation.messages[2], "next")
  assert.deepEqual([requests[1].method, requests[1].url], ["PUT", "/v1/conversations/c_1/active_leaf"])
  assert.deepEqual(bodyOf(requests[1]), { message: "m_5" })
  assert.equal(shown.id, "m_5")
  assert.deepEqual(ids(conversation), ["m_1", "m_2", "m_5", "m_6"])
  const { removed, added } = changes.find(({ kind }) => kind === "replaced")
  assert.deepEqual([removed, added].map((list) => list.map(({ id }) => id)), [["m_3", "m_4"], ["m_5", "m_6"]])
})

test("a version whose end is far below is read page by page until it joins", async () => {
  const pages = [() => Response.json({}), detail({ messages: other("q2b").slice(1), before: "m_6" }), detail({ messages: [...four().slice(1, 2), ...other("q2b").slice(0, 1)], before: "m_2" })]
  const { conversation, requests } = await opened(pages, twoVersions())
  await conversation.showVersion(conversation.messages[2], "next")
  assert.match(requests[3].url, /before=m_6/)
  assert.deepEqual(ids(conversation), ["m_1", "m_2", "m_5", "m_6"])
})

test("what stands above the topmost message shown can still be read after its version has changed", async () => {
  const above = detail({ messages: four().slice(0, 2) })
  const pages = [detail({ messages: twoVersions().slice(2), before: "m_3" }), () => Response.json({}), detail({ messages: other("q2b"), before: "m_5" }), above, above]
  const { conversation, requests } = open(pages, { id: "c_1" })
  await conversation.load()
  await conversation.showVersion(conversation.messages[0], "next")
  assert.deepEqual([ids(conversation), conversation.hasMoreBefore], [["m_5", "m_6"], true])
  await conversation.loadEarlier()
  assert.match(requests.at(-1).url, /before=m_3/)
  assert.deepEqual([ids(conversation), conversation.hasMoreBefore], [["m_1", "m_2", "m_5", "m_6"], false])
})

test("a version that cannot be shown is told, and everything stays", async () => {
  const { conversation } = await opened([() => errorResponse(500)], twoVersions())
  assert.equal(await conversation.showVersion(conversation.messages[2], "next"), null)
  assert.deepEqual([conversation.failure.what, conversation.switching], ["switch", false])
  assert.deepEqual(ids(conversation), ["m_1", "m_2", "m_3", "m_4"])
})

const liveBeside = [{ id: RUN, reply_id: "m_7", parent_id: "m_3", status: "running", model: "demo", versions: place(2, 2, "m_4") }]
const withLive = () => four({ versions: place(1, 2, null, "m_7") })

async function besideLive(answers) {
  const world = open([detail({ messages: withLive(), live: liveBeside }), ...answers], { id: "c_1" })
  await world.conversation.load()
  return world
}

test("a live version is shown by following its run, and chosen when it has ended", async () => {
  const { conversation, requests, ended } = await besideLive([
    ends([start({ user_msg: "m_3", reply_msg: "m_7" }), frame("delta", { text: "new" }, 2), done(3, { active_leaf: "m_4" })]),
    detail({ messages: withLive(), leaf: "m_4", etag: '"7"' }),
    () => Response.json({}),
    detail({ messages: [...four().slice(0, 3), row("m_7", "assistant", "new", run(), { parent_id: "m_3", versions: place(2, 2, "m_4") })] }),
  ])
  const shown = await conversation.showVersion(conversation.leaf, "next")
  assert.deepEqual([shown.id, shown.versions], ["m_7", place(2, 2, "m_4")])
  assert.equal(requests[1].url, `/v1/runs/${RUN}/stream`, "it cannot be the active leaf yet")
  await ended()
  await until(() => requests.length === 5)
  assert.deepEqual([requests[3].method, bodyOf(requests[3]), requests[3].headers["If-Match"]], ["PUT", { message: "m_7" }, '"7"'])
  assert.deepEqual([conversation.leaf.text, conversation.elsewhere], ["new", false])
})

test("what was chosen on another device meanwhile is not overruled", async () => {
  const { conversation, requests, ended } = await besideLive([
    ends([start({ user_msg: "m_3", reply_msg: "m_7" }), done(2, { active_leaf: "m_x" })]),
    detail({ messages: withLive(), leaf: "m_x" }),
    detail({ messages: withLive(), leaf: "m_x" }),
  ])
  await conversation.showVersion(conversation.leaf, "next")
  await ended()
  await until(() => requests.length === 4)
  assert.ok(requests.every(({ method }) => method !== "PUT"))
  await until(() => conversation.elsewhere)
})

test("left for another version, a live reply is taken up where it was", async () => {
  const { conversation, requests, ended } = await besideLive([
    stays([start({ user_msg: "m_3", reply_msg: "m_7" }), frame("delta", { text: "n" }, 2)]),
    () => Response.json({}),
    detail({ messages: withLive(), live: liveBeside }),
    ends([frame("delta", { text: "ew" }, 3), done(4, { active_leaf: "m_7" })]),
  ])
  await conversation.showVersion(conversation.leaf, "next")
  await until(() => conversation.leaf.text === "n")
  await conversation.showVersion(conversation.leaf, "previous")
  assert.equal(conversation.leaf.id, "m_4")
  await conversation.showVersion(conversation.leaf, "next")
  assert.equal(conversation.leaf.text, "n", "nothing is read twice")
  await ended()
  assert.equal(requests[4].headers["Last-Event-ID"], `${RUN}:2`)
  assert.equal(conversation.leaf.text, "new")
})

test("a version that turns out to be live is followed instead of chosen", async () => {
  const { conversation, requests } = await opened(
    [() => errorResponse(409, { code: "run_live" }), detail({ messages: withLive(), live: liveBeside }), stays([start({ reply_msg: "m_7" })])],
    withLive(),
  )
  const shown = await conversation.showVersion(conversation.leaf, "next")
  assert.equal(shown.id, "m_7")
  assert.deepEqual(requests.slice(1).map(({ method = "GET", url }) => `${method} ${url.split("?")[0]}`), ["PUT /v1/conversations/c_1/active_leaf", "GET /v1/conversations/c_1", `GET /v1/runs/${RUN}/stream`])
  conversation.close()
})

test("a version that was live and has just ended is chosen", async () => {
  const { conversation, requests } = await opened(
    [
      () => errorResponse(409, { code: "run_live" }),
      detail({ messages: withLive() }),
      () => Response.json({}),
      detail({ messages: [...four().slice(0, 3), row("m_7", "assistant", "new", run(), { parent_id: "m_3" })] }),
    ],
    withLive(),
  )
  assert.equal((await conversation.showVersion(conversation.leaf, "next")).text, "new")
  assert.equal(requests.filter(({ method }) => method === "PUT").length, 2)
})

// --- several live runs, other devices ---------------------------------------------------------------

test("of several live replies to one message the newest is followed, and only that one", async () => {
  const runs = [{ ...LIVE[0], id: "g_old", reply_id: "m_4", parent_id: "m_3" }, { ...LIVE[0], reply_id: "m_5", parent_id: "m_3" }]
  const world = open([detail({ messages: four().slice(0, 3), live: runs }), stays([start({ reply_msg: "m_5" })])], { id: "c_1" })
  await world.conversation.load()
  await until(() => world.requests.length === 2)
  assert.equal(world.conversation.leaf.id, "m_5")
  assert.equal(world.requests[1].url, `/v1/runs/${RUN}/stream`)
  world.conversation.close()
})

test("a message and a live answer of another device come below, and are followed", async () => {
  const more = [...four(), row("m_8", "user", "from the phone", null, { parent_id: "m_4" })]
  const { conversation, ended } = await opened([
    detail({ messages: more, live: [{ ...LIVE[0], reply_id: "m_9", parent_id: "m_8" }] }),
    ends([start({ user_msg: "m_8", reply_msg: "m_9" }), frame("delta", { text: "there" }, 2), done(3, { active_leaf: "m_9" })]),
  ])
  await conversation.look()
  await ended()
  assert.deepEqual(texts(conversation).slice(4), ["from the phone", "there"])
  assert.equal(conversation.elsewhere, false)
})

test("another branch on another device is told and counted; the view stays until the reader asks", async () => {
  const elsewhere = [...four().slice(0, 2), ...other("q2b")]
  const { conversation, kinds } = await opened([detail({ messages: elsewhere }), detail({ messages: elsewhere })])
  await conversation.look()
  assert.deepEqual(ids(conversation), ["m_1", "m_2", "m_3", "m_4"])
  assert.equal(conversation.elsewhere, true)
  assert.deepEqual(conversation.messages[2].versions, place(1, 2, null, "m_5"))
  assert.ok(!kinds().includes("replaced"))
  await conversation.load()
  assert.deepEqual(ids(conversation), ["m_1", "m_2", "m_5", "m_6"])
  assert.equal(conversation.elsewhere, false)
})

test("an answer regenerated on another device is counted while it is written", async () => {
  const { conversation } = await opened([detail({ messages: four().slice(0, 3), live: liveBeside })])
  await conversation.look()
  assert.deepEqual([conversation.leaf.id, conversation.leaf.versions, conversation.elsewhere], ["m_4", place(1, 2, null, "m_7"), true])
})

test("a rename, a feedback and a lost text of another device are seen", async () => {
  const rows = four({ feedback: { rating: "up", reason: "" } })
  rows[0] = { ...rows[0], content: [], readable: false }
  const { conversation, kinds } = await opened([detail({ messages: rows, title: "New name" })])
  await conversation.look()
  assert.deepEqual([conversation.title, conversation.leaf.feedback.rating, conversation.messages[0].readable], ["New name", "up", false])
  assert.ok(kinds().includes("titled"))
})

test("while a send is not answered, a look moves nothing, and is made up for", async () => {
  let answerPost
  const { conversation, requests } = await opened([
    () => new Promise((resolve) => (answerPost = () => resolve(streamResponse([start({ user_msg: "m_8", reply_msg: "m_9" })], { then: "open" })))),
    detail({ messages: [...four(), row("m_x", "user", "elsewhere")] }),
    detail({ messages: [...four(), row("m_8", "user", "next")], live: [{ ...LIVE[0], reply_id: "m_9", parent_id: "m_8" }] }),
  ])
  conversation.sendText("next")
  await conversation.look()
  assert.deepEqual(texts(conversation).slice(4), ["next", ""])
  answerPost()
  await until(() => requests.length === 4)
  assert.deepEqual(texts(conversation).slice(4), ["next", ""])
  conversation.close()
})

test("a conversation that was deleted elsewhere is missing, and back when it was restored", async () => {
  const { conversation } = await opened([() => errorResponse(404), detail({ messages: four() })])
  await conversation.look()
  assert.deepEqual([conversation.status, conversation.messages.length], ["missing", 0])
  await conversation.look()
  assert.deepEqual([conversation.status, conversation.messages.length], ["ready", 4])
})

test("a look that fails changes nothing", async () => {
  const { conversation } = await opened([() => errorResponse(500)])
  await conversation.look()
  assert.deepEqual([conversation.status, conversation.messages.length], ["ready", 4])
})

// --- a follow-up to a stopping answer ------------------------------------------------------------------

function stopping(answers) {
  const world = open(
    [detail({ messages: four().slice(0, 3), live: [{ ...LIVE[0], reply_id: "m_4", parent_id: "m_3" }] }), stays([start({ reply_msg: "m_4" }), frame("delta", { text: "a" }, 2)]), ...answers],
    { id: "c_1" },
  )
  return world
}

/** Ends the answer that is being written, as the server does after a stop. */
function endable() {
  let controller
  const encoder = new TextEncoder()
  const body = new ReadableStream({ start: (one) => (controller = one) })
  const say = (text) => controller.enqueue(encoder.encode(text))
  return { answer: () => new Response(body, { status: 200 }), say }
}

test("a follow-up waits for the end of the stopped answer, then goes below it", async () => {
  const stream = endable()
  const world = open(
    [
      detail({ messages: four().slice(0, 3), live: [{ ...LIVE[0], reply_id: "m_4", parent_id: "m_3" }] }),
      stream.answer,
      () => Response.json({}),
      ends([start({ user_msg: "m_5", reply_msg: "m_6" }), done(2, { active_leaf: "m_6" })]),
    ],
    { id: "c_1" },
  )
  const { conversation, requests, outbox } = world
  await conversation.load()
  stream.say(start({ user_msg: "m_3", reply_msg: "m_4" }) + frame("delta", { text: "a" }, 2))
  await until(() => conversation.liveReply?.text === "a")
  assert.equal(conversation.sendText("too early"), false)
  conversation.stop()
  assert.equal(conversation.sendText("follow-up"), true)
  assert.equal(conversation.sendText("one is enough"), false)
  assert.deepEqual([conversation.waitsForStop, conversation.unanswered, requests.length], [true, true, 3])
  assert.ok(outbox.find("c_1"), "a reload would not lose it")
  stream.say(done(3, { finish: "user_stopped", active_leaf: "m_4" }))
  await until(() => requests.length === 4)
  assert.deepEqual(bodyOf(requests[3]), { content: "follow-up", parent_id: "m_4" })
  await until(() => conversation.leaf.id === "m_6" && !conversation.liveReply)
  assert.deepEqual(ids(conversation), ["m_1", "m_2", "m_3", "m_4", "m_5", "m_6"])
})

test("a waiting follow-up can be taken back with the stop button", async () => {
  const { conversation, changes, outbox, requests } = stopping([() => Response.json({})])
  await conversation.load()
  await until(() => conversation.liveReply?.text === "a")
  conversation.stop()
  conversation.sendText("follow-up")
  conversation.stop()
  assert.equal(changes.find(({ kind }) => kind === "refused").text, "follow-up")
  assert.deepEqual([conversation.leaf.id, conversation.waitsForStop, outbox.find("c_1"), requests.length], ["m_4", false, null, 3])
  conversation.close()
})

test("a stop that fails gives the waiting follow-up back", async () => {
  const { conversation, changes } = stopping([() => errorResponse(500)])
  await conversation.load()
  await until(() => conversation.liveReply?.text === "a")
  conversation.stop()
  conversation.sendText("follow-up")
  await until(() => changes.some(({ kind }) => kind === "refused"))
  assert.deepEqual([conversation.leaf.id, conversation.stopping, conversation.notice.code], ["m_4", false, "stop_failed"])
  conversation.close()
})

// --- feedback --------------------------------------------------------------------------------------------

test("a feedback shows at once, and is saved", async () => {
  const { conversation, requests } = await opened([() => Response.json({})])
  const saved = conversation.rate(conversation.leaf, "down", "too short")
  assert.deepEqual(conversation.leaf.feedback, { rating: "down", reason: "too short" })
  assert.equal(await saved, true)
  assert.equal(requests[1].url, "/v1/messages/m_4/feedback")
  assert.deepEqual(bodyOf(requests[1]), { rating: "down", reason: "too short" })
})

test("a feedback that cannot be saved is taken back and told", async () => {
  const { conversation } = await opened([() => errorResponse(500)], four({ feedback: { rating: "up", reason: "" } }))
  assert.equal(await conversation.rate(conversation.leaf, null), false)
  assert.deepEqual([conversation.leaf.feedback.rating, conversation.failure.what], ["up", "feedback"])
})

test("of two quick feedbacks the later one stands, however they are answered", async () => {
  let fail
  const { conversation } = await opened([() => new Promise((resolve) => (fail = () => resolve(errorResponse(500)))), () => Response.json({})])
  const first = conversation.rate(conversation.leaf, "up")
  const second = conversation.rate(conversation.leaf, "down")
  assert.equal(await second, true)
  fail()
  assert.equal(await first, false)
  assert.deepEqual([conversation.leaf.feedback.rating, conversation.failure], ["down", null])
})

test("a look does not undo a feedback that is being saved", async () => {
  let save
  const { conversation } = await opened([() => new Promise((resolve) => (save = () => resolve(Response.json({})))), detail({ messages: four() })])
  const saved = conversation.rate(conversation.leaf, "up")
  await conversation.look()
  assert.equal(conversation.leaf.feedback?.rating, "up")
  save()
  await saved
})
