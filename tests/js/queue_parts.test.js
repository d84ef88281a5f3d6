import assert from "node:assert/strict"
import { test } from "node:test"

import * as parts from "../../static/admin_site/queue_parts.js"

const replica = (more) => ({ is_fresh: true, is_draining: false, healthy: true, running: 0, ...more })
const pool = (more) => ({
  is_paused: false,
  queue: { built: true, is_paused: false, chores_paused: false },
  replicas: [replica()],
  ...more,
})
const words = (one) => parts.poolMarks(one).map((mark) => mark.words)

test("durations are said in the unit that people would take", () => {
  const said = [null, 0, 0.4, 340, 1_000, 9_949, 9_950, 119_499, 119_500, 7_200_000].map(parts.duration)
  assert.deepEqual(said, ["unknown", "none", "0 ms", "340 ms", "1.0 s", "9.9 s", "10 s", "119 s", "2 min", "2 h"])
  assert.equal(parts.ago(0.4), "just now")
  assert.equal(parts.ago(40), "40 s ago")
})

test("amounts stay short", () => {
  const said = [null, 0, 0.26, 99.96, 100.4, 9_994, 9_995, 999_949, 999_950].map(parts.amount)
  assert.deepEqual(said, ["unknown", "0", "0.3", "100", "100", "9,994", "10.0 k", "999.9 k", "1.0 M"])
})

test("a tally names the most first, and words that it does not know as they are", () => {
  assert.equal(parts.tally({ smaller: 1, home: 3, not_known: 2 }), "3 as asked, 2 not known, 1 smaller model")
  assert.equal(parts.tally({}), "")
})

test("a pool says what is wrong with it", () => {
  assert.deepEqual(words(pool()), ["open"])
  assert.deepEqual(words(pool({ is_paused: true })), ["pausing"], "Redis has not heard of it")
  const queue = { built: false, is_paused: true, chores_paused: true }
  assert.deepEqual(words(pool({ is_paused: true, queue })), ["paused", "queue is being rebuilt", "chores wait"])
  assert.deepEqual(words(pool({ queue })), ["resuming", "queue is being rebuilt", "chores wait"])
  assert.deepEqual(words(pool({ is_paused: true, queue: null, replicas: [] })), ["paused", "no replica"])
  assert.deepEqual(words(pool({ replicas: [replica({ is_draining: true })] })), ["no healthy replica"])
})

test("a replica that nobody has heard of is not healthy, whatever its row says", () => {
  assert.equal(parts.replicaMark(replica()).words, "healthy")
  assert.equal(parts.replicaMark(replica({ healthy: false })).words, "not healthy")
  assert.equal(parts.replicaMark(replica({ is_draining: true, running: 2 })).words, "draining")
  assert.equal(parts.replicaMark(replica({ is_draining: true })).words, "drained")
  assert.equal(parts.replicaMark(replica({ is_fresh: false, is_draining: true })).words, "not heard of")
})

test("a chart's top is a round number above what it shows", () => {
  for (const [most, top] of [[0, 1], [0.3, 0.5], [1, 1], [7, 10], [26, 50], [4_999, 5_000], [123_456, 200_000]]) {
    assert.deepEqual(parts.scale([[[1, null], [2, most]]]), { most, top })
  }
  assert.deepEqual(parts.scale([]), { most: 0, top: 1 })
})

test("a line breaks where nothing is known, and where no samples are", () => {
  const size = { since: 0, until: 100, top: 10, width: 100, height: 10 }
  assert.equal(parts.path([[0, 0], [10, 5], [20, null], [30, 10], [90, 20]], size), "M0.0 10.0L10.0 5.0M30.0 0.0M90.0 0.0")
  assert.equal(parts.path([[-5, 1], [0, 1], [101, 1]], size), "M0.0 9.0", "nothing outside of the hour")
  assert.equal(parts.path([], size), "")
})

test("the table has the highest value of each five minutes, the newest first", () => {
  const waiting = [[0, 1], [299, 7], [300, null], [310, 2]]
  assert.deepEqual(parts.rows([waiting, [[301, 4]]]), [[300, 2, 4], [0, 7, null]])
  assert.equal(parts.newest([[1, 5], [2, null]]), 5)
  assert.equal(parts.newest([]), null)
})
