/**
 * What the page says about waiting and failing. Every wait has a name; every error says what happened,
 * what was kept and what to do. Pure, so that each sentence is tested.
 */
import { QUEUED, SENDING } from "#js/models/message.js"

/** Actions a strip may offer; the controller knows how to do them. */
export const SIGN_IN = { verb: "sign-in", label: "Sign in" }
export const TRY_AGAIN = { verb: "try-again", label: "Try again" }

/**
 * What the status strip says now.
 * @returns {{tone: "wait"|"info"|"warn"|"bad", icon: string, text: string, action?: object} | null}
 */
export function stripFor(conversation, { online = true } = {}) {
  if (!online) return line("warn", "offline", "You are offline. Nothing is lost; this goes on when the line is back.")
  if (conversation.status === "failed") return loadFailed(conversation.loadError)
  const reply = conversation.liveReply
  if (reply) return liveLine(conversation, reply)
  if (conversation.refusal?.paste) return pasteLine(conversation.refusal.paste)
  if (conversation.refusal) return refusedLine(conversation.refusal.error)
  return endedLine(conversation.ended)
}

function line(tone, icon, text, action = null) {
  return { tone, icon, text, action }
}

function loadFailed(error) {
  if (signedOut(error)) return line("bad", "bad", "You have been signed out. Nothing is lost.", SIGN_IN)
  return line("bad", "bad", "The conversation could not be loaded. Nothing is lost.", TRY_AGAIN)
}

function liveLine({ link, notice }, reply) {
  if (notice?.code === "stop_failed") return line("warn", "warn", "The stop did not get through. Press stop again.")
  if (reply.stopping) return line("wait", "clock", "Stopping")
  if (reconnecting(link)) return reconnectLine(reply)
  if (reply.phase === SENDING) return line("wait", "clock", "Sending")
  if (notice && notice.code !== "queued") return line("info", "info", noticeText(notice))
  if (reply.phase !== QUEUED) return null // the text itself says what is happening
  return line("wait", "clock", notice ? queuedText(notice) : "Reading your message")
}

function reconnecting(link) {
  return link?.state === "waiting" || (link?.state === "connecting" && link.again)
}

function reconnectLine(reply) {
  if (reply.phase === SENDING) return line("warn", "offline", "The server cannot be reached. Sending again; your message is kept")
  return line("warn", "offline", "Reconnecting, nothing is lost")
}

const NOTICES = {
  smaller_model: "Using the smaller model until it is quieter",
  shorter_answer: "A shorter answer until it is quieter",
  recovered: "Continued on another machine",
}

function noticeText(notice) {
  return NOTICES[notice.code] ?? notice.text ?? ""
}

const ORDINALS = ["", "Next", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth"]

/** "Third in line, about 20 s" */
export function queuedText({ position = null, eta_s: etaS = null }) {
  const place = position ? `${ORDINALS[position] ?? `Number ${position}`} in line` : "Waiting in line"
  return etaS ? `${place}, about ${roughly(etaS)}` : place
}

/** Seconds as people say them: 4 s, 20 s, 2 min. */
export function roughly(seconds) {
  if (seconds < 10) return `${Math.max(1, Math.round(seconds))} s`
  if (seconds < 90) return `${Math.ceil(seconds / 5) * 5} s`
  return `${Math.ceil(seconds / 60)} min`
}

const REFUSALS = {
  403: "The page has been open for too long. Your message is kept below; load the page again, then send it.",
  404: "This conversation is gone. Your message is kept below.",
  409: "The conversation has moved on elsewhere. Your message is kept below; load the page again, then send it.",
  413: "Your message is too long. It is kept below; shorten it, then send it.",
  429: "Too many messages just now. Yours is kept below;",
  503: "No answer can be started just now. Your message is kept below;",
}

function refusedLine(error) {
  if (signedOut(error)) return line("bad", "bad", "You have been signed out. Your message is kept below.", SIGN_IN)
  if (error.status === 429 || error.status === 503) return line("warn", "warn", `${REFUSALS[error.status]} ${whenText(error)}`)
  if (error.status === 400 || error.status === 422) return line("bad", "bad", `${sentence(error.message)} Your message is kept below.`)
  const text = REFUSALS[error.status] ?? "The message could not be sent. It is kept below; send it again in a moment."
  return line("bad", "bad", text)
}

function pasteLine({ bytes, maxBytes }) {
  const text = `With that, the message would have ${kilobytes(bytes)} KB, and ${kilobytes(maxBytes)} KB is the most. Nothing was pasted.`
  return line("warn", "warn", text)
}

function kilobytes(bytes) {
  return Math.ceil(bytes / 1024).toLocaleString("en")
}

function whenText({ retryAfterS }) {
  return retryAfterS ? `send it again in ${roughly(retryAfterS)}.` : "send it again in a moment."
}

function sentence(text) {
  const trimmed = (text || "The message was refused").trim()
  return /[.!?]$/.test(trimmed) ? trimmed : `${trimmed}.`
}

function signedOut(error) {
  return error?.status === 401
}

function endedLine(reply) {
  if (!reply) return null
  if (reply.error) return errorLine(reply)
  if (reply.finish === "user_stopped" && !reply.text) return line("info", "info", "Stopped before anything was written")
  const text = ENDINGS[reply.finish]
  return text ? line(...text) : null
}

const ENDINGS = {
  user_stopped: ["info", "info", "Stopped. What was written is kept"],
  unwatched: ["info", "info", "Ended because nobody was looking. What was written is kept"],
  length: ["info", "info", "The answer reached its length limit. Ask it to go on"],
  interrupted: ["warn", "warn", "The answer was interrupted. What was written is kept; ask it to go on"],
  moderation: ["warn", "warn", "The answer was taken back. You can ask in another way"],
  error: ["bad", "bad", "The answer ended with an error. What was written is kept; ask again"],
}

function errorLine(reply) {
  if (signedOut(reply.error)) return line("bad", "bad", "You have been signed out. The answer is written on and kept.", SIGN_IN)
  if (reply.error.status) return line("bad", "bad", "The answer cannot be followed any further. It is kept.", TRY_AGAIN)
  const next = reply.error.retryable ? "What was written is kept; ask again in a moment." : "What was written is kept."
  return line("bad", "bad", `${sentence(reply.error.message || "The answer ended with an error")} ${next}`)
}

const FINISH_NOTES = {
  length: "Length limit reached",
  user_stopped: "Stopped",
  unwatched: "Ended unwatched",
  interrupted: "Interrupted",
  moderation: "Taken back",
  error: "Ended with an error",
}

/** The short mark under a reply that did not end by itself; "" for one that did. */
export function finishNote(finish) {
  return FINISH_NOTES[finish] ?? ""
}

/** The button above the thread. */
export function earlierLabel(error) {
  return error ? "Earlier messages could not be loaded. Try again" : "Show earlier messages"
}

/** What a screen reader hears when a reply ends, once. */
export function endAnnouncement(reply) {
  const strip = endedLine(reply)
  return strip ? strip.text : "Answer finished."
}
