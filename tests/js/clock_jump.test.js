import assert from "node:assert/strict"
import { test } from "node:test"

import { BEAT_MS, ClockJump, JUMP_MS } from "#js/models/clock_jump.js"

import { FakeTimers } from "./support.js"

test("a sleep is noticed once, a late timer is none", () => {
  const timers = new FakeTimers()
  let now = 0
  let jumps = 0
  new ClockJump({ onJump: () => (jumps += 1), now: () => now, timers }).start()
  const beat = (ms) => {
    now += ms
    timers.fireShortest()
    return jumps
  }
  assert.deepEqual([BEAT_MS, BEAT_MS + JUMP_MS, BEAT_MS + JUMP_MS + 1, BEAT_MS].map(beat), [0, 0, 1, 1])
  assert.equal(beat(-3_600_000), 1, "a clock that is put back")
  assert.equal(timers.pending.length, 1)
})
