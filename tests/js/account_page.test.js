import assert from "node:assert/strict"
import { test } from "node:test"

import { whenText } from "../../static/account/page.js"

const now = new Date("2026-03-01T22:00:00Z")
const at = (iso, locale = "en-GB", zone = "Asia/Kolkata") => whenText(new Date(iso), now, locale, zone)

test("a time of today is a time of day, in the reader's zone", () => {
  assert.equal(at("2026-03-01T22:20:00Z", "en-GB", "UTC"), "22:20 (in 20 minutes)")
  assert.equal(at("2026-03-01T22:20:00Z"), "03:50 (in 20 minutes)") // already the 2nd there
})

test("another day is named", () => {
  assert.equal(at("2026-03-02T01:30:00Z", "en-GB", "UTC"), "2 Mar 2026, 01:30 (in 4 hours)")
})

test("a moment, and days", () => {
  assert.match(at("2026-03-01T22:00:20Z"), /\(in 20 seconds\)$/)
  assert.match(at("2026-03-05T22:00:00Z"), /\(in 4 days\)$/)
})

test("in the reader's language", () => {
  assert.match(at("2026-03-01T22:20:00Z", "hi"), /मिनट/)
  assert.match(at("2026-03-01T22:20:00Z", "ar"), /دقيقة/)
})
