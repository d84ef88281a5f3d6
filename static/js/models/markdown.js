/**
 * Markdown as top-level blocks, for text that grows at its end.
 *
 * Only the end of the text is read again: a block is closed, and never looked at again, once some more
 * blocks follow it (one is not enough: a list goes on after a blank line and half a marker). When the
 * text is final it is read once more as a whole, because a link definition at its end may concern
 * blocks above.
 *
 * The HTML made here is not trusted: the view sanitises it. Raw HTML in the text is shown as text.
 */
import { Lexer, Marked, Parser } from "marked"

import { escapeHtml } from "#js/models/escape.js"

// Found by trying random texts: one gives wrong blocks in 1 of 300, two in 1 of 20,000.
const OPEN_BLOCKS = 3
// Deeper nesting than any answer needs; each level costs the parser a recursion over all that follows.
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){24}/m

const marked = new Marked({ gfm: true, breaks: true })

marked.use({
  renderer: {
    html: ({ text, block }) => (block ? plainHtml(text) : escapeHtml(text)),
    // A foreign image would tell its host who reads this, and when: it becomes a link.
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || "image")}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    heading({ tokens, depth }) {
      // The page has its own h1 and h2.
      const level = Math.min(depth + 2, 6)
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`
    },
  },
})

export class BlockStream {
  #closed = []
  #closedText = ""

  /**
   * @param {string} text the whole text so far
   * @param {boolean} final whether no more will come
   * @returns {Block[]} blocks that did not change are the same objects as last time
   */
  update(text, final = false) {
    const clean = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text
    if (final || !clean.startsWith(this.#closedText)) this.#forget()
    const open = blocksOf(clean.slice(this.#closedText.length))
    if (!final) this.#close(open.splice(0, firstOpen(open)))
    return [...this.#closed, ...open]
  }

  #close(blocks) {
    this.#closed.push(...blocks)
    this.#closedText += blocks.map((block) => block.raw).join("")
  }

  #forget() {
    this.#closed = []
    this.#closedText = ""
  }
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
}

/** Top-level blocks of `text`; their `raw` joined is `text` again (line ends aside). */
export function blocksOf(text) {
  if (TOO_DEEP.test(text)) return [plain(text)]
  try {
    const tokens = new Lexer(marked.defaults).lex(text)
    const links = Object.keys(tokens.links).length ? JSON.stringify(tokens.links) : ""
    return tokens.map((token) => new Block(token, links))
  } catch {
    return [plain(text)] // nested beyond the parser's stack
  }
}

function plain(text) {
  return new Block({ type: "plain", raw: text }, "")
}

function plainHtml(text) {
  return `<p class="plain">${escapeHtml(text.trimEnd())}</p>`
}
