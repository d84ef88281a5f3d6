/**
 * What the page says about waiting and failing. Every wait has a name; every error says what happened,
 * what was kept and what to do. Pure, so that each sentence is tested.
 */
import { QUEUED, SENDING } from "#js/models/message.js"

/** Actions a strip may offer; the controller knows how to do them. */
export const SIGN_IN = { verb: "sign-in", label: "Sign in" }
export const TRY_AGAIN = { verb: "try-again", label: "Try again" }
export const SHOW_IT = { verb: "show-elsewhere", label: "Show it" }
export const CONTINUE = { verb: "continue", label: "Continue" }

/**
 * What the status strip says now.
 * @returns {{tone: "wait"|"info"|"warn"|"bad", icon: string, text: string, action?: object} | null}
 */
export function stripFor(conversation, { online = true } = {}) {
  if (!online) return line("warn", "offline", "You are offline. Nothing is lost; this goes on when the line is back.")
  if (conversation.status === "failed") return loadFailed(conversation.loadError)
  if (conversation.signedOut) return line("bad", "bad", "You have been signed out. Nothing is lost.", SIGN_IN)
  if (conversation.switching) return line("wait", "clock", "Fetching the other version")
  const reply = conversation.liveReply
  return (reply && liveLine(conversation, reply)) || restLine(conversation, reply)
}

/** What there is to say where nothing is waited for. */
function restLine(conversation, reply) {
  if (conversation.failure) return failureLine(conversation.failure)
  if (conversation.refusal?.paste) return pasteLine(conversation.refusal.paste)
  if (conversation.refusal) return refusedLine(conversation.refusal)
  if (reply) return null // the text itself says what is happening
  if (conversation.elsewhere) return line("info", "info", "This conversation went on in another version on another device.", SHOW_IT)
  return endedLine(conversation.ended)
}

function line(tone, icon, text, action = null) {
  return { tone, icon, text, action }
}

function loadFailed(error) {
  if (signedOut(error)) return line("bad", "bad", "You have been signed out. Nothing is lost.", SIGN_IN)
  return line("bad", "bad", "The conversation could not be loaded. Nothing is lost.", TRY_AGAIN)
}

function liveLine({ link, notice, waitsForStop }, reply) {
  if (waitsForStop) return line("wait", "clock", "Sent as soon as the answer above has stopped")
  if (notice?.code === "stop_failed") return line("warn", "warn", "The stop did not get through. Press stop again.")
  if (reply.stopping) return line("wait", "clock", "Stopping")
  if (reconnecting(link)) return reconnectLine(reply)
  if (reply.phase === SENDING) return line("wait", "clock", "Sending")
  const told = notice?.code === "queued" ? notice.told : notice
  if (told && (reply.phase !== QUEUED || told === notice)) return line("info", "info", noticeText(told))
  if (reply.phase !== QUEUED) return null
  if (!notice) return line("wait", "clock", "Reading your message")
  return line("wait", "clock", told ? `${queuedText(notice)}. ${noticeText(told)}` : queuedText(notice))
}

/** A place in the queue is news for a moment; what was told before it holds for the whole answer. */
export function noticeAfter(before, notice) {
  if (notice.code !== "queued") return notice
  const told = before?.code === "queued" ? before.told : before
  return told && told.code !== "stop_failed" ? { ...notice, told } : notice
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
  other_region: "Answered from another region, to begin sooner",
  recovered: "Continued on another machine",
}

function noticeText(notice) {
  if (notice.back_at) return notice.text // a plan's limit, not a busy hour
  return NOTICES[notice.code] ?? notice.text ?? ""
}

const ORDINALS = ["", "Next", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth"]

/** "Third in line, about 20 s" */
export function queuedText({ position = null, eta_s: etaS = null }) {
  const place = position ? `${ORDINALS[position] ?? `Number ${position}`} in line` : "Waiting in line"
  return etaS ? `${place}, about ${roughly(etaS)}` : place
}

/** Seconds as people say them: 4 s, 20 s, 2 min, 3 h. */
export function roughly(seconds) {
  if (seconds < 10) return `${Math.max(1, Math.round(seconds))} s`
  if (seconds < 90) return `${Math.ceil(seconds / 5) * 5} s`
  if (seconds < 90 * 60) return `${Math.ceil(seconds / 60)} min`
  return `${Math.ceil(seconds / 3600)} h`
}

/** Where a refused text is now. */
const KEPT = {
  below: "Your message is kept below",
  "in its place": "Your message is kept where you edited it",
}

const REFUSALS = {
  csrf_failed: ["The page has been open for too long.", "load the page again, then send it"],
  run_live: ["An answer is still being written there.", "wait for its end or stop it, then send it"],
  unknown_model: ["This model is not there any more.", "choose another one, then send it"],
  404: ["This conversation is gone."],
  409: ["The conversation has moved on elsewhere.", "load the page again, then send it"],
  413: ["Your message is too long.", "shorten it, then send it"],
  quota_exceeded: ["You have used your messages to this model for now."],
  tokens_per_minute: ["That was more text than your plan allows in a minute."],
  busy: ["Many people are waiting just now."],
  queue_full: ["Many people are waiting just now."],
  429: ["Too many messages just now."],
  503: ["No answer can be started just now."],
}

/** What happened; what was kept; what to do. */
function refusedLine({ error, kept = "below" }) {
  if (signedOut(error)) return line("bad", "bad", ["You have been signed out.", keptText(kept)].filter(Boolean).join(" "), SIGN_IN)
  const [happened, advice] = refusalOf(error)
  const later = error.status === 429 || error.status === 503
  const todo = later ? whenText(error, kept) : advice
  const tone = later ? "warn" : "bad"
  if (kept) return line(tone, tone, `${happened} ${KEPT[kept]}${todo ? `; ${todo}` : ""}.`)
  return line(tone, tone, `${happened} ${later ? `${capital(todo)}.` : "Nothing has changed."}`)
}

function refusalOf(error) {
  if (error.code === "not_continuable") return otherRefusal(error)
  return REFUSALS[error.code] ?? REFUSALS[error.status] ?? otherRefusal(error)
}

function keptText(kept) {
  return kept ? `${KEPT[kept]}.` : "Nothing is lost."
}

/** The server's own words where it has some; else the line is to blame. */
function otherRefusal({ status, message }) {
  if (status && status < 500 && message) return [sentence(message)]
  return [status ? "Something broke on our side." : "The server could not be reached.", "send it again in a moment"]
}

const FAILURES = {
  switch: "The other version could not be shown.",
  feedback: "What you think of this answer could not be saved.",
}

function failureLine({ what, error }) {
  if (signedOut(error)) return line("bad", "bad", `You have been signed out. ${FAILURES[what]}`, SIGN_IN)
  const next = error.status === 404 ? "It is gone." : "Nothing has changed; try again in a moment."
  return line("bad", "bad", `${FAILURES[what]} ${next}`)
}

/** Why a conversation could not be renamed; the title that was typed is still there. */
export function renameProblem(error) {
  if (signedOut(error)) return "You have been signed out. Sign in on another tab, then save again."
  if (error.status === 404) return "This conversation is gone."
  if (error.status && error.status < 500 && error.message) return sentence(error.message)
  return "The title could not be saved. It is still here; try again in a moment."
}

/** Shown in place of a text that is lost for good. */
export const UNREADABLE_TEXT = "This text can no longer be read."
export const UNREADABLE_TITLE = "This title can no longer be read"

/** A conversation's title in the list and above the thread. */
export function titleText({ title = "", active_leaf: leaf = null } = {}) {
  return title || (leaf ? UNREADABLE_TITLE : "New conversation")
}

/**
 * What the page says of a conversation that was deleted here.
 * @param {{item: object, state: string, error: object|null}} entry as `Trash` has it
 * @returns {{text: string, verb: "undo"|"again"|null, label: string}}
 */
export function trashLine({ item, state, error }) {
  const name = `“${isolated(shortened(titleText(item)))}”`
  const lines = {
    deleting: [`${name} was deleted.`, "undo", "Undo"],
    deleted: [`${name} was deleted.`, "undo", "Undo"],
    restoring: [`Bringing back ${name}`, null, ""],
    failed: [`${name} could not be deleted. ${problemText(error)}`, "again", "Try again"],
    lost: [`${name} could not be brought back. ${problemText(error)}`, "undo", "Try again"],
  }
  const [text, verb, label] = lines[state]
  return { text, verb, label }
}

function problemText(error) {
  if (signedOut(error)) return "You have been signed out."
  if (error?.status && error.status < 500 && error.message) return sentence(error.message)
  return error?.status ? "Something broke on our side." : "The server could not be reached."
}

/** So that a title which runs from right to left does not turn the sentence around it. */
function isolated(text) {
  return `\u2068${text}\u2069`
}

function shortened(title) {
  const characters = [...title]
  return characters.length > 40 ? `${characters.slice(0, 39).join("").trimEnd()}…` : title
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

function pasteLine({ bytes, maxBytes }) {
  const text = `With that, the message would have ${kilobytes(bytes)} KB, and ${kilobytes(maxBytes)} KB is the most. Nothing was pasted.`
  return line("warn", "warn", text)
}

function kilobytes(bytes) {
  return Math.ceil(bytes / 1024).toLocaleString("en")
}

function whenText({ retryAfterS }, kept) {
  const verb = kept ? "send it again" : "try again"
  return retryAfterS ? `${verb} in ${roughly(retryAfterS)}` : `${verb} in a moment`
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
  return text ? line(...text, reply.continuable ? CONTINUE : null) : null
}

const ENDINGS = {
  user_stopped: ["info", "info", "Stopped. What was written is kept"],
  unwatched: ["info", "info", "Ended because nobody was looking. What was written is kept"],
  length: ["info", "info", "The answer reached its length limit"],
  interrupted: ["warn", "warn", "The answer was interrupted. What was written is kept"],
  moderation: ["warn", "warn", "The answer was taken back. You can ask in another way"],
  error: ["bad", "bad", "The answer ended with an error. What was written is kept; ask again"],
}

function errorLine(reply) {
  if (signedOut(reply.error)) return line("bad", "bad", "You have been signed out. The answer is written on and kept.", SIGN_IN)
  if (reply.error.status) return line("bad", "bad", "The answer cannot be followed any further. It is kept.", TRY_AGAIN)
  const next = reply.error.retryable ? "What was written is kept; ask again in a moment." : "What was written is kept."
  return line("bad", "bad", `${sentence(reply.error.message || "The answer ended with an error")} ${next}`, reply.continuable ? CONTINUE : null)
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
export function earlierLabel(error, loading = false) {
  if (loading) return "Loading earlier messages"
  return error ? "Earlier messages could not be loaded. Try again" : "Show earlier messages"
}

/** What a screen reader hears when a reply ends, once. */
export function endAnnouncement(reply) {
  const strip = endedLine(reply)
  return strip ? strip.text : "Answer finished."
}
