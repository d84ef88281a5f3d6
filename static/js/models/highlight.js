/**
 * Code → coloured pieces, without HTML: highlight.js's own tree of tokens, flattened. Loaded with the first
 * code block; each language when a block needs it.
 */
import hljs from "@highlightjs/cdn-assets/es/core.min.js"

import { filesOf } from "#js/models/languages.js"

// First word of highlight.js's scope → what the page colours; others have the colour of what they stand in.
const KINDS = {
  keyword: "keyword",
  "selector-tag": "keyword",
  "template-tag": "keyword",
  name: "keyword",
  section: "title",
  title: "title",
  "selector-id": "title",
  "selector-class": "title",
  type: "type",
  built_in: "type",
  class: "type",
  attr: "name",
  attribute: "name",
  variable: "name",
  "template-variable": "name",
  property: "name",
  string: "string",
  regexp: "string",
  link: "string",
  addition: "string",
  number: "number",
  literal: "number",
  symbol: "number",
  bullet: "number",
  meta: "name",
  comment: "comment",
  quote: "comment",
  doctag: "comment",
  deletion: "removed",
  subst: "",
}
const UNENDED = /^(?:string|comment|regexp)/

const loading = new Map() // file → promise

/** Ready to colour with `file`. Rejects where it could not be loaded; a later call tries again. */
export async function loadLanguage(file) {
  await Promise.all(filesOf(file).map(loadFile))
}

function loadFile(file) {
  if (!loading.has(file)) loading.set(file, registered(file).catch((error) => (loading.delete(file), Promise.reject(error))))
  return loading.get(file)
}

async function registered(file) {
  const { default: grammar } = await import(`@highlightjs/cdn-assets/es/languages/${file}.min.js`)
  hljs.registerLanguage(file, grammar)
}

/**
 * @returns {{pieces: [string, string][], open: boolean}} [kind or "", text] in order; `open` where the code
 *   ends inside a string or a comment, so that what follows cannot be coloured without it
 */
export function coloured(code, file) {
  const result = hljs.highlight(code, { language: file, ignoreIllegals: true })
  const root = result._emitter?.rootNode
  if (!root) return { pieces: [["", code]], open: false } // it broke, and says so only this way
  const pieces = []
  flatten(root, "", pieces)
  return { pieces, open: endsInside(result._top) }
}

function flatten(node, kind, pieces) {
  for (const child of node.children) {
    if (typeof child !== "string") flatten(child, kindOf(child.scope, kind), pieces)
    else if (pieces.at(-1)?.[0] === kind) pieces.at(-1)[1] += child
    else pieces.push([kind, child])
  }
}

function kindOf(scope, around) {
  return KINDS[scope?.split(".")[0]] ?? around
}

function endsInside(mode) {
  for (let at = mode; at; at = at.parent) if (UNENDED.test(at.scope ?? at.className ?? "")) return true
  return false
}
