import assert from "node:assert/strict"
import test from "node:test"

import { detailRows, spanText } from "#js/models/details.js"

const RUN = {
  model: "large",
  usage: { prompt_tokens: 1203, cached_tokens: 900, output_tokens: 418 },
  queued_at: "2026-11-29T19:26:34.000000Z",
  first_text_at: "2026-11-29T19:26:34.840000Z",
  finished_at: "2026-11-29T19:26:47.400000Z",
}
const titleOf = (slug) => (slug === "large" ? "Large" : "")

test("what the page knows stands there before the run has been read", () => {
  assert.deepEqual(detailRows({ model: "large", usage: { prompt_tokens: 5, cached_tokens: 0, output_tokens: 1 } }, null, titleOf), [
    ["Model", "Large"],
    ["Tokens written", "1"],
    ["Tokens read", "5"],
  ])
  assert.deepEqual(detailRows({ model: "gone", usage: null }, null, titleOf), [["Model", "gone"]])
})

test("the run adds when it was written and how long it took", () => {
  const rows = Object.fromEntries(detailRows({ model: "other", usage: null }, RUN, titleOf))
  assert.equal(rows.Model, "Large")
  assert.match(rows.Written, /2026/)
  assert.equal(rows["First words after"], "0.8 sec")
  assert.equal(rows["Finished after"], "13 sec")
  assert.equal(rows["Tokens read"], "1,203")
  assert.equal(rows["Of those, kept from before"], "900")
  assert.equal(Object.keys(rows).length, 7)
})

test("an answer that never began has no first words", () => {
  const rows = Object.fromEntries(detailRows({}, { ...RUN, first_text_at: null }, titleOf))
  assert.ok(!("First words after" in rows))
})

test("a span is in seconds, and in minutes where there are many", () => {
  const after = (seconds) => spanText("2026-01-01T00:00:00Z", new Date(Date.UTC(2026, 0, 1) + seconds * 1000).toISOString())
  assert.deepEqual([0, 9.96, 59.4, 59.9, 60, 125.2, 119.6].map(after), ["0 sec", "10 sec", "59 sec", "1 min 0 sec", "1 min 0 sec", "2 min 5 sec", "2 min 0 sec"])
  assert.equal(after(-1), "")
  assert.equal(spanText("2026-01-01T00:00:00Z", null), "")
})
