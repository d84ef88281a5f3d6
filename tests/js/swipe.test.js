import assert from "node:assert/strict"
import { test } from "node:test"

import { swipeOf } from "#js/models/swipe.js"

const at = (x, y = 300, ms = 0) => ({ x, y, ms })

test("a quick level sweep is a swipe, to either side", () => {
  assert.equal(swipeOf(at(100), at(200, 320, 200), 390), "right")
  assert.equal(swipeOf(at(300), at(200, 280, 200), 390), "left")
})

test("neither a tap, a scroll, a slow drag nor the browser's own gesture is", () => {
  assert.equal(swipeOf(at(100), at(130, 300, 100), 390), null)
  assert.equal(swipeOf(at(100), at(200, 400, 200), 390), null)
  assert.equal(swipeOf(at(100), at(200, 300, 900), 390), null)
  assert.equal(swipeOf(at(10), at(200, 300, 200), 390), null)
  assert.equal(swipeOf(at(385), at(200, 300, 200), 390), null)
})
