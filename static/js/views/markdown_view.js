/** Markdown that grows: blocks that did not change keep their nodes (and a reader's selection in them). */
import { escapeHtml } from "#js/models/escape.js"
import { t } from "#js/models/i18n.js"
import { BlockStream } from "#js/models/markdown.js"
import { CodeView } from "#js/views/code_view.js"
import { offerDrawing } from "#js/views/diagram_offer.js"
import { h } from "#js/views/dom.js"
import { drawMaths } from "#js/views/math_view.js"
import { sanitise } from "#js/views/sanitise.js"

export class MarkdownView {
  #blocks = new BlockStream()
  #shown = [] // {key, node, code, closed}, in order

  constructor() {
    this.element = h("div", { class: "prose" })
  }

  /** @param {boolean} final read the whole text once more: no more will come */
  show(text, final = false) {
    const all = this.#blocks.update(text, final)
    const blocks = all.filter((block) => block.type !== "space")
    const open = final ? 0 : all.slice(this.#blocks.closedCount).filter((block) => block.type !== "space").length
    blocks.forEach((block, index) => this.#showBlock(block, index, index < blocks.length - open || block.complete))
    for (const old of this.#shown.splice(blocks.length)) remove(old)
  }

  /** It left the page for good. */
  discard() {
    for (const shown of this.#shown) discard(shown)
  }

  #showBlock(block, index, closed) {
    const old = this.#shown[index]
    if (old?.key === block.key && old.type === block.type) {
      if (closed && !old.closed) close(old)
      return
    }
    if (old && growCode(old, block, closed)) return
    const shown = block.type === "code" ? codeBlock(block, closed) : renderBlock(block, closed, old)
    if (old) {
      old.node.replaceWith(shown.node)
      discard(old, shown.codes)
    } else this.element.append(shown.node)
    this.#shown[index] = shown
  }
}

/** A code block that only grew gets its new text appended: cost by what is new, not by its length. */
function growCode(old, block, closed) {
  if (old.type !== "code" || block.type !== "code" || old.lang !== block.token.lang) return false
  if (!old.codes[0].show(block.code, closed)) return false
  old.key = block.key
  if (closed && !old.closed) close(old)
  return true
}

/** No more will come of this block. */
function close(shown) {
  shown.closed = true
  for (const code of shown.codes) closeCode(code)
}

function closeCode(code) {
  code.show(code.text, true)
  offerDrawing(code)
}

function remove(shown) {
  shown.node.remove()
  discard(shown)
}

function discard(shown, reused = []) {
  for (const code of shown.codes) if (!reused.includes(code)) code.discard()
}

/** Code needs no HTML: it is made of text nodes. */
function codeBlock(block, closed) {
  const { lang = "" } = block.token
  const view = new CodeView({ language: wordOf(lang), text: block.code, closed })
  const node = h("div", { class: "block" }, view.element)
  const shown = { key: block.key, type: "code", lang: block.token.lang, node, codes: [view], closed: false }
  if (closed) close(shown)
  return shown
}

function wordOf(lang) {
  return /^[\w+#.-]{1,40}(?=$|[\s{:,])/.exec(lang)?.[0] ?? ""
}

function renderBlock(block, closed, old) {
  const node = h("div", { class: "block" })
  node.append(sanitise(htmlOf(block)))
  for (const code of node.querySelectorAll("code")) code.setAttribute("dir", "ltr")
  for (const element of node.querySelectorAll("p, h3, h4, h5, h6, ul, ol, table")) setDirection(element)
  for (const item of node.querySelectorAll("li")) item.classList.toggle("task", /^\s*[☐☑]/.test(item.textContent))
  const codes = [...node.querySelectorAll("pre")].map((pre, index) => frameCode(pre, old?.codes[index]))
  for (const table of node.querySelectorAll("table")) frameTable(table)
  drawMaths(node)
  const shown = { key: block.key, type: block.type, node, codes, closed: false }
  if (closed) close(shown)
  return shown
}

function htmlOf(block) {
  try {
    return block.html()
  } catch {
    // Nested beyond the parser's stack: shown as it came.
    return `<p class="plain">${escapeHtml(block.raw)}</p>`
  }
}

/**
 * Each block finds its own direction. Lists and tables do as a whole (their markers and columns follow), so
 * nothing inside them does: an element with `dir` is not looked at by the `auto` above it.
 */
function setDirection(element) {
  if (!element.parentElement.closest("ul, ol, table")) element.setAttribute("dir", "auto")
}

/** Code inside a list or a quote, which is read again as a whole: its code keeps the view, and the colours, it has. */
function frameCode(pre, old) {
  const code = pre.querySelector("code") ?? pre
  const language = /language-(\S+)/.exec(code.className)?.[1] ?? "text"
  const text = code.textContent.replace(/\n+$/, "")
  const view = old?.language === language && old.show(text) ? old : new CodeView({ language, text })
  pre.replaceWith(view.element)
  return view
}

function frameTable(table) {
  const frame = h("div", { class: "table", tabindex: "0", role: "region", "aria-label": t("Table") })
  table.replaceWith(frame)
  frame.append(table)
}
