import assert from "node:assert/strict"
import { test } from "node:test"

import { BESIDE, keptTop, layOut, MAX_PINNED, rowAt, windowOf, WHOLE_UP_TO } from "#js/models/list_window.js"

const SIZES = { rowPx: 10, headPx: 20 }

function items(count, from = 0) {
  return Array.from({ length: count }, (_, index) => ({ id: `c${from + index}`, last_activity: String(from + index) }))
}

const planOf = (...groups) => layOut(groups.map((all, index) => ({ key: `g${index}`, items: all })), SIZES)

test("rows follow each other, and each group has a heading", () => {
  const { rows, heightPx } = planOf(items(2), items(1, 2))
  assert.deepEqual(rows.map(({ key, top }) => [key, top]), [["day:g0", 0], ["c0", 20], ["c1", 30], ["day:g1", 40], ["c2", 60]])
  assert.equal(heightPx, 70)
  assert.deepEqual([rowAt(rows, 0), rowAt(rows, 29), rowAt(rows, 30), rowAt(rows, 999), rowAt([], 5)], [0, 1, 2, 4, 0])
})

test("a short list is in the page as a whole", () => {
  const plan = planOf(items(WHOLE_UP_TO - 1))
  assert.deepEqual(windowOf(plan, { top: 900, height: 100 }), { from: 0, to: WHOLE_UP_TO, beforePx: 0, afterPx: 0 })
})

test("of ten thousand only what is near is in the page, and the rest is as high as ever", () => {
  const plan = planOf(items(10_000))
  for (const top of [0, 50_000, plan.heightPx - 600]) {
    const { from, to, beforePx, afterPx } = windowOf(plan, { top, height: 600 })
    assert.ok(to - from <= 61 + 2 * BESIDE + 1, `${to - from}`)
    assert.ok(plan.rows[from].top <= top && (plan.rows[to]?.top ?? Infinity) >= top + 600)
    const shown = plan.rows.slice(from, to).reduce((sum, row) => sum + (row.item ? 10 : 20), 0)
    assert.equal(beforePx + shown + afterPx, plan.heightPx)
  }
})

test("the row with the focus stays while it is not too far away", () => {
  const plan = planOf(items(1_000))
  const near = windowOf(plan, { top: 2_500, height: 600, pinned: "c100" })
  assert.equal(near.from, plan.rows.findIndex((row) => row.key === "c100"))
  const far = windowOf(plan, { top: (BESIDE + MAX_PINNED) * 10 + 5_000, height: 600, pinned: "c100" })
  assert.ok(far.to - far.from < 200)
})

test("what comes in above does not move what is read", () => {
  const before = planOf(items(50, 10))
  const after = planOf(items(3), items(50, 10))
  assert.equal(keptTop(before, after, 205), 205 + 20 + 30)
  assert.equal(keptTop(before, after, 0), 0, "at the top the newest is seen")
})

test("what moved itself is no place to hold on to", () => {
  const before = planOf(items(50))
  const spoken = { ...before.rows[20].item, last_activity: "now" }
  const after = planOf([spoken, ...items(50).filter((one) => one.id !== spoken.id)])
  assert.equal(keptTop(before, after, before.rows[20].top), before.rows[20].top)
  assert.equal(keptTop(planOf([]), after, 40), 40)
})
