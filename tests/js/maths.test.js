import assert from "node:assert/strict"
import { test } from "node:test"

import { BlockStream, blocksOf } from "#js/models/markdown.js"
import { inLettersOf } from "#js/models/math_letters.js"
import { texOf } from "#js/models/maths.js"
import { mathml } from "#js/models/tex.js"

import { randomFrom } from "./support.js"

function html(blocks) {
  return blocks.map((block) => block.html()).join("")
}

/** The formulas of `text`, each with how it is shown. */
function formulas(text) {
  const found = html(blocksOf(text)).matchAll(/class="math-(inline|display)">([^<]*)</g)
  return [...found].map(([, mode, source]) => [mode, texOf(unescape(source))])
}

function unescape(text) {
  return text.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code))
}

const TEXT = [
  "$5 and $10",
  "It costs $5, or 10$ at the door.",
  "$5-$10",
  "from $5 to $10 (or $7.50)",
  "US$5 and A$10",
  "($5)/($10)",
  "$HOME:$PATH",
  "echo $HOME and $USER",
  "$5 or 10$",
  "$to be paid$",
  "$ x $",
  "$x $",
  "$ x$",
  "\\$x\\$",
  "a$b$",
  "$x$y",
  "$x$5",
  "$$",
  "$$$",
  "$ $",
  "$x\ny$",
  "$`x`$",
  "`$x$` and `\\(x\\)`",
  "    $x$",
  "```\n$x$\n$$y$$\n```",
  "$$x\n\ny$$",
  "\\(x\n\ny\\)",
  "\\[ never closed",
  "$$ never closed",
  "\\(\\) \\[\\]",
  "€5 $ and 6 $",
  "$5 और 10$",
  "5$, 6$ and 7$",
]

test("money, shells and halves stay text", () => {
  for (const text of TEXT) assert.deepEqual(formulas(text), [], text)
})

const MATHS = [
  ["$x$", [["inline", "x"]]],
  ["$x$, $y$ and $z$.", [["inline", "x"], ["inline", "y"], ["inline", "z"]]],
  ["it costs $5, and $x = 5$", [["inline", "x = 5"]]],
  ["($a_1 + b_1$)", [["inline", "a_1 + b_1"]]],
  ["$a*b$ and *so* $c*d$", [["inline", "a*b"], ["inline", "c*d"]]],
  ["**$x$**", [["inline", "x"]]],
  ["$\\text{if so and so}$", [["inline", "\\text{if so and so}"]]],
  ["$\\$5 < x$", [["inline", "\\$5 < x"]]],
  ["$1,000$ is $10^3$", [["inline", "1,000"], ["inline", "10^3"]]],
  ["$\\sin x \\cos y$", [["inline", "\\sin x \\cos y"]]],
  ["\\(x\\) and \\(a\nb\\)", [["inline", "x"], ["inline", "a\nb"]]],
  ["so $$x$$ it is", [["display", "x"]]],
  ["so \\[x\\] it is", [["display", "x"]]],
  ["$$x$$", [["display", "x"]]],
  ["$$\nx\n+ y\n$$", [["display", "x\n+ y"]]],
  ["text\n$$\nx\n$$\ntext", [["display", "x"]]],
  ["\\[\nx\n- y\n# z\n\\]", [["display", "x\n- y\n# z"]]],
  ["- one\n\n  $$\n  x\n  $$\n- two $y$", [["display", "x"], ["inline", "y"]]],
  ["> $$x$$\n> $y$", [["display", "x"], ["inline", "y"]]],
  ["| a |\n|---|\n| $x$ |", [["inline", "x"]]],
  ["# $x$", [["inline", "x"]]],
  ["$x$ costs $5", [["inline", "x"]]],
  ["$\\alpha$-helix", [["inline", "\\alpha"]]],
]

test("what is maths is maths", () => {
  for (const [text, expected] of MATHS) assert.deepEqual(formulas(text), expected, text)
})

test("split anywhere, text and maths end as the whole text does", () => {
  for (const text of [...TEXT, ...MATHS.map(([text]) => text)]) {
    const around = `before\n\n${text}\n\nafter $q$ and $5`
    const whole = html(blocksOf(around))
    for (let at = 0; at <= around.length; at += 1) {
      const stream = new BlockStream()
      stream.update(around.slice(0, at))
      assert.equal(html(stream.update(around)), whole, JSON.stringify([text, at]))
      assert.equal(html(stream.update(around, true)), whole)
    }
  }
})

const PIECES = ["$", "$$", "\\(", "\\)", "\\[", "\\]", "x", " ", "\n", "\n\n", "- ", "# ", "5", "`", "```\n", "| a |\n|---|\n", "> ", "\\", "a b", "**"]

test("whatever awkward pieces follow each other, growing shows what the whole shows", () => {
  for (let seed = 0; seed < 800; seed += 1) {
    const random = randomFrom(seed)
    const stream = new BlockStream()
    let text = ""
    for (let i = 0; i < 16; i += 1) {
      text += PIECES[Math.floor(random() * PIECES.length)]
      assert.equal(html(stream.update(text)), html(blocksOf(text)), `seed ${seed}: ${JSON.stringify(text)}`)
    }
  }
})

test("KaTeX gives MathML, without anything that acts", () => {
  assert.match(mathml("\\frac{1}{2}", true), /^<math [^>]*display="block">.*<mfrac>.*<\/math>$/s)
  const hostile = [
    "\\href{javascript:alert(1)}{x}",
    "\\url{javascript:alert(1)}",
    "\\htmlClass{composer}{x}",
    "\\htmlId{thread}{x}",
    "\\htmlStyle{position:fixed;inset:0}{x}",
    "\\htmlData{a=b}{x}",
    "\\includegraphics{https://evil.example/x.png}",
    "\\text{<img src=x onerror=alert(1)>}",
    "</math><script>alert(1)</script>",
    "\\unicode{x}<b>",
  ]
  for (const tex of hostile) {
    // The view drops the annotation, with the formula's source in it.
    const out = (mathml(tex, false) ?? "").replace(/<annotation[^]*?<\/annotation>/g, "")
    for (const [tag] of out.matchAll(/<[^>]*>/g)) {
      assert.match(tag, /^<\/?(?:math|semantics|m[a-z]+)\b/, tex)
      assert.doesNotMatch(tag, /\s(?:href|src|id|class|style|on\w+|data-\w+)=/, tex)
    }
  }
})

test("what cannot be drawn is nothing, soon", () => {
  const endless = ["\\foo{", "\\def\\a{\\a\\a}\\a", "{".repeat(4_000), "\\frac".repeat(800), "\\left(".repeat(500), "^".repeat(100)]
  for (const tex of endless) assert.equal(mathml(tex, true), null, tex.slice(0, 20))
})

test("letters of a kind are Unicode's own", () => {
  assert.equal(inLettersOf("double-struck", "RZA1"), "ℝℤ𝔸𝟙")
  assert.equal(inLettersOf("script", "LAe"), "ℒ𝒜ℯ")
  assert.equal(inLettersOf("bold", "xα9 +"), "𝐱𝛂𝟗 +")
  assert.equal(inLettersOf("normal", "d"), "d")
})
