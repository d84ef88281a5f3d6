import assert from "node:assert/strict"
import { test } from "node:test"

import { BlockStream } from "#js/models/markdown.js"

// The page sanitises what comes out here; this wall stands before that one.
const TAGS = new Set("p br hr strong em del code pre blockquote ul ol li a h3 h4 h5 h6 table thead tbody tr th td span div".split(" "))
const ATTRIBUTES = new Set(["href", "title", "class", "start", "align"])

const HOSTILE = [
  "<script>alert(1)</script>",
  '<img src="x" onerror="alert(1)">',
  '<svg onload="alert(1)"><script>alert(1)</script></svg>',
  "<math><mtext><table><mglyph><style><!--</style><img title='--><img src onerror=alert(1)>'>",
  '<style>body{display:none}</style><p style="position:fixed;inset:0">x</p>',
  '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
  '[a](https://x.example/"onmouseover="alert(1))',
  '[a](https://x.example "t\\" onmouseover=\\"alert(1)")',
  '![a" onerror="alert(1)](https://x.example/"onerror="alert(1))',
  "```x\" onclick=\"alert(1)\n<img src=x onerror=alert(1)>\n```",
  "```mermaid\nflowchart LR\n A[<img src=x onerror=alert(1)>]\n click A href \"javascript:alert(1)\"\n```",
  "$</span><img src=x onerror=alert(1)>$ and $x\"<b>$",
  "$$</div><script>alert(1)</script>$$",
  "\\[<svg onload=alert(1)>\\] \\(<b>\\)",
  "$$\n<img src=x onerror=alert(1)>\n",
  "| <b> | $<i>$ |\n|---|---|\n| <script> | `</td><script>` |",
  "- <b>\n\n  ```html\n  <script>alert(1)</script>\n  ```",
  "<https://x.example/<script>> https://x.example/<script>",
  "&lt;script&gt; &#60;script&#62; &#x3c;img src=x onerror=alert(1)&#x3e;",
  "a\u202e\u2066<b>\u2069",
  '<a id="composer" name="thread">x</a><div id="app">',
  "[a]: javascript:alert(1) \"x\\\"y\"\n\n[a] [a][] ![b][a]",
]

function assertHarmless(html, text) {
  for (const [tag, name, attributes] of html.matchAll(/<\/?([a-z0-9]*)((?:\s+[^\s=>]+(?:="[^"]*")?)*)\s*\/?>?/gi)) {
    assert.ok(TAGS.has(name), `${tag} from ${JSON.stringify(text)}`)
    const rest = attributes.replace(/\s+([^\s=>]+)="[^"]*"/g, (_, attribute) => (assert.ok(ATTRIBUTES.has(attribute), `${tag} from ${JSON.stringify(text)}`), ""))
    assert.equal(rest.trim(), "", `${tag} from ${JSON.stringify(text)}`)
  }
}

test("the check itself sees what must not be", () => {
  for (const html of ["<script>", "<p onclick=\"x\">", "<p x>", "<img src=x>", "</b>"]) assert.throws(() => assertHarmless(html, ""))
})

test("no hostile text becomes markup of its own, split anywhere", () => {
  for (const hostile of HOSTILE) {
    for (let at = 1; at <= hostile.length; at += 1) {
      const stream = new BlockStream()
      for (const text of [hostile.slice(0, at), hostile]) {
        for (const final of [false, true]) {
          assertHarmless(stream.update(text, final).map((block) => block.html()).join(""), text)
        }
      }
    }
  }
})

// Each took 20 seconds, or grows with the square, in a parser that is left alone with it. The time given is loose:
// it tells minutes from a moment, on any machine.
const ENDLESS = ["[", "![", "_a_", "*a*", "~a~", "`a", "$", "$a", "$$a\n", "\\(", "\\[", "<", "<a ", "](", "[a](", "> ", "- ", "- a\n", "|", "|a|\n|-|\n", "**", "&", "www.", "{", "```\n", "\n\n$$"]

for (const piece of ENDLESS) {
  test(`100,000 characters of ${JSON.stringify(piece)} are read in a moment`, { timeout: 10_000 }, () => {
    const text = piece.repeat(100_000 / piece.length)
    const startedAt = performance.now()
    for (const block of new BlockStream().update(text, true)) {
      try {
        block.html()
      } catch (error) {
        assert.ok(error instanceof RangeError) // the view shows it as it came
      }
    }
    assert.ok(performance.now() - startedAt < 5_000)
  })
}
