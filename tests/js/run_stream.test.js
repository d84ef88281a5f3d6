import assert from "node:assert/strict"
import { test } from "node:test"

import { Api } from "#js/models/api.js"
import { MAX_WAIT_MS } from "#js/models/backoff.js"
import { judge, parseCursor } from "#js/models/cursor.js"
import { MAX_SEND_TRIES, RunStream, SILENCE_MS } from "#js/models/run_stream.js"

import { answer, doneData, errorResponse, FakeTimers, frame, RUN, scriptedFetch, startData, streamResponse, until } from "./support.js"

const LETTER = { conversation: null, body: { content: "hello" }, key: "key-1" }

/** Follows a run against scripted answers; time passes by `timers`. */
function follow(answers, { send = LETTER, run = null } = {}) {
  const { fetch, requests } = scriptedFetch(answers)
  const timers = new FakeTimers()
  const events = []
  const links = []
  const stream = new RunStream({
    api: new Api({ csrf: "csrf", fetch }),
    send: run ? null : send,
    run,
    timers,
    random: () => 0.5,
    onEvent: (event) => events.push(event),
    onLink: (link) => links.push(link),
  })
  const ended = stream.follow()
  return { stream, ended, requests, timers, events, links, text: () => textOf(events) }
}

function textOf(events) {
  return events.reduce((text, { name, data }) => {
    if (name === "delta") return text + data.text
    return name === "snapshot" || name === "retract" ? data.text : text
  }, "")
}

/** Lets every wait pass at once (not the watchdog on silence), until the stream ends. */
async function rush({ timers, ended }) {
  let over = false
  ended.then(() => (over = true))
  while (!over) {
    await until(() => over || timers.pending.some((ms) => ms <= MAX_WAIT_MS))
    if (!over) timers.fireShortest()
  }
  return ended
}

const network = () => Promise.reject(new TypeError("Failed to fetch"))

test("a send posts once, with its key, and ends with done", async () => {
  const followed = follow([() => streamResponse(answer(["Hi", " there"]))])
  assert.deepEqual(await followed.ended, { error: null })
  const [request] = followed.requests
  assert.equal(request.url, "/v1/conversations/new/messages")
  assert.equal(request.headers["Idempotency-Key"], "key-1")
  assert.equal(request.headers["X-CSRFToken"], "csrf")
  assert.equal(request.headers.Accept, "text/event-stream")
  assert.deepEqual(JSON.parse(request.body), { content: "hello" })
  assert.equal(followed.text(), "Hi there")
  assert.deepEqual(followed.events.map((event) => event.name), ["start", "delta", "delta", "done"])
  assert.equal(followed.stream.run, RUN)
})

test("cut after any number of frames, the answer is whole and no event comes twice", async () => {
  const words = ["a", "b", "c", "d"]
  const frames = answer(words)
  for (let cut = 1; cut < frames.length; cut += 1) {
    for (const then of ["end", "break"]) {
      const followed = follow([
        () => streamResponse(frames.slice(0, cut), { then }),
        // The server may send again what it cannot know has arrived.
        () => streamResponse(frames.slice(Math.max(0, cut - 1))),
      ])
      assert.deepEqual(await rush(followed), { error: null })
      assert.equal(followed.text(), "abcd", `cut at ${cut}, ${then}`)
      assert.equal(followed.events.length, frames.length)
      assert.equal(followed.requests[1].url, `/v1/runs/${RUN}/stream`)
      assert.equal(followed.requests[1].headers["Last-Event-ID"], `${RUN}:${cut}`)
    }
  }
})

test("cut after every single frame, on a connection each", async () => {
  const frames = answer([..."resumable"])
  const followed = follow(frames.map((one) => () => streamResponse([one])))
  assert.deepEqual(await rush(followed), { error: null })
  assert.equal(followed.text(), "resumable")
})

test("until start has come, the same POST is repeated with the same key", async () => {
  const followed = follow([network, () => streamResponse([": hello\n\n"]), () => errorResponse(502), () => streamResponse(answer(["x"]))])
  assert.deepEqual(await rush(followed), { error: null })
  assert.deepEqual(followed.requests.map((request) => request.headers["Idempotency-Key"]), Array(4).fill("key-1"))
  assert.equal(followed.text(), "x")
})

test("a send that reaches nobody is given back after a few tries", async () => {
  const followed = follow(Array(MAX_SEND_TRIES).fill(network))
  const { error } = await rush(followed)
  assert.match(error.message, /Failed to fetch/)
  assert.equal(followed.requests.length, MAX_SEND_TRIES)
  assert.equal(followed.stream.run, null)
})

for (const status of [400, 401, 403, 404, 409, 413, 422, 429, 500, 503]) {
  test(`a send refused with ${status} is not repeated`, async () => {
    const followed = follow([() => errorResponse(status, { retryAfterS: 7 })])
    const { error } = await followed.ended
    assert.equal(error.status, status)
    assert.equal(error.retryAfterS, 7)
  })
}

test("a run that exists is waited for through 429, 500, 503 and a lost network", async () => {
  const followed = follow(
    [
      () => errorResponse(503, { retryAfterS: 3 }),
      () => errorResponse(429, { retryAfterS: 9 }),
      () => errorResponse(500),
      network,
      () => streamResponse(answer(["x"])),
    ],
    { run: RUN },
  )
  assert.deepEqual(await rush(followed), { error: null })
  const waits = followed.links.filter((link) => link.state === "waiting").map((link) => link.inMs)
  assert.deepEqual(waits.slice(0, 2), [3_000, 9_000])
})

for (const status of [401, 403, 404]) {
  test(`a run that answers ${status} is given up`, async () => {
    const followed = follow([() => errorResponse(status)], { run: RUN })
    assert.equal((await followed.ended).error.status, status)
  })
}

test("204 is the end", async () => {
  const followed = follow([() => streamResponse(answer(["x"]).slice(0, 2)), () => new Response(null, { status: 204 })])
  assert.deepEqual(await rush(followed), { error: null })
})

test("a resume from nothing sends no cursor", async () => {
  const followed = follow([() => streamResponse(answer(["x"]))], { run: RUN })
  await followed.ended
  assert.equal(followed.requests[0].headers["Last-Event-ID"], undefined)
  assert.equal(followed.requests[0].method, undefined)
})

test("an event without an id is told and does not move the cursor", async () => {
  const frames = [frame("start", startData(), 1), frame("notice", { code: "queued", position: 2 }), frame("notice", { code: "queued", position: 1 })]
  const followed = follow([() => streamResponse(frames), () => streamResponse(answer(["x"]))])
  await rush(followed)
  assert.equal(followed.requests[1].headers["Last-Event-ID"], `${RUN}:1`)
  assert.deepEqual(followed.events.map((event) => event.name), ["start", "notice", "notice", "delta", "done"])
})

test("a takeover jumps by a snapshot, which replaces the text", async () => {
  const frames = [
    frame("start", startData(), 1),
    frame("delta", { text: "abc" }, 2),
    frame("snapshot", { text: "ab" }, 1_000_001),
    frame("delta", { text: "cd" }, 1_000_002),
    frame("done", doneData(), 1_000_003),
  ]
  const followed = follow([() => streamResponse(frames)])
  assert.deepEqual(await followed.ended, { error: null })
  assert.equal(followed.text(), "abcd")
})

test("a snapshot without id, then done at the last seq, ends a run whose log is gone", async () => {
  const followed = follow([
    () => streamResponse(answer(["x"]).slice(0, 2)),
    () => streamResponse([frame("snapshot", { text: "whole" }), frame("done", doneData(), 2_000_007)]),
  ])
  assert.deepEqual(await rush(followed), { error: null })
  assert.equal(followed.text(), "whole")
})

test("a missing event is asked for again from the cursor", async () => {
  const frames = answer([..."abcd"])
  const followed = follow([
    () => streamResponse([frames[0], frames[1], frames[3]], { then: "open" }),
    () => streamResponse(frames.slice(2)),
  ])
  assert.deepEqual(await rush(followed), { error: null })
  assert.equal(followed.requests[1].headers["Last-Event-ID"], `${RUN}:2`)
  assert.equal(followed.text(), "abcd")
})

test("a gap that the log shows twice is what the log holds", async () => {
  const holed = answer([..."abcd"]).filter((_, index) => index !== 2)
  const followed = follow([() => streamResponse(holed), () => streamResponse(holed.slice(2))])
  assert.deepEqual(await rush(followed), { error: null })
  assert.equal(followed.text(), "acd")
})

test("garbled data is read again", async () => {
  const frames = answer(["a", "b"])
  const followed = follow([
    () => streamResponse([frames[0], `id: ${RUN}:2\nevent: delta\ndata: {"te\n\n`]),
    () => streamResponse(frames.slice(1)),
  ])
  assert.deepEqual(await rush(followed), { error: null })
  assert.equal(followed.text(), "ab")
})

test("a line that is silent for too long is cut and taken up again", async () => {
  const frames = answer(["a", "b"])
  const followed = follow([
    ({ signal }) => streamResponse(frames.slice(0, 2), { then: "open", signal }),
    () => streamResponse(frames.slice(2)),
  ])
  await until(() => followed.text() === "a")
  assert.deepEqual(followed.timers.pending, [SILENCE_MS])
  followed.timers.fireShortest()
  assert.deepEqual(await rush(followed), { error: null })
  assert.equal(followed.text(), "ab")
})

test("seen again after sleep, the page reconnects at once and leaves an unanswered POST alone", async () => {
  const frames = answer(["a", "b"])
  let answerPost
  const followed = follow([
    ({ signal }) => new Promise((resolve) => (answerPost = () => resolve(streamResponse(frames.slice(0, 2), { then: "open", signal })))),
    () => streamResponse(frames.slice(2)),
  ])
  await until(() => answerPost)
  followed.stream.refresh()
  answerPost()
  await until(() => followed.text() === "a")
  assert.equal(followed.requests.length, 1)
  followed.stream.refresh()
  await until(() => followed.links.some((link) => link.state === "waiting"))
  assert.deepEqual(followed.links.filter((link) => link.state === "waiting").map((link) => link.inMs), [0])
  await rush(followed)
  assert.equal(followed.text(), "ab")
})

test("the first wait is what the server asked for, later ones double and stay below the cap", async () => {
  const frames = [`retry: 300\n\n`, ...answer(["x"]).slice(0, 1)]
  const followed = follow([() => streamResponse(frames), ...Array(9).fill(network), () => streamResponse(answer(["x"]).slice(1))])
  await rush(followed)
  const waits = followed.links.filter((link) => link.state === "waiting").map((link) => link.inMs)
  assert.equal(waits[0], 300)
  for (let i = 2; i < waits.length; i += 1) assert.ok(waits[i] >= waits[i - 1], `${waits}`)
  assert.ok(Math.max(...waits) <= MAX_WAIT_MS)
})

test("woken while it waits, it tries at once", async () => {
  const followed = follow([network, () => streamResponse(answer(["x"]))], { run: RUN })
  await until(() => followed.links.some((link) => link.state === "waiting"))
  followed.stream.wake()
  assert.deepEqual(await followed.ended, { error: null })
})

test("closed, it tells nothing more and ends without an error", async () => {
  const followed = follow([({ signal }) => streamResponse(answer(["x"]).slice(0, 2), { then: "open", signal })])
  await until(() => followed.text() === "x")
  followed.stream.close()
  assert.deepEqual(await followed.ended, { error: null })
  assert.equal(followed.requests.length, 1)
})

test("a fault of the page itself is told, not retried for ever", async () => {
  const { fetch, requests } = scriptedFetch([() => streamResponse(answer(["x"]))])
  const stream = new RunStream({
    api: new Api({ csrf: "", fetch }),
    run: RUN,
    onEvent: () => {
      throw new RangeError("a bug")
    },
  })
  assert.ok((await stream.follow()).error instanceof RangeError)
  assert.equal(requests.length, 1)
})

test("cursors are read strictly, and judged", () => {
  assert.deepEqual(parseCursor(`${RUN}:7`), { run: RUN, seq: 7 })
  for (const text of [null, "", "7", `${RUN}:`, `${RUN}:-1`, `${RUN}:1.5`, `${RUN}:${"9".repeat(16)}`, `x${RUN}:1`]) {
    assert.equal(parseCursor(text), null, String(text))
  }
  assert.equal(judge("delta", 3, 3), "seen")
  assert.equal(judge("delta", 4, 3), "next")
  assert.equal(judge("delta", 5, 3), "gap")
  for (const name of ["snapshot", "retract", "done"]) assert.equal(judge(name, 99, 3), "next")
})
