/** What the strip says of something that was asked for and refused: what happened, what was kept, what to do. */
import { t } from "#js/models/i18n.js"
import { happened } from "#js/models/problems.js"
import { action, exactly, kilobytes, line, paragraph, signedOut } from "#js/models/strip_line.js"

// Nobody leaves a page open for hours to have one message sent.
export const MAX_SEND_THEN_S = 15 * 60
// Who closes the lid over a message that is to be sent by itself does not expect it to go when it is opened again.
const MAX_LATE_MS = 2 * 60 * 1000

/** Where a refused text is now. */
const KEPT = {
  below: () => t("Your message is kept below."),
  "in its place": () => t("Your message is kept where you edited it."),
}

// What to do, by the API's code, else by status; what happened is in problems.js.
const ADVICE = {
  csrf_failed: sendAgain,
  run_live: () => t("Wait for its end or stop it, then send it."),
  unknown_model: chooseAnother,
  not_in_region: chooseAnother,
  too_large: shorten,
  409: sendAgain,
  413: shorten,
}

function sendAgain() {
  return t("Load the page again, then send it.")
}

function chooseAnother() {
  return t("Choose another one, then send it.")
}

function shorten() {
  return t("Shorten it, then send it.")
}

/** @param {{error: object, kept?: string|null, at?: number, armed?: boolean, paste?: object}} refusal as the conversation has it */
export function refusedLine(refusal, now = Date.now()) {
  if (refusal.paste) return pasteLine(refusal.paste)
  const { error, kept = "below", armed = false } = refusal
  if (signedOut(error)) return line("bad", "bad", paragraph(t("You have been signed out."), KEPT[kept]?.() ?? t("Nothing is lost.")), action("sign-in"))
  if (armed) return armedLine(refusal, now)
  const later = error.status === 429 || error.status === 503
  const tone = later ? "warn" : "bad"
  if (!later) return line(tone, tone, paragraph(happened(error), KEPT[kept]?.() ?? t("Nothing has changed."), kept && adviceOn(error)))
  const left = secondsLeft(refusal, now)
  return line(tone, "clock", paragraph(happened(error), KEPT[kept]?.(), whenText(left, kept)), sendThen(left, kept), { ticks: left > 0 })
}

/** How long until the refused send may be made again; null where the server did not say. */
export function secondsLeft({ error, at }, now) {
  const retryAfterS = error?.retryAfterS
  return retryAfterS ? Math.max(0, retryAfterS - Math.max(0, now - (at ?? now)) / 1000) : null
}

/**
 * What an armed send does now.
 * @returns {"wait"|"send"|"late"} late: its moment has passed while nobody could see it; the person is asked again
 */
export function dueNow(refusal, now) {
  if (!refusal?.armed || secondsLeft(refusal, now) !== 0) return "wait"
  const dueAt = refusal.at + refusal.error.retryAfterS * 1000
  return now - dueAt > MAX_LATE_MS ? "late" : "send"
}

/** "Send it then": only for a text in the composer, and only where the wait is short. */
function sendThen(left, kept) {
  if (kept !== "below" || left === null || left > MAX_SEND_THEN_S) return null
  return action(left > 0 ? "send-then" : "send-now")
}

function armedLine(refusal, now) {
  const left = secondsLeft(refusal, now) ?? 0
  const text = left > 0 ? t("Sending again in {wait}.", { wait: exactly(left) }) : t("Sending again.")
  return line("wait", "clock", paragraph(text, KEPT.below()), action("do-not-send"), { ticks: true })
}

function whenText(left, kept) {
  if (left === null) return kept ? t("Send it again in a moment.") : t("Try again in a moment.")
  if (left <= 0) return kept ? t("You can send it again now.") : t("You can try again now.")
  const wait = exactly(left)
  return kept ? t("You can send again in {wait}.", { wait }) : t("You can try again in {wait}.", { wait })
}

/** Nothing to do where the server's own words say it, or the words above do. */
function adviceOn({ code, status }) {
  if (code === "not_continuable") return ""
  const known = ADVICE[code] ?? ADVICE[status]
  if (known) return known()
  return !status || status >= 500 ? t("Send it again in a moment.") : ""
}

function pasteLine({ bytes, maxBytes }) {
  const sizes = { size: kilobytes(bytes), most: kilobytes(maxBytes) }
  return line("warn", "warn", t("With that, the message would have {size}, and {most} is the most. Nothing was pasted.", sizes))
}
