import assert from "node:assert/strict"
import { afterEach, test } from "node:test"

import { ApiError } from "#js/models/api.js"
import { setLanguage } from "#js/models/i18n.js"
import { Message } from "#js/models/message.js"
import { dueNow, secondsLeft } from "#js/models/refusals.js"
import { momentText, noticeAfter } from "#js/models/waiting.js"
import { stripFor } from "#js/models/words.js"

import { plain } from "./support.js"

const titles = { big: "Big one", small: "Small one" }
const titleOf = (slug) => titles[slug] ?? slug

function said(notices, { phase = "writing", now, ...more } = {}) {
  const notice = notices.reduce((before, one) => noticeAfter(before, one, 0), null)
  const reply = Object.assign(new Message({ key: "k", role: "assistant", phase, text: "x" }), more)
  return read(stripFor({ status: "ready", liveReply: reply, notice, link: null, refusal: null }, { titleOf, now }))
}

function refused(more = {}, now = 0, kept = "below") {
  const error = new ApiError({ status: 429, code: "busy", message: "no", ...more })
  const refusal = { error, kept, at: 0, armed: more.armed }
  return read(stripFor({ status: "ready", liveReply: null, notice: null, refusal }, { now }))
}

function read(line) {
  return { ...line, text: plain(line.text) }
}

afterEach(() => setLanguage())

test("a predicted wait is counted down from when it was told, and an overrun is said", () => {
  const place = { code: "queued", position: 3, eta_s: 18 }
  const at = (now) => said([place], { phase: "queued", now })
  assert.equal(at(0).text, "Third in line, about 20 s")
  assert.equal(at(11_000).text, "Third in line, about 7 s")
  assert.equal(at(18_500).text, "Third in line, a little longer than expected")
  assert.equal(at(0).ticks, true)
  assert.equal(said([{ code: "queued", position: 3 }], { phase: "queued" }).ticks, undefined)
})

test("each step of the ladder has its words, and two of them can be told at once", () => {
  const smaller = { code: "smaller_model", model: "small", instead_of: "big", back_at: null }
  const shorter = { code: "shorter_answer", answer_tokens: 500 }
  assert.equal(said([smaller]).text, "Using the smaller model until it is quieter")
  assert.equal(said([smaller, shorter]).text, "Using the smaller model until it is quieter. A shorter answer until it is quieter")
  assert.match(said([shorter, smaller, { code: "queued", position: 2 }], { phase: "queued" }).text, /^Second in line\. A shorter answer until it is quieter\. Using the smaller/)
  assert.equal(said([{ code: "other_region", region: "us" }]).text, "Answered from another region, to begin sooner")
  assert.equal(said([{ code: "other_region", region: "us" }, { code: "other_region", region: "eu", home: true }]).text, "Answered from your own region after all")
  assert.equal(said([{ code: "recovered" }]).icon, "again")
  assert.equal(said([smaller, shorter, { code: "recovered" }]).text.split(". ").length, 2, "no more than two")
})

test("two sentences are parted as the language parts them", () => {
  setLanguage({ locale: "hi", messages: { "{first}. {second}": "{first}। {second}", "Next in line": "अगला", "A shorter answer until it is quieter": "छोटा।" } })
  const both = said([{ code: "shorter_answer" }, { code: "queued", position: 1 }], { phase: "queued" })
  assert.equal(both.text, "अगला। छोटा")
})

test("a limit of the plan names both models and when the messages are back", () => {
  const backAt = new Date()
  const text = said([{ code: "smaller_model", model: "small", instead_of: "big", back_at: backAt.toISOString() }]).text
  assert.equal(text, `You have used your messages to Big one for now. Small one answers; Big one is back ${momentText(backAt.toISOString())}`)
  assert.match(momentText("2026-01-05T10:30:00", new Date("2026-01-05T09:00:00")), /^at 10:30\sAM$/)
  assert.match(momentText("2026-01-06T10:30:00", new Date("2026-01-05T09:00:00")), /^on Tue, Jan 6 at 10:30\sAM$/)
})

test("a model that can be reached again is told from one that cannot", () => {
  const away = { code: "other_model", model: "small", instead_of: "big" }
  const back = { code: "other_model", model: "big", instead_of: "small" }
  assert.equal(said([away]).text, "Big one cannot be reached just now; Small one answers instead")
  assert.equal(said([away, back]).text, "Big one can be reached again and answers after all")
  assert.equal(said([away, { code: "recovered" }, back]).text, "Continued on another machine. Big one can be reached again and answers after all")
  assert.equal(said([{ code: "other_model", text: "As told." }]).text, "As told")
})

test("a notice of a later version is told in the server's words; an answer taken back at once", () => {
  assert.equal(said([{ code: "brand_new", text: "As told" }]).text, "As told")
  assert.match(said([], { retracted: true }).text, /taken back/)
})

test("a refusal is counted down and offers to send by itself, or at once when the time is over", () => {
  const early = refused({ retryAfterS: 12 })
  assert.deepEqual([early.text, early.action, early.ticks], ["Many people are waiting just now. Your message is kept below. You can send again in 12 s.", { verb: "send-then", label: "Send it then" }, true])
  assert.match(refused({ retryAfterS: 12 }, 4_500).text, /again in 8 s\.$/)
  const over = refused({ retryAfterS: 12 }, 12_000)
  assert.match(over.text, /You can send it again now\.$/)
  assert.deepEqual([over.action.verb, over.ticks], ["send-now", undefined])
  assert.match(refused({ retryAfterS: 12 }, -60_000).text, /again in 12 s\.$/, "a clock that was put back")
})

test("a text that is to be sent by itself says when, and can be held back", () => {
  const armed = refused({ retryAfterS: 12, armed: true }, 2_000)
  assert.deepEqual([armed.text, armed.action], ["Sending again in 10 s. Your message is kept below.", { verb: "do-not-send", label: "Cancel" }])
  assert.match(refused({ retryAfterS: 12, armed: true }, 13_000).text, /^Sending again\. /)
})

test("what is hours away, or no message, is not offered to be sent by itself", () => {
  assert.equal(refused({ retryAfterS: 7_200 }).action, null)
  assert.equal(refused({}).action, null)
  assert.equal(refused({ retryAfterS: 12 }, 0, null).action, null)
  assert.match(refused({ retryAfterS: 12 }, 0, null).text, /You can try again in 12 s\.$/)
  assert.equal(secondsLeft({ error: {} }, 5), null)
})

test("what is to be sent by itself is sent at its moment, not hours after it", () => {
  const refusal = { error: { retryAfterS: 12 }, at: 0, armed: true }
  const due = (now, more = {}) => dueNow({ ...refusal, ...more }, now)
  assert.deepEqual([due(11_000), due(12_000), due(131_000)], ["wait", "send", "send"])
  assert.deepEqual([due(133_000), due(10 * 3600_000)], ["late", "late"], "the lid was closed")
  assert.deepEqual([due(12_000, { armed: false }), dueNow(null, 0)], ["wait", "wait"])
})

test("codes of the contract have words of the page", () => {
  for (const code of ["no_plan", "not_in_region", "too_many_live_runs", "password_change_required"]) {
    const { text } = refused({ code, status: 403, message: "as the server says" })
    assert.doesNotMatch(text, /as the server says|Too many messages/, code)
  }
})
