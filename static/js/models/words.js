/**
 * What the page says about waiting and failing. Every wait has a name; every error says what happened,
 * what was kept and what to do. Pure, so that each sentence is tested.
 */
import { t } from "#js/models/i18n.js"
import { brokenOff, otherProblem, serversWords } from "#js/models/problems.js"
import { refusedLine } from "#js/models/refusals.js"
import { action, line, signedOut } from "#js/models/strip_line.js"
import { liveLine } from "#js/models/waiting.js"

/**
 * What the status strip says now.
 * @param {object} view {online, now, titleOf(slug)}: what of the page the words depend on
 * @returns {{tone: "wait"|"info"|"warn"|"bad", icon: string, text: string, action: object|null, ticks?: boolean} | null}
 */
export function stripFor(conversation, view = {}) {
  const { online = true, now } = view
  if (!online) return line("warn", "offline", t("You are offline. Nothing is lost; this goes on when the line is back."))
  if (conversation.status === "failed") return loadFailed(conversation.loadError)
  if (conversation.signedOut) return line("bad", "bad", t("You have been signed out. Nothing is lost."), action("sign-in"))
  if (conversation.switching) return line("wait", "clock", t("Fetching the other version"))
  const reply = conversation.liveReply
  return (reply && liveLine(conversation, reply, view)) || restLine(conversation, reply, now)
}

/** What there is to say where nothing is waited for. */
function restLine(conversation, reply, now) {
  if (conversation.failure) return failureLine(conversation.failure)
  if (conversation.refusal) return refusedLine(conversation.refusal, now)
  if (reply) return null // the text itself says what is happening
  if (conversation.elsewhere) return line("info", "info", t("This conversation went on in another version on another device."), action("show-elsewhere"))
  return endedLine(conversation.ended)
}

function loadFailed(error) {
  if (signedOut(error)) return line("bad", "bad", t("You have been signed out. Nothing is lost."), action("sign-in"))
  return line("bad", "bad", t("The conversation could not be loaded. Nothing is lost."), action("try-again"))
}

const FAILURES = {
  switch: () => t("The other version could not be shown."),
  feedback: () => t("What you think of this answer could not be saved."),
}

function failureLine({ what, error }) {
  if (signedOut(error)) return line("bad", "bad", `${t("You have been signed out.")} ${FAILURES[what]()}`, action("sign-in"))
  const next = error.status === 404 ? t("It is gone.") : t("Nothing has changed; try again in a moment.")
  return line("bad", "bad", `${FAILURES[what]()} ${next}`)
}

/** Why a conversation could not be renamed; the title that was typed is still there. */
export function renameProblem(error) {
  if (signedOut(error)) return t("You have been signed out. Sign in on another tab, then save again.")
  if (error.status === 404) return t("This conversation is gone.")
  const words = error.status && error.status < 500 ? serversWords(error.message) : ""
  return words || t("The title could not be saved. It is still here; try again in a moment.")
}

/** Shown in place of a text that is lost for good. */
export function unreadableText() {
  return t("This text can no longer be read.")
}

/** A conversation's title in the list and above the thread. */
export function titleText({ title = "", active_leaf: leaf = null } = {}) {
  return title || (leaf ? t("This title can no longer be read") : t("New conversation"))
}

/**
 * What stands above the thread.
 * @param {object|undefined} known the conversation as the list has it
 * @returns {{text: string, named: boolean}} not named: its name is not known yet, and none is shown
 */
export function headingOf({ status, title, activeLeaf, id }, known) {
  if (status === "missing") return { text: t("Not here"), named: true }
  const isRead = status !== "loading" && status !== "failed"
  if (isRead) return { text: titleText({ title: title || known?.title, active_leaf: id && activeLeaf }), named: true }
  if (known) return { text: titleText(known), named: true }
  return { text: status === "failed" ? t("Not loaded") : t("Opening the conversation"), named: status === "failed" }
}

/**
 * What the page says of a conversation that was deleted here.
 * @param {{item: object, state: string, error: object|null}} entry as `Trash` has it
 * @returns {{text: string, verb: "undo"|"again"|null, label: string}}
 */
export function trashLine({ item, state, error }) {
  const name = `“${isolated(shortened(titleText(item)))}”`
  const lines = {
    deleting: [t("{name} was deleted.", { name }), "undo", t("Undo")],
    deleted: [t("{name} was deleted.", { name }), "undo", t("Undo")],
    restoring: [t("Bringing back {name}", { name }), null, ""],
    failed: [t("{name} could not be deleted. {problem}", { name, problem: problemText(error) }), "again", t("Try again")],
    lost: [t("{name} could not be brought back. {problem}", { name, problem: problemText(error) }), "undo", t("Try again")],
  }
  const [text, verb, label] = lines[state]
  return { text, verb, label }
}

function problemText(error) {
  return signedOut(error) ? t("You have been signed out.") : otherProblem(error ?? {})
}

/** So that a title which runs from right to left does not turn the sentence around it. */
function isolated(text) {
  return `\u2068${text}\u2069`
}

function shortened(title) {
  const characters = [...title]
  return characters.length > 40 ? `${characters.slice(0, 39).join("").trimEnd()}…` : title
}

function endedLine(reply) {
  if (!reply) return null
  if (reply.error) return errorLine(reply)
  if (reply.finish === "user_stopped" && !reply.text) return line("info", "info", t("Stopped before anything was written"))
  const ending = ENDINGS[reply.finish]
  return ending ? line(...ending(), reply.continuable ? action("continue") : null) : null
}

const ENDINGS = {
  user_stopped: () => ["info", "info", t("Stopped. What was written is kept")],
  unwatched: () => ["info", "info", t("Ended because nobody was looking. What was written is kept")],
  length: () => ["info", "info", t("The answer reached its length limit")],
  interrupted: () => ["warn", "warn", t("The answer was interrupted. What was written is kept")],
  moderation: () => ["warn", "warn", t("The answer was taken back. You can ask in another way")],
  error: () => ["bad", "bad", t("The answer ended with an error. What was written is kept; ask again")],
}

function errorLine(reply) {
  if (signedOut(reply.error)) return line("bad", "bad", t("You have been signed out. The answer is written on and kept."), action("sign-in"))
  if (reply.error.status) return line("bad", "bad", t("The answer cannot be followed any further. It is kept."), action("try-again"))
  const next = reply.error.retryable ? t("What was written is kept; ask again in a moment.") : t("What was written is kept.")
  return line("bad", "bad", `${brokenOff(reply.error)} ${next}`, reply.continuable ? action("continue") : null)
}

const FINISH_NOTES = {
  length: () => t("Length limit reached"),
  user_stopped: () => t("Stopped"),
  unwatched: () => t("Ended unwatched"),
  interrupted: () => t("Interrupted"),
  moderation: () => t("Taken back"),
  error: () => t("Ended with an error"),
}

/** The short mark under a reply that did not end by itself; "" for one that did. */
export function finishNote(finish) {
  return FINISH_NOTES[finish]?.() ?? ""
}

/** The button above the thread. */
export function earlierLabel(error, loading = false) {
  if (loading) return t("Loading earlier messages")
  return error ? t("Earlier messages could not be loaded. Try again") : t("Show earlier messages")
}

/** What a screen reader hears when a reply ends, once. */
export function endAnnouncement(reply) {
  const strip = endedLine(reply)
  return strip ? strip.text : t("Answer finished.")
}
