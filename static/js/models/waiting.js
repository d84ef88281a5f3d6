/** What the strip says of an answer that is waited for or written: the queue, the ladder's steps, the line. */
import { language, number, t } from "#js/models/i18n.js"
import { QUEUED, SENDING } from "#js/models/message.js"
import { line, roughly } from "#js/models/strip_line.js"

// More than two things told would push the words off a phone.
const MAX_TOLD = 2

/** @returns {object|null} null where the text itself says what is happening */
export function liveLine({ link, notice, waitsForStop }, reply, { now = Date.now(), titleOf = String } = {}) {
  if (waitsForStop) return line("wait", "clock", t("Sent as soon as the answer above has stopped"))
  if (notice?.code === "stop_failed") return line("warn", "warn", t("The stop did not get through. Press stop again."))
  if (reply.stopping) return line("wait", "clock", t("Stopping"))
  if (reconnecting(link)) return reconnectLine(reply)
  if (reply.phase === SENDING) return line("wait", "clock", t("Sending"))
  if (reply.retracted) return line("warn", "warn", t("The answer was taken back. You can ask in another way"))
  const told = toldOf(notice).map((one) => noticeText(one, titleOf))
  if (reply.phase !== QUEUED) return told.length ? line("info", iconOf(notice), joined(told)) : null
  return queuedLine(notice, told, now)
}

function queuedLine(notice, told, now) {
  if (!notice) return line("wait", "clock", t("Reading your message"))
  if (notice.code !== "queued") return line("info", iconOf(notice), joined(told))
  return line("wait", "clock", joined([queuedText(notice, now), ...told]), null, { ticks: Boolean(notice.eta_s) })
}

/** Sentences without their ends, parted as the reader's language does it. */
function joined(texts) {
  return texts.map((text) => text.replace(/[.।]$/, "")).reduce((first, second) => t("{first}. {second}", { first, second }))
}

function iconOf(notice) {
  return notice.code === "recovered" ? "again" : "info"
}

/**
 * A place in the queue is news for a moment; what was told beside it holds for the whole answer.
 * `now`: from when a predicted wait is counted down.
 */
export function noticeAfter(before, notice, now = Date.now()) {
  const earlier = toldOf(before)
  const told = earlier.filter((one) => one.code !== notice.code).slice(-MAX_TOLD)
  const more = told.length ? { told } : {}
  if (notice.code === "queued") return { ...notice, ...more, at: now }
  if (notice.code !== "other_model") return { ...notice, ...more }
  const asked = earlier.find((one) => one.code === "other_model")?.asked ?? notice.instead_of
  return { ...notice, ...more, asked, again: Boolean(asked) && notice.model === asked }
}

/** All that was told and still holds, the oldest first. */
function toldOf(notice) {
  if (!notice || notice.code === "stop_failed") return []
  const { told = [], ...own } = notice
  return own.code === "queued" ? told : [...told, own].slice(-MAX_TOLD)
}

function reconnecting(link) {
  return link?.state === "waiting" || (link?.state === "connecting" && link.again)
}

function reconnectLine(reply) {
  if (reply.phase === SENDING) return line("warn", "offline", t("The server cannot be reached. Sending again; your message is kept"))
  return line("warn", "offline", t("Reconnecting, nothing is lost"))
}

const NOTICES = {
  smaller_model: smallerText,
  other_model: otherText,
  shorter_answer: () => t("A shorter answer until it is quieter"),
  other_region: ({ home }) => (home ? t("Answered from your own region after all") : t("Answered from another region, to begin sooner")),
  recovered: () => t("Continued on another machine"),
}

/** The page's own words, in the reader's language; the server's for what a later version tells. */
function noticeText(notice, titleOf) {
  return NOTICES[notice.code]?.(notice, titleOf) ?? notice.text ?? ""
}

function smallerText({ model, instead_of: wanted, back_at: backAt }, titleOf) {
  if (!backAt || !wanted) return t("Using the smaller model until it is quieter")
  const names = { wanted: titleOf(wanted), model: titleOf(model), time: momentText(backAt) }
  return t("You have used your messages to {wanted} for now. {model} answers; {wanted} is back {time}", names)
}

function otherText({ model, instead_of: wanted, again }, titleOf) {
  if (!model || !wanted) return null
  if (again) return t("{model} can be reached again and answers after all", { model: titleOf(model) })
  return t("{wanted} cannot be reached just now; {model} answers instead", { wanted: titleOf(wanted), model: titleOf(model) })
}

/** When something is there again: "at 18:30", or with its day. */
export function momentText(iso, now = new Date()) {
  const when = new Date(iso)
  const today = when.toDateString() === now.toDateString()
  const time = new Intl.DateTimeFormat(language(), { timeStyle: "short" }).format(when)
  if (today) return t("at {time}", { time })
  const day = new Intl.DateTimeFormat(language(), { weekday: "short", day: "numeric", month: "short" }).format(when)
  return t("on {day} at {time}", { day, time })
}

const PLACES = [
  () => t("Waiting in line"),
  () => t("Next in line"),
  () => t("Second in line"),
  () => t("Third in line"),
  () => t("Fourth in line"),
  () => t("Fifth in line"),
  () => t("Sixth in line"),
  () => t("Seventh in line"),
  () => t("Eighth in line"),
  () => t("Ninth in line"),
]

/** "Third in line, about 20 s", counted down from when it was told; what took longer is said to. */
export function queuedText({ position = null, eta_s: etaS = null, at = null }, now = at) {
  const place = PLACES[position ?? 0]?.() ?? t("Number {position} in line", { position: number(position) })
  if (!etaS) return place
  const left = etaS - (now - (at ?? now)) / 1000
  if (left <= 0) return t("{place}, a little longer than expected", { place })
  return t("{place}, about {wait}", { place, wait: roughly(left) })
}
