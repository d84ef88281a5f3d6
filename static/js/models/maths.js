/**
 * Where Markdown holds maths.
 *
 * `$$…$$` and `\[…\]` are shown on lines of their own, `\(…\)` and `$…$` in the line. A single dollar is money
 * more often than maths, so `$…$` counts only where all of this is true:
 *
 * 1. no letter, digit, dollar or backslash stands before the first dollar: `US$5` is money;
 * 2. the text between touches both dollars: `$5 and $10` has a space before the second one;
 * 3. no letter, digit or dollar follows the second one: `$5-$10`, `$HOME:$PATH`;
 * 4. both are on one line, with no dollar and no backtick between, and not too far apart;
 * 5. the text between holds no prose: no word after an amount (`$5 or 10$`), no two words in a row
 *    (`$to be paid$`); what stands in \text{…} is not looked at.
 *
 * No maths holds an empty line, so text that begins maths and never ends it costs one paragraph at most. Maths
 * on lines of its own that is not closed yet is shown as it came, and nothing in it is read as Markdown.
 */
import { escapeHtml } from "#js/models/escape.js"

export const TEX_MAX = 4_000
const ROOM = 16 // for a formula's marks and the line end after it

const BEGINS = /\n(?= {0,3}(?:\$\$(?!\$)|\\\[))/g
// How many places in a paragraph are looked at for maths on a line of its own.
const TRIES_MAX = 20
const DISPLAY = /^ {0,3}(?:\$\$(?!\$)((?:(?!\n[ \t]*\n|\$\$)[^])+)\$\$|\\\[((?:(?!\n[ \t]*\n|\\\])[^])+)\\\])[ \t]*(?=\n|$)\n*/
const UNCLOSED = /^ {0,3}(?:\$\$(?!\$)(?:(?!\n[ \t]*\n|\$\$)[^])*|\\\[(?:(?!\n[ \t]*\n|\\\])[^])*)\n?$/
const INLINE_DISPLAY = /^(?:\$\$(?!\$)((?:(?!\n[ \t]*\n|\$)[^])+?)\$\$(?!\$)|\\\[((?:(?!\n[ \t]*\n|\\\])[^])+?)\\\])/
const PARENTHESES = /^\\\(((?:(?!\n[ \t]*\n|\\\))[^])+?)\\\)/
const DOLLARS = /^\$(?![\s$])((?:\\[^\n]|[^\\\n$`])+)\$(?![\p{L}\p{N}$])/u
const BEFORE_DOLLAR = /[\p{L}\p{N}$\\]$/u
const NO_PROSE = /\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|operatorname\*?|mbox|begin|end|tag)\s*\{[^{}]*\}|\\[A-Za-z]+/g
const PROSE = /^\s*[\d.,]+\s*\p{L}{2,}|\p{L}\p{M}*\p{L}[\p{L}\p{M}]*[\s,;.]+\p{L}\p{M}*\p{L}/u

/** marked's extensions. */
export const mathExtensions = [
  {
    name: "mathBlock",
    level: "block",
    start: blockStart,
    tokenizer: blockToken,
    renderer: ({ raw, whole }) => (whole ? mathHtml("div", "math-display", raw.trim()) : plainHtml(raw)),
  },
  {
    name: "mathInline",
    level: "inline",
    start: inlineStart,
    tokenizer: inlineToken,
    renderer: ({ raw, display }) => mathHtml("span", display ? "math-display" : "math-inline", raw),
  },
]

/** The formula without its marks. */
export function texOf(source) {
  const marks = source.startsWith("$") && !source.startsWith("$$") ? 1 : 2
  return source.slice(marks, -marks).trim()
}

/** Where in the paragraph that begins here maths on lines of its own follows. A paragraph is cut for nothing else. */
function blockStart(src) {
  const places = paragraphOf(src).matchAll(BEGINS)
  for (const { index } of [...places].slice(0, TRIES_MAX)) if (blockToken(src.slice(index + 1))) return index
  return undefined
}

function blockToken(src) {
  const paragraph = paragraphOf(src)
  const found = DISPLAY.exec(paragraph)
  if (found) return { type: "mathBlock", raw: found[0], whole: texFits(found[1] ?? found[2]) }
  const unclosed = paragraph.length === src.length && UNCLOSED.exec(src)
  return unclosed ? { type: "mathBlock", raw: unclosed[0], whole: false } : undefined
}

/** Up to and with the first empty line, or as far as a formula may reach: it is asked for at every dollar. */
function paragraphOf(src) {
  const near = src.slice(0, TEX_MAX + ROOM)
  const found = near.search(/\n[ \t]*\n/)
  return found < 0 ? near : near.slice(0, near.indexOf("\n", found + 1) + 1)
}

function inlineStart(src) {
  const places = [src.indexOf("$"), src.indexOf("\\("), src.indexOf("\\[")].filter((place) => place >= 0)
  return places.length ? Math.min(...places) : undefined
}

function inlineToken(src, tokens) {
  if (src[0] !== "$" && src[0] !== "\\") return undefined
  const near = src.slice(0, TEX_MAX + ROOM)
  const display = INLINE_DISPLAY.exec(near)
  if (display && texFits(display[1] ?? display[2])) return inline(display[0], true)
  const found = PARENTHESES.exec(near)
  if (found && texFits(found[1])) return inline(found[0], false)
  return dollars(near, tokens)
}

function dollars(src, tokens) {
  const found = DOLLARS.exec(src)
  if (!found || /\s$/.test(found[1]) || isProse(found[1])) return undefined
  return BEFORE_DOLLAR.test(tokens.at(-1)?.raw ?? "") ? undefined : inline(found[0], false)
}

function inline(raw, display) {
  return { type: "mathInline", raw, display }
}

function isProse(tex) {
  return PROSE.test(tex.replace(NO_PROSE, " \\ "))
}

function texFits(tex) {
  return tex.trim() !== "" && tex.length <= TEX_MAX
}

/** Shown as it came until it is drawn, and where it cannot be. */
function mathHtml(tag, name, source) {
  return `<${tag} class="${name}">${escapeHtml(source)}</${tag}>`
}

/** Text as it came, line by line. */
export function plainHtml(text) {
  return `<p class="plain">${escapeHtml(text.trimEnd())}</p>`
}
