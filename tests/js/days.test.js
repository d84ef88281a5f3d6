import assert from "node:assert/strict"
import { afterEach, test } from "node:test"

import { byDay, untilMidnight } from "#js/models/days.js"
import { setLanguage } from "#js/models/i18n.js"

afterEach(() => setLanguage())

const now = new Date(2026, 10, 29, 12)
const at = (...parts) => ({ id: parts.join(), last_activity: new Date(...parts).toISOString() })
const labels = (items) => byDay(items, now).map((group) => [group.label, group.items.length])

test("days are the reader's own, then months, with their year where it is another", () => {
  const items = [
    at(2026, 10, 29, 11),
    at(2026, 10, 29, 0),
    at(2026, 10, 28, 23, 59),
    at(2026, 10, 27, 5),
    at(2026, 10, 22, 0),
    at(2026, 10, 21, 23, 59),
    at(2026, 9, 3),
    at(2026, 9, 1),
    at(2025, 9, 1),
  ]
  const wanted = [["Today", 2], ["Yesterday", 1], ["Previous 7 days", 2], ["November", 1], ["October", 2], ["October 2025", 1]]
  assert.deepEqual(labels(items), wanted)
})

test("a clock that is wrong makes no second group of one name", () => {
  assert.deepEqual(labels([at(2026, 10, 30, 9), at(2026, 10, 28), at(2026, 10, 29, 3)]), [["Today", 2], ["Yesterday", 1]])
})

test("months are named in the reader's language", () => {
  setLanguage({ locale: "de" })
  assert.deepEqual(labels([at(2025, 4, 1)]), [["Mai 2025", 1]])
})

test("the groups change at midnight", () => {
  assert.equal(untilMidnight(new Date(2026, 10, 29, 23, 59)), 60_000)
})
