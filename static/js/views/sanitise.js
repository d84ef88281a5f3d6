/**
 * HTML made from a model's text → nodes that can do nothing.
 *
 * DOMPurify's own Trusted Types policy is the only one the page's CSP allows, and it gives back nodes, so no
 * other code can turn text into HTML. Allowed is what Markdown makes, and nothing more: no style, no
 * class but a code block's language and a formula's, and no link to this site, on which it might act for its
 * reader. Formulas are sanitised by themselves: MathML without links, classes, styles and original text.
 */
import DOMPurify from "dompurify"

import { inLettersOf } from "#js/models/math_letters.js"

const CONFIG = {
  ALLOWED_TAGS: [
    ..."p br hr strong em del code pre blockquote ul ol li a".split(" "),
    ..."h3 h4 h5 h6 table thead tbody tr th td span div".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "class", "start", "align"],
  // DOMPurify holds every other value against the address rule below.
  ADD_URI_SAFE_ATTR: ["start", "align", "title", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
}

const MATH_ATTRIBUTES = [
  ..."display displaystyle scriptlevel mathvariant mathcolor mathsize fence separator stretchy symmetric".split(" "),
  ..."largeop movablelimits accent accentunder minsize maxsize lspace rspace width height depth voffset".split(" "),
  ..."linethickness notation columnalign columnspacing rowspacing form".split(" "),
]
const MATH_CONFIG = {
  ...CONFIG,
  ALLOWED_TAGS: [
    "#text",
    ..."math semantics mrow mi mn mo ms mtext mspace msup msub msubsup mfrac msqrt mroot mover munder".split(" "),
    ..."munderover mtable mtr mtd mstyle mpadded mphantom menclose mmultiscripts mprescripts none".split(" "),
  ],
  ALLOWED_ATTR: MATH_ATTRIBUTES,
  ADD_URI_SAFE_ATTR: MATH_ATTRIBUTES,
  KEEP_CONTENT: false, // the formula's source, in an annotation
}
// What could push a formula over the text around it.
const LENGTHS = "lspace rspace width height depth voffset minsize maxsize mathsize linethickness".split(" ")
const EM_MAX = 20

const LANGUAGE = /^language-[\w+#.-]{1,40}$/
const MATH_CLASSES = new Set(["math-inline", "math-display"])

/** @returns {DocumentFragment} */
export function sanitise(html) {
  const fragment = DOMPurify.sanitize(html, CONFIG)
  for (const element of fragment.querySelectorAll("[class]")) keepKnownClass(element)
  for (const link of fragment.querySelectorAll("a")) makeOutward(link)
  return fragment
}

/** @param {string} html MathML. @returns {DocumentFragment} */
export function sanitiseMath(html) {
  const fragment = DOMPurify.sanitize(html, MATH_CONFIG)
  for (const name of LENGTHS) for (const element of fragment.querySelectorAll(`[${name}]`)) keepSmall(element, name)
  for (const letters of fragment.querySelectorAll("[mathvariant]")) setLetters(letters)
  for (const table of fragment.querySelectorAll("mtable[columnalign]")) alignColumns(table)
  return fragment
}

function keepKnownClass(element) {
  if (!isKnownClass(element.tagName, element.className)) element.removeAttribute("class")
}

function isKnownClass(tag, name) {
  if (tag === "CODE") return LANGUAGE.test(name)
  return tag === "P" ? name === "plain" : ["SPAN", "DIV"].includes(tag) && MATH_CLASSES.has(name)
}

function makeOutward(link) {
  // Asked as the browser resolves it: `http:/path` is this site's, though it looks like another's.
  if (link.host === location.host) link.removeAttribute("href")
  if (!link.hasAttribute("href")) return
  link.setAttribute("target", "_blank")
  link.setAttribute("rel", "noopener noreferrer nofollow")
}

function keepSmall(element, name) {
  const [, amount, unit] = /^([+-]?[\d.]+)(em|ex|px|pt|%)?$/.exec(element.getAttribute(name)) ?? []
  const max = { px: 400, pt: 300, "%": 100 }[unit] ?? EM_MAX
  if (!(Math.abs(Number(amount)) <= max)) element.removeAttribute(name)
}

function setLetters(element) {
  const text = element.textContent
  const styled = element.childElementCount ? text : inLettersOf(element.getAttribute("mathvariant"), text)
  if (styled === text) return
  element.textContent = styled
  element.removeAttribute("mathvariant")
}

/** Browsers do not know `columnalign` any more; a class does it. The last one holds for all further columns. */
function alignColumns(table) {
  const sides = table.getAttribute("columnalign").split(" ")
  const tight = table.getAttribute("columnspacing")?.startsWith("0em")
  for (const row of table.querySelectorAll(":scope > mtr")) {
    ;[...row.children].forEach((cell, index) => {
      const side = sides[Math.min(index, sides.length - 1)]
      if (["left", "right"].includes(side)) cell.classList.add(`math-${side}`)
      if (tight) cell.classList.add("math-tight")
    })
  }
}
