/**
 * What an error code of the API means to a reader, in the page's own words: the API speaks English, to
 * programs. A code that is not here is told in the server's words where the page is English.
 */
import { language, t } from "#js/models/i18n.js"
import { sentence } from "#js/models/strip_line.js"

const manyWait = () => t("Many people are waiting just now.")

/** Code of the API, else status → what happened. */
const HAPPENED = {
  csrf_failed: () => t("The page has been open for too long."),
  run_live: () => t("An answer is still being written there."),
  unknown_model: () => t("This model is not there any more."),
  text_destroyed: () => t("The key that protects this text was destroyed. It can no longer be read."),
  not_in_region: () => t("No region that your organisation allows serves this model."),
  too_large: () => t("Your message is too long."),
  no_plan: () => t("You have no plan, so no model may answer you. Ask your administrator."),
  too_many_live_runs: () => t("You have too many answers waiting or being written. Wait for one to end."),
  too_many_streams: () => t("You have too many answers open. Close another tab."),
  idempotency_key_reused: () => t("This message was sent already, with another text."),
  invalid_parent: () => t("The message above this one is not there any more."),
  precondition_failed: () => t("The conversation has moved on elsewhere."),
  password_change_required: () => t("Choose your own password first. Load the page again."),
  body_too_slow: () => t("The connection was too slow to send this."),
  quota_exceeded: () => t("You have used your messages to this model for now."),
  tokens_per_minute: () => t("That was more text than your plan allows in a minute."),
  rate_limited: () => t("Too many messages just now."),
  busy: manyWait,
  queue_full: manyWait,
  too_many_api_tokens: () => t("You have too many API tokens. Revoke one first."),
  404: () => t("This conversation is gone."),
  409: () => t("The conversation has moved on elsewhere."),
  413: () => t("Your message is too long."),
  429: () => t("Too many messages just now."),
  503: () => t("No answer can be started just now."),
}

/** What happened, of an error of the API or of the line. */
export function happened({ code, status, message }) {
  // Its words say why, which the page cannot know.
  if (code === "not_continuable") return serversWords(message) || t("This answer cannot be continued.")
  const known = HAPPENED[code] ?? HAPPENED[status]
  return known ? known() : otherProblem({ status, message })
}

/** Of an action that has no words of its own for it. */
export function otherProblem({ status, message } = {}) {
  if (!status) return t("The server could not be reached.")
  return status < 500 ? serversWords(message) || t("The server did not accept this.") : t("Something broke on our side.")
}

/** English, so for English pages alone; "" elsewhere, and where there are none. */
export function serversWords(message) {
  return message && language().startsWith("en") ? sentence(message) : ""
}

/** Why an answer broke off. */
const BROKEN = {
  engine_failed: () => t("The model stopped answering."),
  interrupted: () => t("The answer was interrupted."),
  prompt_too_long: () => t("This conversation is too long for the model. Start a new chat, or send a shorter message."),
  not_in_region: () => t("Your organisation allows no region in which this model is served. Ask your administrator."),
  rejected: () => t("The model refused this request."),
}

/** @param {{code: string, message: string}} error of a reply */
export function brokenOff({ code, message }) {
  return BROKEN[code]?.() ?? (serversWords(message) || t("The answer ended with an error."))
}
