import assert from "node:assert/strict"
import test from "node:test"

import { roughHeight } from "#js/models/rough_height.js"

const of = (text, width = 700, role = "assistant") => roughHeight({ role, text }, width)

test("more text is taller, and taller still where there is less room", () => {
  assert.ok(of("x".repeat(2_000)) > of("x".repeat(1_000)))
  assert.ok(of("x".repeat(2_000), 300) > 2 * of("x".repeat(2_000), 700))
  assert.ok(of("a\nb\nc") > of("a b c"))
})

test("nothing has no height of nothing, and no width divides by nothing", () => {
  assert.ok(of("") > 25)
  assert.ok(Number.isFinite(of("some words", 0)))
})

test("of a huge text only the beginning is read", () => {
  const huge = "line of code\n".repeat(100_000)
  const height = of(huge)
  const exact = 100_000 * 25.6
  assert.ok(height > exact * 0.8 && height < exact * 1.2)
})
