"""Whatever a model writes, nothing of it runs, and no foreign host hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.stack import Stack, directive

if TYPE_CHECKING:
    from tests.browser.conftest import NewPage

HOSTILE = {
    "script": "<script>window.__ran = 1</script>",
    "image error": '<img src="x" onerror="window.__ran = 1">',
    "image beacon": "![pixel](https://evil.example/p.png) <img src='https://evil.example/q.png'>",
    "svg onload": '<svg onload="window.__ran=1"><script>window.__ran=1</script></svg>',
    "math": "<math><mtext><table><mglyph><style><!--</style><img title='--><img src onerror="
    "window.__ran=1>'>",
    "javascript": "[a](javascript:window.__ran=1) <javascript:window.__ran=1>",
    "javascript with a tab": "[a](java\tscript:window.__ran=1) [b](<java\tscript:window.__ran=1>)",
    "javascript in entities": "[a](&#106;avascript:window.__ran=1) [b](javascript&colon;x)",
    "javascript in capitals": "[a](JaVaScRiPt:window.__ran=1)",
    "data address": "[a](data:text/html,<script>window.__ran=1</script>)",
    "vbscript, file, blob": "[a](vbscript:x) [b](file:///etc/passwd) [c](blob:http://x/y)",
    "own address": "[a](/accounts/sign-out/) [b](//evil.example/) [c](?x) [d](#message)",
    "own address, other words": "[a](http:/accounts/sign-out/) [b](http:accounts/sign-out/) "
    "[c](OWN/accounts/sign-out/) [d](http://x@OWN_HOST/) OWN/e ![f](http:/f.png) "
    "[g](http:\\\\\\\\OWN_HOST/) <http:/h>",
    "attribute break": '[a](https://x.example/"onmouseover="window.__ran=1)',
    "title break": '[a](https://x.example "t\\" onmouseover=\\"window.__ran=1")',
    "style": '<style>body{display:none}</style><p style="position:fixed;inset:0">x</p>',
    "form": '<form action="https://evil.example/"><input name="password"><button>go</button>',
    "frame": '<iframe srcdoc="<script>parent.__ran=1</script>"></iframe><object data="x"></object>',
    "base and meta": '<base href="https://evil.example/"><meta http-equiv="refresh" content="0">',
    "ids": '<a id="composer" name="thread">x</a><div id="app">',
    "code fence language": '```x" onclick="window.__ran=1\n<img src=x onerror=window.__ran=1>\n```',
    "autolink": "https://x.example/<script>window.__ran=1</script> www.x.example",
    "half tags": '<img src="x" onerror="window.__ran=1"\n\n<a href="javascript:window.__ran=1"',
    "reference": "[a][r]\n\n[r]: javascript:window.__ran=1",
    "deep quotes": ">" * 3_000 + " deep",
    "deep lists": "- " * 1_000 + "deep",
    "unclosed emphasis": "**a " * 1_000,
    "nul and bidi": "a\u202e\u2066txt.exe \ufeff",
    "formula that acts": "$\\href{javascript:window.__ran=1}{x}$ "
    "$\\url{javascript:window.__ran=1}$ "
    "\\(\\htmlId{composer}{x}\\) \\(\\htmlClass{dock}{x}\\) $\\htmlData{a=b}{x}$ "
    "$\\includegraphics{https://evil.example/x.png}$",
    "formula with style": "$$\\htmlStyle{position:fixed;inset:0}{x}$$\n\n"
    "$$\\kern-500em\\rule{500em}{500em}\\raisebox{500em}{x}\\hspace{-500em}y$$",
    "formula with markup": "$</span><img src=x onerror=window.__ran=1>$ "
    "$$\\text{<img src=x onerror=window.__ran=1>}$$ \\(</math><script>window.__ran=1</script>\\)",
    "formula without end": "$$\\def\\a{\\a\\a}\\a$$ $" + "{" * 400 + "$",
    "raw text after a tag": "a <script> b &lt;img src=x onerror=window.__ran=1&gt; <b> c",
    "code of markup": "```html\n<img src=x onerror=window.__ran=1>"
    "<script>window.__ran=1</script>\n```",
    "diagram": "```mermaid\nflowchart LR\n  A[<img src=x onerror=window.__ran=1>]\n"
    '  click A href "javascript:window.__ran=1"\n```',
    "brackets": "[" * 4_000,
    "marks": "_a_" * 1_500,
    "huge table": "|" + "a|" * 100 + "\n|" + "-|" * 100 + "\n" + ("|" + "x|" * 100 + "\n") * 5,
}

# An answer is cut after 1,024 tokens, and a piece is one.
PIECES_MAX = 500

# What an answer may be made of; everything else would be a way in.
_AUDIT = """reply => {
  const allowed = new Set(("DIV P BR HR STRONG EM DEL CODE PRE BLOCKQUOTE UL OL LI A H3 H4 H5 H6 " +
    "TABLE THEAD TBODY TR TH TD BUTTON SPAN svg use").split(" "));
  const maths = new Set(("math semantics mrow mi mn mo ms mtext mspace msup msub msubsup mfrac " +
    "msqrt mroot mover munder munderover mtable mtr mtd mstyle mpadded mphantom menclose"
  ).split(" "));
  const mathAttributes = new Set(("display displaystyle scriptlevel mathvariant mathcolor fence " +
    "separator stretchy accent accentunder minsize maxsize lspace rspace width height depth " +
    "voffset linethickness notation columnalign columnspacing rowspacing class").split(" "));
  const attributes = new Set(("class dir href title start align target rel tabindex role type " +
    "aria-label aria-hidden aria-pressed data-label data-act").split(" "));
  const found = [];
  for (const element of reply.querySelectorAll(".prose *")) {
    if (element.namespaceURI.endsWith("MathML")) {
      if (!maths.has(element.localName)) found.push(element.outerHTML.slice(0, 200));
      for (const { name } of element.attributes) {
        if (!mathAttributes.has(name)) found.push(`${element.localName} ${name}`);
      }
      continue;
    }
    if (!allowed.has(element.tagName)) found.push(element.outerHTML.slice(0, 200));
    for (const { name, value } of element.attributes) {
      if (!attributes.has(name)) found.push(`${element.tagName} ${name}=${value}`);
    }
    if (element.tagName !== "A" || !element.hasAttribute("href")) continue;
    if (element.host === location.host) found.push(`own address ${element.href}`);
    if (!/^(https?|mailto):$/.test(element.protocol)) found.push(`address ${element.href}`);
    if (element.target !== "_blank" || !element.rel.includes("noopener")) found.push("link inward");
  }
  return found;
}"""


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.timeout(600)  # dozens of answers, each in hundreds of pieces
@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_hostile_answers_run_nothing_in_any_split(
    stack: Stack, new_page: NewPage, size: int
) -> None:
    # All of them on one page: each comes as an answer of its own, streamed in pieces of `size`.
    chat = new_page().open()
    for name, hostile in HOSTILE.items():
        addressed = hostile.replace("OWN_HOST", urlsplit(chat.url).netloc).replace("OWN", chat.url)
        text = addressed[: size * PIECES_MAX]
        chat.send(directive(pieces=pieces(f"{text}\n\nend of {name}", size)))
        chat.expect_reply(f"end of {name}")
        chat.expect_end()
        faults = chat.page.locator(".reply:last-child").evaluate(_AUDIT)
        assert faults == [], name
        assert chat.page.evaluate("window.__ran") is None, name
    assert chat.violations == []
    chat.page.reload()
    chat.expect_reply("end of huge table")
    # What is drawn and coloured in idle moments, too.
    chat.wait_until("document.querySelectorAll('.prose math').length >= 3")
    chat.wait_until("document.querySelectorAll('.prose .code-keyword').length >= 1")
    for reply in chat.page.locator(".reply").all():
        assert reply.evaluate(_AUDIT) == []
    assert chat.page.evaluate("window.__ran") is None
    assert chat.violations == []
    assert chat.page.locator("#composer").count() == 1


def test_links_lead_elsewhere_or_nowhere(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    here = chat.url
    links = f"[a](http:/accounts/sign-out/) [b]({here}/x) [c](https://x.example/) [d](mailto:a@b.c)"
    chat.send(directive(text=links))
    chat.expect_end()
    found = chat.page.locator(".reply a").evaluate_all(
        "all => all.map(one => [one.textContent, one.getAttribute('href')])"
    )
    assert found == [["a", None], ["b", None], ["c", "https://x.example/"], ["d", "mailto:a@b.c"]]


def test_a_users_own_markup_is_text(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    mine = "<img src=x onerror=window.__ran=1> **not bold** [x](javascript:1)"
    chat.send(f"{mine} {directive(text='ok')}")
    chat.expect_end()
    assert chat.page.locator(".user-text").inner_text().startswith(mine)
    assert chat.page.locator(".user-text *").count() == 0


def test_the_policy_stops_what_a_script_would_try(stack: Stack, new_page: NewPage) -> None:
    """The second wall, tried by itself: injected markup, inline code, foreign hosts."""
    chat = new_page().open()
    tried: dict[str, Any] = chat.page.evaluate(
        """async () => {
          const outcome = {};
          // The debugger lets its own call use eval; a later turn of the loop has no such favour.
          await new Promise((resolve) => setTimeout(resolve));
          const attempt = (name, action) => {
            try { action(); outcome[name] = "done" } catch (error) { outcome[name] = error.name }
          };
          const div = document.createElement("div");
          attempt("innerHTML", () => { div.innerHTML = "<b>x</b>" });
          attempt("policy", () => trustedTypes.createPolicy("other", {}));
          attempt("eval", () => eval("1"));
          const script = document.createElement("script");
          attempt("script text", () => { script.textContent = "window.__ran = 1" });
          document.head.append(script);
          outcome.fetch = await fetch("https://evil.example/").then(() => "done", (e) => e.name);
          outcome.ran = window.__ran ?? null;
          return outcome;
        }"""
    )
    assert tried["innerHTML"] == tried["policy"] == tried["script text"] == "TypeError"
    assert tried["eval"] == "EvalError"
    assert tried["fetch"] == "TypeError"
    assert tried["ran"] is None
    assert len(chat.violations) >= 4
    chat.faults.clear()  # the browser wrote each of them into the console, as it should
