import assert from "node:assert/strict"
import { afterEach, test } from "node:test"

import { language, number, plural, setLanguage, t } from "#js/models/i18n.js"

afterEach(() => setLanguage())

test("a sentence without a translation is English, with its names filled in", () => {
  assert.equal(t("Sending again in {seconds} s", { seconds: 4 }), "Sending again in 4 s")
  assert.equal(plural("{count} message", "{count} messages", 1), "1 message")
  assert.equal(plural("{count} message", "{count} messages", 2_000), "2,000 messages")
  assert.equal(t("{unknown} stays"), "{unknown} stays")
})

test("a name that is filled in is not filled in again", () => {
  assert.equal(t("{a} and {b}", { a: "{b}", b: "x" }), "{b} and x")
})

test("translations have the plural forms of their language", () => {
  const messages = { "{count} messages": { one: "رسالة", two: "رسالتان", few: "{count} رسائل", many: "{count} رسالة", other: "{count} رسالة" } }
  setLanguage({ locale: "ar", messages })
  assert.equal(language(), "ar")
  assert.equal(plural("{count} message", "{count} messages", 2), "رسالتان")
  assert.equal(plural("{count} message", "{count} messages", 3), `${number(3)} رسائل`)
  assert.equal(t("Copy"), "Copy")
})
