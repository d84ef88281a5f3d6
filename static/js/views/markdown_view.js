/** Markdown that grows: blocks that did not change keep their nodes (and a reader's selection in them). */
import { escapeHtml } from "#js/models/escape.js"
import { BlockStream } from "#js/models/markdown.js"
import { copyWith, h, icon } from "#js/views/dom.js"
import { sanitise } from "#js/views/sanitise.js"

export class MarkdownView {
  #blocks = new BlockStream()
  #shown = [] // {key, token, node}, in order

  constructor() {
    this.element = h("div", { class: "prose" })
  }

  /** @param {boolean} final read the whole text once more: no more will come */
  show(text, final = false) {
    const blocks = this.#blocks.update(text, final).filter((block) => block.type !== "space")
    blocks.forEach((block, index) => this.#showBlock(block, index))
    for (const old of this.#shown.splice(blocks.length)) old.node.remove()
  }

  #showBlock(block, index) {
    const old = this.#shown[index]
    if (old?.key === block.key) return
    if (old && growCode(old, block)) return
    const node = renderBlock(block)
    if (old) old.node.replaceWith(node)
    else this.element.append(node)
    this.#shown[index] = { key: block.key, token: block.token, node }
  }
}

/** A code block that only grew gets its new text appended: cost by what is new, not by its length. */
function growCode(old, block) {
  if (!sameCode(old.token, block.token)) return false
  const node = old.node.querySelector("code")?.firstChild
  const before = shownCode(old.token).slice(0, -1)
  const after = shownCode(block.token)
  if (node?.length !== before.length + 1 || !after.startsWith(before)) return false
  node.replaceData(before.length, 1, after.slice(before.length))
  old.key = block.key
  old.token = block.token
  return true
}

function sameCode(before, after) {
  return before.type === "code" && after.type === "code" && before.lang === after.lang
}

/** A code token's text as the renderer writes it: with exactly one line end. */
function shownCode(token) {
  return `${token.text.replace(/\n$/, "")}\n`
}

function renderBlock(block) {
  const node = h("div", { class: "block" })
  node.append(sanitise(htmlOf(block)))
  for (const code of node.querySelectorAll("code")) code.setAttribute("dir", "ltr")
  for (const element of node.querySelectorAll("p, h3, h4, h5, h6, ul, ol, table")) setDirection(element)
  for (const item of node.querySelectorAll("li")) item.classList.toggle("task", /^\s*[☐☑]/.test(item.textContent))
  for (const pre of node.querySelectorAll("pre")) frameCode(pre)
  for (const table of node.querySelectorAll("table")) frameTable(table)
  return node
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

function frameCode(pre) {
  const code = pre.querySelector("code") ?? pre
  const language = /language-(\S+)/.exec(code.className)?.[1] ?? "text"
  const button = h("button", { type: "button", class: "quiet", onclick: () => copyWith(button, code.textContent) })
  button.append(icon("copy"), h("span", {}, "Copy"))
  const frame = h("div", { class: "code", dir: "ltr" })
  pre.replaceWith(frame)
  pre.setAttribute("tabindex", "0")
  pre.setAttribute("role", "region")
  pre.setAttribute("aria-label", `Code, ${language}`)
  frame.append(h("div", { class: "code-head" }, h("span", {}, language), button), pre)
}

function frameTable(table) {
  const frame = h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" })
  table.replaceWith(frame)
  frame.append(table)
}
