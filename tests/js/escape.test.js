import assert from "node:assert/strict"
import { test } from "node:test"

import { escapeHtml } from "#js/models/escape.js"

test("no character of it can begin a tag, an entity or end an attribute", () => {
  assert.equal(escapeHtml(`<a href="x" id='y'>&lt;`), "&#60;a href=&#34;x&#34; id=&#39;y&#39;&#62;&#38;lt;")
  assert.equal(escapeHtml("naïve 日本 😀"), "naïve 日本 😀")
})
