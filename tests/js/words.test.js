import assert from "node:assert/strict"
import { test } from "node:test"

import { ApiError, NetworkError } from "#js/models/api.js"
import { Message } from "#js/models/message.js"
import { roughly } from "#js/models/strip_line.js"
import { noticeAfter, queuedText } from "#js/models/waiting.js"
import { earlierLabel, endAnnouncement, finishNote, headingOf, renameProblem, stripFor, titleText } from "#js/models/words.js"

import { plain } from "./support.js"

function conversation({ phase = null, text = "", link = null, notice = null, stopping = false, ...more } = {}) {
  const reply = phase && Object.assign(new Message({ key: "k", role: "assistant", phase, text }), { stopping })
  return { status: "ready", liveReply: reply, link, notice, refusal: null, ended: null, loadError: null, ...more }
}

function ended(finish, { error = null, text = "x" } = {}) {
  return conversation({ ended: Object.assign(new Message({ key: "k", role: "assistant", text, finish }), { error }) })
}

const says = (state, options) => plain(stripFor(state, options)?.text)

test("every wait has its name", () => {
  assert.equal(says(conversation({ phase: "sending" })), "Sending")
  assert.equal(says(conversation({ phase: "queued" })), "Reading your message")
  assert.equal(says(conversation({ phase: "queued", notice: { code: "queued", position: 3, eta_s: 18 } })), "Third in line, about 20 s")
  assert.equal(says(conversation({ phase: "writing", text: "x" })), null)
  assert.equal(says(conversation({ phase: "writing", notice: { code: "queued", position: 1 } })), null)
  assert.equal(says(conversation({ phase: "writing", stopping: true })), "Stopping")
  assert.equal(says(conversation({ phase: "writing", notice: { code: "recovered" } })), "Continued on another machine")
  assert.equal(says(conversation({ phase: "writing", notice: { code: "brand_new", text: "As told" } })), "As told")
  assert.equal(says(conversation()), null)
})

test("that another model answers stays said, in the queue and while it is written", () => {
  const other = { code: "other_model", text: "As the server says it", model: "small", instead_of: "big" }
  const text = "big cannot be reached just now; small answers instead"
  const place = (position) => ({ code: "queued", position })
  const waiting = noticeAfter(noticeAfter(noticeAfter(null, other), place(3)), place(2))
  assert.equal(says(conversation({ phase: "queued", notice: other })), text)
  assert.equal(says(conversation({ phase: "queued", notice: waiting })), `Second in line. ${text}`)
  assert.equal(says(conversation({ phase: "writing", notice: waiting })), text)
  assert.equal(says(conversation({ phase: "queued", notice: noticeAfter({ code: "stop_failed" }, place(1)) })), "Next in line")
})

test("a lost line is named, and that nothing is lost with it", () => {
  for (const link of [{ state: "waiting", inMs: 5 }, { state: "connecting", again: true }]) {
    assert.equal(says(conversation({ phase: "writing", link })), "Reconnecting, nothing is lost")
  }
  assert.equal(says(conversation({ phase: "writing", link: { state: "connecting", again: false } })), null)
  assert.match(says(conversation({ phase: "sending", link: { state: "waiting" } })), /Sending again/)
  assert.match(says(conversation({ phase: "writing" }), { online: false }), /offline/)
})

test("a refusal says what was kept and what to do", () => {
  const refused = (error) => says(conversation({ refusal: { error } }))
  const api = (status, more = {}) => new ApiError({ status, code: "x", message: "Bad value", ...more })
  assert.match(refused(api(429, { retryAfterS: 12 })), /kept below\. You can send again in 12 s\.$/)
  assert.match(refused(api(503)), /kept below\. Send it again in a moment\.$/)
  assert.match(refused(api(400)), /^Bad value\. Your message is kept below\.$/)
  for (const status of [401, 403, 404, 409, 413, 418, 500]) assert.match(refused(api(status)), /kept/, String(status))
  assert.match(refused(new NetworkError("x")), /kept below/)
  assert.deepEqual(stripFor(conversation({ refusal: { error: api(401) } })).action, { verb: "sign-in", label: "Sign in" })
})

test("a paste too large is refused with both sizes", () => {
  const text = says(conversation({ refusal: { paste: { bytes: 2 * 1024 * 1024, maxBytes: 131_072 } } }))
  assert.equal(text, "With that, the message would have 2,048 KB, and 128 KB is the most. Nothing was pasted.")
})

test("an ending that is not the usual one is told", () => {
  assert.equal(says(ended("stop")), null)
  assert.equal(says(ended("user_stopped")), "Stopped. What was written is kept")
  assert.equal(says(ended("user_stopped", { text: "" })), "Stopped before anything was written")
  for (const finish of ["length", "unwatched", "interrupted", "moderation", "error"]) {
    assert.ok(says(ended(finish)), finish)
    assert.ok(finishNote(finish), finish)
  }
  assert.equal(finishNote("stop"), "")
  assert.equal(finishNote(null), "")
  assert.match(says(ended("error", { error: { message: "The engine died", retryable: true } })), /^The engine died\. What was written is kept; ask again/)
})

test("the end is announced in one sentence", () => {
  assert.equal(endAnnouncement(new Message({ key: "k", role: "assistant", finish: "stop" })), "Answer finished.")
  assert.match(endAnnouncement(ended("interrupted").ended), /interrupted/)
})

test("loading that failed offers to try again, or to sign in", () => {
  assert.equal(stripFor(conversation({ status: "failed", loadError: { status: 500 } })).action.verb, "try-again")
  assert.equal(stripFor(conversation({ status: "failed", loadError: { status: 401 } })).action.verb, "sign-in")
})

test("the button for earlier messages says that it failed and may be pressed again", () => {
  assert.equal(earlierLabel(null, true), "Loading earlier messages")
  assert.equal(earlierLabel(null), "Show earlier messages")
  assert.equal(earlierLabel(new NetworkError()), "Earlier messages could not be loaded. Try again")
})

test("places and times are said as people say them", () => {
  assert.equal(plain(queuedText({ position: 1, eta_s: 4.2 })), "Next in line, about 4 s")
  assert.equal(queuedText({ position: 12 }), "Number 12 in line")
  assert.equal(queuedText({}), "Waiting in line")
  assert.deepEqual([0.2, 9, 11, 61, 100, 3_600].map((seconds) => plain(roughly(seconds))), ["1 s", "9 s", "15 s", "65 s", "2 min", "60 min"])
})

test("a refused edit is kept in its place; of a regenerate nothing has changed", () => {
  const api = (status, more = {}) => new ApiError({ status, code: "x", message: "Bad value", ...more })
  const refused = (error, kept) => says(conversation({ refusal: { error, kept } }))
  assert.equal(refused(api(429, { retryAfterS: 12 }), "in its place"), "Too many messages just now. Your message is kept where you edited it. You can send again in 12 s.")
  const busy = api(429, { code: "busy", retryAfterS: 12 })
  assert.equal(refused(busy), "Many people are waiting just now. Your message is kept below. You can send again in 12 s.")
  const used = api(429, { code: "quota_exceeded", retryAfterS: 10_000 })
  assert.equal(refused(used), "You have used your messages to this model for now. Your message is kept below. You can send again in 3 h.")
  assert.equal(refused(api(429, { retryAfterS: 12 }), null), "Too many messages just now. You can try again in 12 s.")
  assert.equal(refused(api(409, { code: "not_continuable", message: "It is complete." }), null), "It is complete. Nothing has changed.")
  assert.equal(refused(new NetworkError("x"), null), "The server could not be reached. Nothing has changed.")
  assert.equal(refused(api(500), null), "Something broke on our side. Nothing has changed.")
  assert.match(refused(api(409, { code: "run_live" }), "below"), /still being written/)
  assert.match(refused(api(400, { code: "unknown_model" }), "below"), /Choose another one/)
  assert.match(refused(api(403, { code: "text_destroyed", message: "x" }), "below"), /^The key .* was destroyed\. .* Your message is kept below\.$/)
  assert.match(refused(api(403, { code: "brand_new", message: "As told" }), "below"), /^As told\. Your message is kept below\./)
  assert.match(refused(api(403, { code: "csrf_failed" }), "below"), /open for too long/)
  assert.deepEqual(stripFor(conversation({ refusal: { error: api(401), kept: null } })).action.verb, "sign-in")
})

test("switching, other devices, waiting for a stop and failures have their words", () => {
  assert.equal(says(conversation({ switching: true })), "Fetching the other version")
  assert.equal(says(conversation({ phase: "sending", waitsForStop: true })), "Sent as soon as the answer above has stopped")
  assert.deepEqual(stripFor(conversation({ elsewhere: true })).action.verb, "show-elsewhere")
  assert.equal(says(conversation({ elsewhere: true, phase: "writing", text: "x" })), null)
  assert.match(says(conversation({ failure: { what: "switch", error: { status: 500 } } })), /Nothing has changed; try again/)
  assert.match(says(conversation({ failure: { what: "feedback", error: { status: 404 } }, phase: "writing", text: "x" })), /It is gone/)
  assert.deepEqual(stripFor(conversation({ failure: { what: "switch", error: { status: 401 } } })).action.verb, "sign-in")
  assert.deepEqual(stripFor(conversation({ signedOut: true })).action.verb, "sign-in")
})

test("a reply that was cut off offers to go on", () => {
  for (const finish of ["length", "user_stopped", "interrupted", "error"]) assert.equal(stripFor(ended(finish)).action.verb, "continue", finish)
  assert.equal(stripFor(ended("moderation")).action, null)
  assert.equal(stripFor(ended("user_stopped", { text: "" })).action, null)
  assert.equal(stripFor(ended("error", { error: { message: "It died", retryable: true } })).action.verb, "continue")
})

test("a title that cannot be read says so, and one that is not there yet does not", () => {
  assert.equal(titleText({ title: "Goa", active_leaf: "m_1" }), "Goa")
  assert.equal(titleText({ title: "", active_leaf: "m_1" }), "This title can no longer be read")
  assert.equal(titleText({ title: "", active_leaf: null }), "New conversation")
  assert.equal(titleText(undefined), "New conversation")
})

test("a conversation that is not read yet has no name of its own above it", () => {
  const conversation = { id: "c_1", status: "loading", title: "", activeLeaf: null }
  assert.equal(headingOf(conversation).named, false)
  assert.deepEqual(headingOf(conversation, { title: "Goa" }), { text: "Goa", named: true })
  assert.deepEqual(headingOf({ ...conversation, status: "failed" }), { text: "Not loaded", named: true })
  assert.deepEqual(headingOf({ ...conversation, status: "missing" }), { text: "Not here", named: true })
  assert.deepEqual(headingOf({ ...conversation, status: "ready", title: "Goa" }), { text: "Goa", named: true })
  assert.deepEqual(headingOf({ id: null, status: "ready", title: "", activeLeaf: null }), { text: "New conversation", named: true })
})

test("a rename that failed says why", () => {
  assert.equal(renameProblem({ status: 400, message: "The title is empty" }), "The title is empty.")
  assert.match(renameProblem({ status: 401 }), /signed out/)
  assert.match(renameProblem({ status: 404 }), /gone/)
  assert.match(renameProblem(new NetworkError("x")), /still here/)
})
