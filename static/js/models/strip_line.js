/** What the lines of the status strip are made of: a tone, an icon, words, and perhaps one thing to do. */
import { number, t } from "#js/models/i18n.js"

// Functions: a label is put into the reader's language when it is shown, not when this file is read.
const LABELS = {
  "sign-in": () => t("Sign in"),
  "try-again": () => t("Try again"),
  "show-elsewhere": () => t("Show it"),
  continue: () => t("Continue"),
  "send-then": () => t("Send it then"),
  "send-now": () => t("Send it now"),
  "do-not-send": () => t("Cancel"),
}

/** Something a strip offers; the controller knows how to do it. */
export function action(verb) {
  return { verb, label: LABELS[verb]() }
}

/** @param {"wait"|"info"|"warn"|"bad"} tone @param {boolean} ticks whether the words change with time alone */
export function line(tone, icon, text, offered = null, { ticks = false } = {}) {
  return { tone, icon, text, action: offered, ...(ticks ? { ticks } : {}) }
}

export function signedOut(error) {
  return error?.status === 401
}

export function sentence(text) {
  const trimmed = (text || t("The message was refused")).trim()
  return /[.!?؟।]$/.test(trimmed) ? trimmed : `${trimmed}.`
}

/** Sentences one after the other; what is empty is left out. */
export function paragraph(...sentences) {
  return sentences.filter(Boolean).join(" ")
}

/** Seconds as people say them: 4 s, 20 s, 2 min, 3 h. */
export function roughly(seconds) {
  if (seconds < 10) return inSeconds(Math.max(1, Math.round(seconds)))
  if (seconds < 90) return inSeconds(Math.ceil(seconds / 5) * 5)
  return longer(seconds)
}

/** Seconds that are counted down: each one while there are few. */
export function exactly(seconds) {
  return seconds < 90 ? inSeconds(Math.max(1, Math.ceil(seconds))) : longer(seconds)
}

function longer(seconds) {
  if (seconds < 90 * 60) return together(t("{minutes} min", { minutes: number(Math.ceil(seconds / 60)) }))
  return together(t("{hours} h", { hours: number(Math.ceil(seconds / 3600)) }))
}

function inSeconds(seconds) {
  return together(t("{seconds} s", { seconds: number(seconds) }))
}

/** A number is not parted from its unit at the end of a line. */
function together(text) {
  return text.replaceAll(" ", "\u00a0")
}

/** The size of a text, in whole KB. */
export function kilobytes(bytes) {
  return together(t("{size} KB", { size: number(Math.ceil(bytes / 1024)) }))
}
