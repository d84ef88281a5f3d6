/**
 * A code block: its language, a copy button, and its text in chunks of lines, coloured in idle moments.
 *
 * Colours come chunk by chunk while the text grows, and to its last lines a few times a second; a chunk in
 * which a person has selected something is left alone until it is not.
 */
import { chunkEnd, firstToRead, piecesAfter } from "#js/models/code_lines.js"
import { t } from "#js/models/i18n.js"
import { languageFile } from "#js/models/languages.js"
import { slices } from "#js/models/slices.js"
import { copyWith, h, icon } from "#js/views/dom.js"

// Longer code stays plain: nobody reads that much of it here, and every coloured word is an element.
const COLOUR_MAX = 200_000
// A chunk of very long lines is data, not code.
const CHUNK_MAX = 20_000
const TAIL_REST_MS = 150

let highlighter = null // promise of the module

export class CodeView {
  #text = ""
  #chunks = [] // {node, from, open}; the last one may still grow
  #coloured = 0 // how many chunks are, from the first
  #tailLength = -1 // the last chunk's length when it was coloured
  #tailAt = 0
  #closed = false
  #colour = null // (code) => {pieces, open}
  #asked = false
  #discarded = false
  #job = () => this.#work()
  onDiscard = null // what else ends then

  /** @param {object} options {language: the block's own word, text, closed: whether no more will come} */
  constructor({ language, text, closed = false }) {
    this.language = language || "text"
    this.file = languageFile(this.language)
    this.code = h("code", { dir: "ltr" })
    this.head = h("div", { class: "code-head" }, h("span", { class: "code-language" }, this.language), this.#copyButton())
    const label = t("Code, {language}", { language: this.language })
    const pre = h("pre", { tabindex: "0", role: "region", "aria-label": label }, this.code)
    this.element = h("div", { class: "code", dir: "ltr" }, this.head, pre)
    this.#addChunk(0)
    this.show(text, closed)
  }

  get text() {
    return this.#text
  }

  /** The text grew, or gave back some of its last lines. @returns {boolean} false: this is other code */
  show(text, closed = false) {
    const tail = this.#chunks.at(-1)
    if (!text.startsWith(this.#text)) {
      if (text.length < tail.from || !text.startsWith(this.#text.slice(0, tail.from))) return false
      this.#reset(tail, text)
    } else if (text.length > this.#text.length) this.#append(text)
    this.#text = text
    this.#closed = closed
    this.#colourSoon()
    return true
  }

  /** It left the page for good. */
  discard() {
    this.#discarded = true
    this.onDiscard?.()
    slices.drop(this.#job)
  }

  #copyButton() {
    const button = h("button", { type: "button", class: "quiet", onclick: () => copyWith(button, this.#text) })
    button.append(icon("copy"), h("span", {}, t("Copy")))
    return button
  }

  #append(text) {
    let at = this.#text.length
    for (let end = this.#end(text); end >= 0; end = this.#end(text)) {
      if (end > at) appendText(this.#chunks.at(-1).node, text.slice(at, end))
      this.#addChunk(end + 1)
      at = end + 1
    }
    appendText(this.#chunks.at(-1).node, text.slice(at))
  }

  #end(text) {
    return chunkEnd(text, this.#chunks.at(-1).from)
  }

  #addChunk(from) {
    const node = h("span", { class: "code-lines" })
    // The line end stands between the chunks, so that selecting and `textContent` give the text as it was.
    if (from > 0) this.code.append("\n")
    this.code.append(node)
    this.#chunks.push({ node, from, open: false })
    this.#tailLength = -1
  }

  #reset(tail, text) {
    tail.node.replaceChildren()
    this.#text = text.slice(0, tail.from)
    this.#tailLength = -1
    this.#append(text)
  }

  #colourSoon() {
    if (!this.file || this.#text.length > COLOUR_MAX || !this.#text) return
    if (this.#colour) slices.add(this.#job)
    else if (!this.#asked) this.#load()
  }

  async #load() {
    this.#asked = true
    try {
      highlighter ??= import("#js/models/highlight.js")
      const { coloured, loadLanguage } = await highlighter
      await loadLanguage(this.file)
      this.#colour = (code) => coloured(code, this.file)
      if (!this.#discarded) slices.add(this.#job)
    } catch {
      highlighter = null // off-line: the code stays plain, and the next block asks again
      this.#asked = false
    }
  }

  /** One chunk. @returns {boolean} whether more is to be done */
  #work() {
    const last = this.#chunks.length - 1
    if (this.#coloured < last) {
      this.#colourChunk(this.#coloured)
      this.#coloured += 1
      return true
    }
    if (this.#tailLength === this.#text.length) return false
    if (this.#closed || performance.now() - this.#tailAt > TAIL_REST_MS) this.#colourTail(last)
    return this.#tailLength !== this.#text.length
  }

  #colourTail(last) {
    this.#tailAt = performance.now()
    if (!this.#closed && hasSelection(this.#chunks[last].node)) return
    this.#colourChunk(last)
    this.#tailLength = this.#text.length
  }

  #colourChunk(index) {
    const chunk = this.#chunks[index]
    const end = index + 1 < this.#chunks.length ? this.#chunks[index + 1].from - 1 : this.#text.length
    const first = this.#chunks[firstToRead(this.#chunks.map(({ open }) => open), index)]
    if (end - first.from > CHUNK_MAX) return
    const { pieces, open } = this.#colour(this.#text.slice(first.from, end))
    chunk.open = open
    chunk.node.replaceChildren(...piecesAfter(pieces, chunk.from - first.from).map(pieceNode))
  }
}

function pieceNode([kind, text]) {
  return kind ? h("span", { class: `code-${kind}` }, text) : text
}

/** To the text that is there: a node for each token would cost more with each. */
function appendText(node, text) {
  if (!text) return
  if (node.lastChild?.nodeType === Node.TEXT_NODE) node.lastChild.appendData(text)
  else node.append(text)
}

function hasSelection(node) {
  const selection = getSelection()
  return selection !== null && !selection.isCollapsed && selection.containsNode(node, true)
}
