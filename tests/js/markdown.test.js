import assert from "node:assert/strict"
import { test } from "node:test"

import { BlockStream, blocksOf } from "#js/models/markdown.js"

import { randomFrom } from "./support.js"

const TEXT = `# Title

A paragraph with **bold**, \`code\` and [a link][1].
Second line.

- one

- two
  - inner
1. first
2. second

\`\`\`python
def f():

    return "# not a title"
\`\`\`

| a | b |
|---|--:|
| 1 | 2 |

> quote
lazy

Title below
===

    indented

<div onclick="x()">raw</div>

अंत 👨‍👩‍👧

[1]: https://example.org
`

function html(blocks) {
  return blocks.map((block) => block.html()).join("")
}

test("however the text arrives, the final blocks are those of the whole text", () => {
  const whole = html(blocksOf(TEXT))
  for (let seed = 0; seed < 40; seed += 1) {
    const random = randomFrom(seed)
    const stream = new BlockStream()
    for (let at = 0; at < TEXT.length; at += 1 + Math.floor(random() * 9)) stream.update(TEXT.slice(0, at))
    assert.equal(html(stream.update(TEXT, true)), whole, `seed ${seed}`)
  }
})

test("while it grows, what is shown is what the whole text so far would show (definitions aside)", () => {
  const text = TEXT.replace("[a link][1]", "a link").replace("[1]: https://example.org\n", "")
  const stream = new BlockStream()
  for (let at = 1; at <= text.length; at += 1) {
    const so_far = text.slice(0, at)
    assert.equal(html(stream.update(so_far)), html(blocksOf(so_far)), JSON.stringify(so_far.slice(-40)))
  }
})

const PIECES = ["- a", "-", "1.", "1. b", "\n", "\n\n", "  ", "    ", "text", "```", "```py\n", "> q", ">", "# h", "|a|b|", "|-|-|", "===", "---", "<div>", "</div>", "<!--", "-->", "* x", "+", "\t", "~~~", "`", "**"]

test("the same for random texts of awkward pieces", () => {
  for (let seed = 0; seed < 600; seed += 1) {
    const random = randomFrom(seed)
    const stream = new BlockStream()
    let text = ""
    for (let i = 0; i < 14; i += 1) {
      text += PIECES[Math.floor(random() * PIECES.length)] + (random() < 0.3 ? "\n" : "")
      assert.equal(html(stream.update(text)), html(blocksOf(text)), `seed ${seed}: ${JSON.stringify(text)}`)
    }
  }
})

test("closed blocks stay the same objects", () => {
  const stream = new BlockStream()
  const before = stream.update("one\n\ntwo\n\nthree\n\nfour\n\nfive")
  const after = stream.update("one\n\ntwo\n\nthree\n\nfour\n\nfive and more\n\nsix")
  assert.equal(after[0], before[0])
  assert.equal(after[2], before[2])
})

test("a snapshot that takes text back is read anew", () => {
  const stream = new BlockStream()
  stream.update("one\n\ntwo\n\nthree\n\nfour\n\nfive")
  assert.equal(html(stream.update("one\n\ntw")), html(blocksOf("one\n\ntw")))
})

test("CRLF is a line end, and costs no second reading of closed blocks", () => {
  const stream = new BlockStream()
  const before = stream.update("one\r\n\r\ntwo\r\n\r\nthree\r\n\r\nfour\r\n\r\nfive")
  const after = stream.update("one\r\n\r\ntwo\r\n\r\nthree\r\n\r\nfour\r\n\r\nfive more")
  assert.equal(after[0], before[0])
  assert.equal(html(after), html(blocksOf("one\n\ntwo\n\nthree\n\nfour\n\nfive more")))
})

test("raw HTML becomes text, images become links", () => {
  const out = html(blocksOf('<script>alert(1)</script>\n\na <b onclick="x">b</b>\n\n![cat](https://x.example/cat.png)'))
  assert.doesNotMatch(out, /<script|<b |<img/)
  assert.match(out, /&#60;script&#62;/)
  assert.match(out, /<a href="https:\/\/x\.example\/cat\.png">cat<\/a>/)
})

test("headings stay below the page's own", () => {
  assert.match(html(blocksOf("# one")), /^<h3>/)
  assert.match(html(blocksOf("###### six")), /^<h6>/)
})

test("nesting without end is shown as it came", () => {
  for (const text of [`${">".repeat(5_000)} deep`, `${"- ".repeat(3_000)}deep`]) {
    const blocks = blocksOf(text)
    assert.equal(blocks[0].type, "plain")
    assert.match(html(blocks), /^<p class="plain">/)
  }
})

/** How many characters regular expressions are given while `act` runs. */
function charsMatched(act) {
  const { exec, test: matches, [Symbol.replace]: replace } = RegExp.prototype
  let chars = 0
  const counted = (method) =>
    function (text, ...rest) {
      chars += text.length
      return method.call(this, text, ...rest)
    }
  Object.assign(RegExp.prototype, { exec: counted(exec), test: counted(matches), [Symbol.replace]: counted(replace) })
  try {
    act()
  } finally {
    Object.assign(RegExp.prototype, { exec, test: matches, [Symbol.replace]: replace })
  }
  return chars
}

test("a line more of code costs the same, however much there is", () => {
  const costs = [100, 2_000].map((lines) => {
    const stream = new BlockStream()
    let text = `Code:\n\n\`\`\`python\n${"value = compute(1)\n".repeat(lines)}`
    stream.update(text)
    stream.update((text += "x"))
    const before = stream.charsRead
    const matched = charsMatched(() => {
      for (let i = 0; i < 20; i += 1) {
        const block = stream.update((text += i % 4 ? " = 1" : "\n\n")).at(-1)
        assert.ok(block.growing && !block.complete && block.code.length <= text.length)
      }
    })
    return { read: stream.charsRead - before, matched }
  })
  assert.deepEqual(costs[0], costs[1])
  assert.ok(costs[0].matched < 5_000, `${costs[0].matched}`)
})

test("code that grows is the code of the whole text, whatever line ends come when", () => {
  const pieces = ["a", "\n", "\n\n", " b", "\n c", "d\n", "~~", "\n\n\ne\n"]
  for (let seed = 0; seed < 200; seed += 1) {
    const random = randomFrom(seed)
    const stream = new BlockStream()
    let text = "```py\n"
    for (let i = 0; i < 12; i += 1) {
      text += pieces[Math.floor(random() * pieces.length)]
      const [grown, whole] = [stream.update(text).at(-1), blocksOf(text).at(-1)]
      assert.deepEqual([grown.code, grown.token.text, grown.raw], [whole.code, whole.token.text, whole.raw], JSON.stringify(text))
    }
  }
})
