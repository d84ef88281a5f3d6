/**
 * Markdown as top-level blocks, for text that grows at its end.
 *
 * Only the end of the text is read again: a block is closed, and never looked at again, once some more
 * blocks follow it (one is not enough: a list goes on after a blank line and half a marker). A code block
 * that is being written is not read again at all: only its last line can close it. A list is one block, however
 * long: while it is written, it is read as a whole each time. When the text is final
 * it is read once more as a whole, because a link definition at its end may concern blocks above.
 *
 * The HTML made here is not trusted: the view sanitises it. Raw HTML in the text is shown as text.
 */
import { Lexer, Marked, Parser, Tokenizer } from "marked"

import { escapeHtml } from "#js/models/escape.js"
import { t } from "#js/models/i18n.js"
import { mathExtensions, plainHtml } from "#js/models/maths.js"

// Found by trying random texts: one gives wrong blocks in 1 of 300, two in 1 of 20,000.
const OPEN_BLOCKS = 3
// Deeper nesting than any answer needs; each level costs the parser a recursion over all that follows.
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){24}/m
// Emphasis costs the parser the square of its marks: 30,000 of them in one paragraph take 20 seconds.
const MARKS_MAX = 1_000
const MARK = /[*_~`[\]<$\\]/g
const FENCE = /^(`{3,}|~{3,})/
const MAY_CLOSE = /^ {0,3}(?:`{3}|~{3})/m

const marked = new Marked({ gfm: true, breaks: true })

marked.use({
  extensions: mathExtensions,
  tokenizer: {
    // After `<script>` or `<pre>` in a line, marked would let text pass as it is.
    tag(src) {
      const token = Tokenizer.prototype.tag.call(this, src)
      this.lexer.state.inRawBlock = false
      return token
    },
  },
  renderer: {
    html: ({ text, block }) => (block ? plainHtml(text) : escapeHtml(text)),
    // A foreign image would tell its host who reads this, and when: it becomes a link.
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || t("image"))}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    heading({ tokens, depth }) {
      // The page has its own h1 and h2.
      const level = Math.min(depth + 2, 6)
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`
    },
  },
})

/** marked's lexer, but a paragraph that is nothing but marks stays the text that it is. */
class CalmLexer extends Lexer {
  inlineTokens(src, tokens = []) {
    if (src.length <= MARKS_MAX || (src.match(MARK)?.length ?? 0) <= MARKS_MAX) return super.inlineTokens(src, tokens)
    tokens.push({ type: "text", raw: src, text: src, escaped: false })
    return tokens
  }
}

export class BlockStream {
  #closed = []
  #closedText = ""
  #open = []
  #text = ""
  /** How many characters were read so far, of all updates: what growth costs. */
  charsRead = 0

  /**
   * @param {string} text the whole text so far
   * @param {boolean} final whether no more will come
   * @returns {Block[]} blocks that did not change are the same objects as last time
   */
  update(text, final = false) {
    const clean = this.#withPlainEnds(text)
    if (final || !begins(clean, this.#closedText)) this.#forget()
    if (final || !this.#growCode(clean)) this.#read(clean, final)
    this.#text = clean
    return [...this.#closed, ...this.#open]
  }

  /** How many of the blocks, from the first, no further text can change. */
  get closedCount() {
    return this.#closed.length
  }

  /** What is known has none but plain line ends. */
  #withPlainEnds(text) {
    const known = begins(text, this.#text) ? this.#text.length : 0
    return text.indexOf("\r", known) < 0 ? text : text.replace(/\r\n?/g, "\n")
  }

  #read(clean, final) {
    const rest = clean.slice(this.#closedText.length)
    this.charsRead += rest.length
    this.#open = blocksOf(rest)
    if (!final) this.#close(this.#open.splice(0, firstOpen(this.#open)))
  }

  /** The last block is code that goes on: what is new belongs to it, unless a line of it may close it. */
  #growCode(clean) {
    const last = this.#open.at(-1)
    if (!last?.growing || !begins(clean, this.#text)) return false
    const lineStart = clean.lastIndexOf("\n", this.#text.length - 1) + 1
    this.charsRead += clean.length - lineStart
    if (MAY_CLOSE.test(clean.slice(lineStart))) return false
    this.#open[this.#open.length - 1] = last.grown(clean.slice(this.#text.length))
    return true
  }

  #close(blocks) {
    this.#closed.push(...blocks)
    this.#closedText += blocks.map((block) => block.raw).join("")
  }

  #forget() {
    this.#closed = []
    this.#closedText = ""
    this.#open = []
    this.#text = ""
  }
}

/** `startsWith`, which engines do letter by letter, thirty times as slow as a comparison. */
function begins(text, start) {
  return text.slice(0, start.length) === start
}

/** The index of the first block that more text may still change. */
function firstOpen(blocks) {
  let left = OPEN_BLOCKS
  for (let i = blocks.length - 1; i >= 0; i -= 1) {
    if (blocks[i].type !== "space" && (left -= 1) === 0) return i
  }
  return 0
}

class Block {
  constructor(token, links) {
    this.token = token
    this.raw = token.raw
    this.type = token.type
    // Same key, same HTML: definitions elsewhere can change a block whose own text did not change.
    this.key = links && token.raw.includes("[") ? `${token.raw}\u0000${links}` : token.raw
  }

  html() {
    if (this.type === "plain") return plainHtml(this.raw)
    return Parser.parse([this.token], marked.defaults)
  }

  /** Whether this is a code block whose first line is whole and whose end has not come. */
  get growing() {
    return this.type === "code" && FENCE.test(this.raw) && this.raw.includes("\n") && !this.complete
  }

  /** Whether this is a code block with its closing line. */
  get complete() {
    const mark = this.type === "code" && FENCE.exec(this.raw.trimStart())?.[1]
    if (!mark) return false
    const lines = this.raw.trimEnd()
    const last = lines.slice(lines.lastIndexOf("\n") + 1).trim()
    return last.length < lines.length && last.startsWith(mark) && last === mark[0].repeat(last.length)
  }

  /** A code block's text without line ends at its end: some of them come and go with the closing line. */
  get code() {
    return withoutEnds(this.token.text)
  }

  /** This code block, which is growing, with more text at its end. */
  grown(more) {
    const body = this.raw.slice(this.raw.indexOf("\n") + 1)
    const code = withoutEnds(body)
    return new GrownCode(this.token, this.raw + more, codeWith(code, body.slice(code.length), more))
  }
}

/** Code that is being written, as long as no line of it can be its end. What was there before is not looked at again. */
class GrownCode extends Block {
  #code
  #ends

  constructor(token, raw, { code, ends }) {
    // As marked has it: one line end belongs to the last line.
    super({ ...token, raw, text: code && ends === "\n" ? code : code + ends }, "")
    this.#code = code
    this.#ends = ends
  }

  get growing() {
    return true
  }

  get complete() {
    return false
  }

  get code() {
    return this.#code
  }

  grown(more) {
    return new GrownCode(this.token, this.raw + more, codeWith(this.#code, this.#ends, more))
  }
}

/** @returns {{code, ends}} all three in a row, but for the line ends at their end */
function codeWith(code, ends, more) {
  const body = withoutEnds(more)
  return body ? { code: code + ends + body, ends: more.slice(body.length) } : { code, ends: ends + more }
}

function withoutEnds(text) {
  let end = text.length
  while (text[end - 1] === "\n") end -= 1
  return text.slice(0, end)
}

/** Top-level blocks of `text`; their `raw` joined is `text` again (line ends aside). */
export function blocksOf(text) {
  if (TOO_DEEP.test(text)) return [plain(text)]
  try {
    const tokens = new CalmLexer(marked.defaults).lex(text)
    const links = Object.keys(tokens.links).length ? JSON.stringify(tokens.links) : ""
    return tokens.map((token) => new Block(token, links))
  } catch {
    return [plain(text)] // nested beyond the parser's stack
  }
}

function plain(text) {
  return new Block({ type: "plain", raw: text }, "")
}
