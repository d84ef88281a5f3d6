import assert from "node:assert/strict"
import { afterEach, test } from "node:test"

import { ApiError, NetworkError } from "#js/models/api.js"
import { setLanguage } from "#js/models/i18n.js"
import { brokenOff, happened, otherProblem } from "#js/models/problems.js"

const refused = (status, code, message = "Server's words") => new ApiError({ status, code, message })

afterEach(() => setLanguage())

test("a known code has the page's own words, whatever the server says", () => {
  assert.equal(happened(refused(409, "run_live")), "An answer is still being written there.")
  assert.equal(happened(refused(429, "quota_exceeded")), "You have used your messages to this model for now.")
  assert.equal(happened(refused(413, "body_too_large")), "Your message is too long.")
  assert.equal(brokenOff({ code: "rejected", message: "x" }), "The model refused this request.")
})

test("the server's English is shown on English pages alone", () => {
  assert.equal(happened(refused(400, "brand_new")), "Server's words.")
  assert.equal(brokenOff({ code: "brand_new", message: "It broke" }), "It broke.")
  setLanguage({ locale: "hi", messages: { "The server did not accept this.": "स्वीकार नहीं" } })
  assert.equal(happened(refused(400, "brand_new")), "स्वीकार नहीं")
  assert.equal(otherProblem(refused(400, "brand_new")), "स्वीकार नहीं")
  assert.equal(brokenOff({ code: "brand_new", message: "It broke" }), "The answer ended with an error.")
})

test("who is to blame is told: our side, or the line", () => {
  assert.equal(happened(refused(500, "internal_error")), "Something broke on our side.")
  assert.equal(happened(new NetworkError("x")), "The server could not be reached.")
  assert.equal(otherProblem(), "The server could not be reached.")
})
