/**
 * Formulas: shown as they came, then drawn in idle moments; one that was drawn before is drawn at once, so that
 * a paragraph that is read again with each token does not flicker.
 */
import { texOf } from "#js/models/maths.js"
import { slices } from "#js/models/slices.js"
import { sanitiseMath } from "#js/views/sanitise.js"

const KEPT_MAX = 500

const drawn = new Map() // mode and formula → fragment, or null where it cannot be drawn
const waiting = new Set()
let mathml = null // (tex, display) => string | null
let loading = null

/** Draw all formulas below `root`. */
export function drawMaths(root) {
  const elements = root.querySelectorAll(".math-inline, .math-display")
  for (const element of elements) {
    const source = element.textContent
    const kept = drawn.get(keyOf(element, source))
    if (kept === undefined) waiting.add(element)
    else if (kept) put(element, kept)
  }
  if (waiting.size) drawSoon()
}

function keyOf(element, source) {
  return `${element.className} ${source}`
}

function drawSoon() {
  if (mathml) slices.add(drawOne)
  else loading ??= load()
}

async function load() {
  try {
    mathml = (await import("#js/models/tex.js")).mathml
    slices.add(drawOne)
  } catch {
    waiting.clear() // off-line: the formulas stay as they came, and the next one asks again
  }
  loading = null
}

function drawOne() {
  const [element] = waiting
  if (!element) return false
  waiting.delete(element)
  const source = element.textContent
  const key = keyOf(element, source)
  if (!drawn.has(key)) keep(key, fragmentOf(source, element.className === "math-display"))
  if (drawn.get(key)) put(element, drawn.get(key))
  return waiting.size > 0
}

/** One that cannot be drawn stays as it came, and keeps no other one from being drawn. */
function fragmentOf(source, display) {
  try {
    const html = mathml(texOf(source), display)
    return html && sanitiseMath(html)
  } catch {
    return null
  }
}

function keep(key, fragment) {
  if (drawn.size >= KEPT_MAX) drawn.delete(drawn.keys().next().value)
  drawn.set(key, fragment)
}

function put(element, fragment) {
  element.replaceChildren(fragment.cloneNode(true))
}
