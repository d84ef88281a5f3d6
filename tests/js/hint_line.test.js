import assert from "node:assert/strict"
import { test } from "node:test"

import { HintLine, PING_MS, PONG_MS } from "#js/models/hint_line.js"
import { Soon } from "#js/models/soon.js"

import { FakeTimers, settle } from "./support.js"

/** A socket whose other end is the test. */
class FakeSocket {
  static all = []
  sent = []
  closed = false

  constructor(url) {
    this.url = url
    FakeSocket.all.push(this)
  }

  send = (text) => this.sent.push(JSON.parse(text))
  close = () => void (this.closed = true)
  say = (frame) => this.onmessage({ data: typeof frame === "string" ? frame : JSON.stringify(frame) })
  end = (code = 1006) => this.onclose({ code })
}

function line({ random = () => 0 } = {}) {
  FakeSocket.all = []
  const timers = new FakeTimers()
  const hints = new HintLine({ url: "ws://here/v1/ws", WebSocket: FakeSocket, timers, random })
  const told = []
  hints.on((change) => told.push(change.hint?.kind ?? change.kind))
  hints.start()
  return { hints, timers, told, socket: () => FakeSocket.all.at(-1) }
}

const READY = { event: "ready", data: { user: "u_1" } }

test("ready, then hints; frames of other kinds and garbage are passed over", () => {
  const { told, socket } = line()
  socket().say(READY)
  socket().say({ event: "hint", data: { kind: "run_started", conversation: "c_1", run: "g_1" } })
  for (const odd of ["{", "null", "[1]", { event: "pong" }, { event: "hint" }, { event: "hint", data: {} }, { event: "delta", data: { text: "x" } }]) socket().say(odd)
  assert.deepEqual(told, ["ready", "run_started"])
})

test("a lost line is tried again, later each time, with chance in it, and soon again once it held", () => {
  const { timers, socket, hints } = line()
  for (let times = 0; times < 9; times += 1) {
    socket().end()
    assert.equal(hints.state, "waiting")
    timers.fireShortest()
  }
  const waits = timers.waits.filter((ms) => ms !== PONG_MS)
  assert.deepEqual(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000], "half of it is chance")
  socket().say(READY)
  socket().end(1012)
  assert.deepEqual(timers.pending, [500])
  const { timers: late, socket: other } = line({ random: () => 1 })
  other().end()
  assert.deepEqual(late.pending, [1_000])
})

test("signed out, or from a foreign page, it does not come again", () => {
  for (const [code, kind] of [[4401, "signedOut"], [4403, "down"]]) {
    const { timers, told, socket, hints } = line()
    socket().end(code)
    assert.deepEqual([told, timers.pending, hints.state], [[kind], [], "off"])
  }
})

test("one of too many waits long", () => {
  const { timers, socket } = line()
  socket().end(4409)
  assert.deepEqual(timers.pending, [30_000])
})

test("silence is asked about, and a dead line is left", () => {
  const { timers, told, socket } = line()
  const first = socket()
  first.say(READY)
  assert.deepEqual(timers.pending, [PING_MS])
  timers.fireShortest()
  assert.deepEqual(first.sent, [{ type: "ping" }])
  first.say({ event: "pong" })
  assert.deepEqual(timers.pending, [PING_MS])
  timers.fireShortest()
  timers.fireShortest()
  assert.deepEqual([first.closed, told], [true, ["ready", "down"]])
  first.say(READY)
  assert.deepEqual(told, ["ready", "down"], "what it says late is nothing")
})

test("a server that never says ready is a lost line", () => {
  const { timers, hints } = line()
  assert.deepEqual(timers.pending, [PONG_MS])
  timers.fireShortest()
  assert.equal(hints.state, "waiting")
})

test("seen again, a waiting line tries now and a standing one is tested", () => {
  const { hints, socket, timers } = line()
  socket().end()
  hints.check()
  assert.equal(FakeSocket.all.length, 2)
  socket().say(READY)
  hints.check()
  assert.deepEqual([socket().sent.length, timers.pending], [1, [PONG_MS]])
  hints.stop()
  assert.deepEqual([socket().closed, timers.pending], [true, []])
})

test("many calls are one action, and one more for those that came during it", async () => {
  const timers = new FakeTimers()
  let runs = 0
  let finish
  const soon = new Soon(() => new Promise((resolve) => ((runs += 1), (finish = resolve))), 50, timers)
  for (let times = 0; times < 5; times += 1) soon.call()
  timers.fireShortest()
  for (let times = 0; times < 5; times += 1) soon.call()
  assert.deepEqual([runs, timers.pending], [1, []])
  finish()
  await settle()
  timers.fireShortest()
  finish()
  await settle()
  assert.deepEqual([runs, timers.pending], [2, []])
})
