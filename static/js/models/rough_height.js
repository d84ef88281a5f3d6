/**
 * How tall a message will be, roughly, before it has been laid out: the scroll bar needs a height for what
 * nobody has seen yet. Pure. Once a message has been on the screen, the browser remembers its true height.
 */

const LINE_PX = 25.6
const CHAR_PX = 7.6 // of running text; wider scripts write fewer characters for as many words
const FOOT_PX = 36
const PADDING_PX = 16 // of the reader's own tinted block
// Nobody sees the difference between a very tall message and a taller one.
const CHARS_READ = 50_000

/**
 * @param {{role: string, text: string}} message
 * @param {number} widthPx of the column
 * @returns {number} whole pixels
 */
export function roughHeight({ role, text }, widthPx) {
  const perLine = Math.max(10, Math.floor(widthPx / CHAR_PX))
  const lines = roughLines(text.slice(0, CHARS_READ), perLine) * Math.max(1, text.length / CHARS_READ)
  const padding = role === "user" ? PADDING_PX : 0
  return Math.round(Math.max(1, lines) * LINE_PX + padding + FOOT_PX)
}

/** A blank line parts two paragraphs: about half a line. */
function roughLines(text, perLine) {
  let lines = 0
  for (const line of text.split("\n")) lines += line.trim() ? Math.ceil(line.length / perLine) : 0.5
  return lines
}
