/** How long a message is, said before it is sent. */
import { t } from "#js/models/i18n.js"
import { MAX_DRAFT_CHARS } from "#js/models/storage.js"
import { kilobytes } from "#js/models/strip_line.js"

// About five pages: from there on a person should know what they are about to send.
export const LARGE_BYTES = 16 * 1024
// UTF-8 has at most three bytes for each of a string's units.
const MAX_BYTES_PER_UNIT = 3

/** @returns {{over: boolean, lost?: true, icon: string, text: string} | null} null for a message of usual length; `lost`: it is not kept as a draft either */
export function sizeNote(text, maxBytes) {
  if (text.length * MAX_BYTES_PER_UNIT < LARGE_BYTES) return null
  const bytes = byteLength(text)
  if (bytes < LARGE_BYTES) return null
  const sizes = { size: kilobytes(bytes), most: kilobytes(maxBytes) }
  if (text.length > MAX_DRAFT_CHARS) return { over: true, lost: true, icon: "warn", text: t("Too long to send and to be kept: {size}, and {most} is the most. It is lost when you go elsewhere", sizes) }
  if (bytes > maxBytes) return { over: true, icon: "warn", text: t("Too long to send: {size}, and {most} is the most", sizes) }
  return { over: false, icon: "info", text: t("A long message: {size} of at most {most}", sizes) }
}

export function byteLength(text) {
  return new TextEncoder().encode(text).length
}
