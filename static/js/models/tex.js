/**
 * A formula → MathML, by KaTeX. Loaded with the first formula.
 *
 * MathML needs no style attributes and no fonts of its own, and screen readers read it. `trust: false`: no
 * links, no images, no classes, no styles from the formula; the view sanitises what comes out all the same.
 */
const module = await import("katex")
// As a module for Node; the file for browsers gives itself to the window.
const katex = module.default ?? globalThis.katex

const MATHML_MAX = 200_000
const OPTIONS = {
  output: "mathml",
  throwOnError: true,
  trust: false,
  strict: "ignore",
  maxExpand: 300,
  maxSize: 20,
  errorColor: "currentcolor", // a command that it does not know is shown as text, not in red
}

/** @returns {string | null} null where it is no formula that can be drawn */
export function mathml(tex, display) {
  try {
    const html = katex.renderToString(tex, { ...OPTIONS, displayMode: display, macros: {} })
    const [math] = /<math[^]*<\/math>/.exec(html) ?? []
    return math && math.length <= MATHML_MAX ? math : null
  } catch {
    return null // not TeX, too deep, or too many expansions
  }
}
