import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"

import { Latest } from "#js/models/latest.js"
import { barColours } from "#js/models/look.js"

import { settle } from "./support.js"

test("values arrive in their order, and what was overtaken while it waited is not sent", async () => {
  const under = []
  const latest = new Latest((value) => new Promise((resolve, reject) => under.push({ value, resolve, reject })))
  const answers = ["dark", "light", "system"].map((theme) => latest.put(theme))
  await settle()
  assert.deepEqual(under.map(({ value }) => value), ["dark"])
  under[0].resolve()
  await settle()
  assert.deepEqual(under.map(({ value }) => value), ["dark", "system"])
  under[1].reject(new Error("off"))
  assert.deepEqual(await Promise.all(answers), [false, false, false])
  const again = latest.put("dark")
  await settle()
  under[2].resolve()
  assert.equal(await again, true)
})

test("the browser's bar has the colours that the server writes", () => {
  const page = readFileSync(new URL("../../templates/base.html", import.meta.url), "utf8")
  for (const { content, media } of barColours("system")) assert.ok(page.includes(`content="${content}" media="${media}"`))
  const [dark] = barColours("dark")
  const [light] = barColours("light")
  assert.ok(page.includes(`{% if theme == "dark" %}${dark.content}{% else %}${light.content}{% endif %}`))
  assert.deepEqual([dark.media, light.media], [null, null])
})
