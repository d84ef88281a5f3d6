"""Code in colours, formulas, diagrams: what an answer is made of, and what it may cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import SHOTS
from tests.browser.test_safety import pieces
from tests.stack import Stack, directive

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Route

    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage

CODE = 'def f(x):\n    """Text\n    over lines."""\n\n    return f(x - 1)  # again'
DIAGRAM = 'flowchart TD\n  A[Start] --> B[End]\n  click A href "https://evil.example/"'
# Not to be loaded before an answer needs it.
HEAVY = ("highlight", "katex", "mermaid", "stix")


def heavy(chat: ChatPage) -> set[str]:
    """Which of the heavy files the page has asked for."""
    names: list[str] = chat.page.evaluate(
        "performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    return {word for word in HEAVY if any(word in name for name in names)}


def test_code_gets_colours_and_is_copied_as_it_is(stack: Stack, new_page: NewPage) -> None:
    chat = new_page(permissions=["clipboard-read", "clipboard-write"]).open()
    chat.send(directive(text="Only words."))
    chat.expect_end()
    assert heavy(chat) == set()
    answer = f"```python\n{CODE}\n```\n\n1. nested\n\n   ```js\n   const a = 1\n   ```\n\nend"
    chat.send(directive(pieces=pieces(answer, 3)))
    chat.expect_end()
    first, second = chat.last_reply.locator(".code").all()
    expect(first.locator(".code-keyword").first).to_have_text("def")
    expect(first.locator(".code-string")).to_have_text('"""Text\n    over lines."""')
    expect(second.locator(".code-keyword")).to_have_text("const")
    assert first.locator("code").evaluate("code => code.textContent") == CODE
    assert first.locator("code").inner_text() == CODE
    first.get_by_role("button", name="Copy").click()
    expect(first.get_by_role("button", name="Copied")).to_be_visible()
    assert chat.page.evaluate("navigator.clipboard.readText()") == CODE
    assert heavy(chat) == {"highlight"}
    assert chat.violations == []


def test_a_long_block_is_the_same_text_in_colours(stack: Stack, new_page: NewPage) -> None:
    lines = [f"value_{n} = {n}  # note" if n % 7 else "" for n in range(1, 399)]
    chat = new_page().open()
    chat.send(directive(pieces=pieces("```python\n" + "\n".join(lines) + "\n```", 40)))
    chat.expect_end()
    code = chat.last_reply.locator("code")
    expect(code.locator(".code-comment")).to_have_count(sum(1 for line in lines if line))
    assert code.evaluate("code => code.textContent") == "\n".join(lines)
    assert code.inner_text() == "\n".join(lines)
    height = code.evaluate("code => code.getBoundingClientRect().height")
    line_px = code.evaluate("code => parseFloat(getComputedStyle(code).lineHeight)")
    assert height == pytest.approx(line_px * len(lines), abs=line_px / 2)


def test_formulas_are_drawn_and_money_is_not(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    formulas = "$x^2$ and \\(\\mathbb{R}\\):\n\n$$\n\\frac{1}{2}\n$$\n\n$\\nope{$"
    answer = f"It costs $5 and $10. So {formulas} end"
    chat.send(directive(pieces=pieces(answer, 2)))
    chat.expect_end()
    expect(chat.last_reply.locator("math")).to_have_count(3)
    expect(chat.last_reply.locator("msup")).to_have_count(1)
    expect(chat.last_reply.locator(".math-display mfrac")).to_be_visible()
    expect(chat.last_reply).to_contain_text("It costs $5 and $10. So")
    expect(chat.last_reply).to_contain_text("ℝ")
    expect(chat.last_reply).to_contain_text("$\\nope{$ end")
    assert chat.violations == []


def test_a_diagram_is_drawn_where_it_can_reach_nothing(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.send(directive(text=f"```mermaid\n{DIAGRAM}\n```"))
    chat.expect_end()
    assert "mermaid" not in heavy(chat)
    draw = chat.last_reply.get_by_role("button", name="Draw the diagram")
    draw.click()
    drawn = chat.last_reply.locator("iframe.drawn")
    expect(drawn).to_have_attribute("sandbox", "allow-scripts")
    frame = drawn.content_frame
    expect(frame.locator("svg").first).to_contain_text("Start")
    fills = frame.locator(".node rect").evaluate_all(
        "all => all.map(one => getComputedStyle(one).fill)"
    )
    # The page's own tint, not the black of a colour that could not be read.
    assert "rgb(0, 0, 0)" not in fills
    assert len(set(fills)) == 1
    assert frame.locator("a").count() == 0
    tried: dict[str, Any] = frame.locator("body").evaluate(
        """async () => {
          const outcome = { origin: self.origin };
          const attempt = (name, action) => {
            try { outcome[name] = String(action()) } catch (error) { outcome[name] = error.name }
          };
          attempt("cookie", () => document.cookie);
          attempt("storage", () => localStorage.length);
          attempt("parent", () => parent.document.title);
          attempt("window", () => open("https://evil.example/"));
          attempt("top", () => { top.location = "https://evil.example/" });
          outcome.fetch = await fetch("/v1/conversations").then(() => "done", (e) => e.name);
          return outcome;
        }"""
    )
    assert tried == {
        "origin": "null",
        "cookie": "SecurityError",
        "storage": "SecurityError",
        "parent": "SecurityError",
        "window": "null",
        "top": "SecurityError",
        "fetch": "TypeError",
    }
    chat.faults.clear()  # the browser wrote each of them into the console, as it should
    draw.click()
    expect(chat.last_reply.locator("iframe")).to_have_count(0)
    assert chat.violations == []


def test_a_diagram_with_faults_is_said_to_have_them(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.send(directive(text="```mermaid\nflowchart TD\n  A[never closed\n```"))
    chat.expect_end()
    chat.last_reply.get_by_role("button", name="Draw the diagram").click()
    note = chat.last_reply.locator(".diagram-note")
    expect(note).to_contain_text("The diagram could not be drawn. Its text is above.")
    expect(chat.last_reply.locator("iframe")).to_have_count(0)
    draw = chat.last_reply.get_by_role("button", name="Draw the diagram")
    expect(draw).to_have_attribute("aria-pressed", "false")


def test_a_diagram_is_loaded_once_and_again_after_a_failure(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    chat.send(directive(text=f"```mermaid\n{DIAGRAM}\n```"))
    chat.expect_end()
    held: list[Route] = []
    chat.page.route("**/diagram_view*", lambda route: held.append(route))
    draw = chat.last_reply.get_by_role("button", name="Draw the diagram")
    draw.click()
    draw.click()
    chat.page.wait_for_timeout(0)  # what was routed is heard of
    assert len(held) == 1
    held[0].abort()
    note = chat.last_reply.locator(".diagram-note")
    expect(note).to_contain_text("Press the button again later.")
    expect(draw).to_have_attribute("aria-pressed", "false")
    chat.page.unroute("**/diagram_view*")
    draw.click()
    expect(chat.last_reply.locator("iframe.drawn")).to_have_count(1)
    expect(draw).to_have_attribute("aria-pressed", "true")
    expect(note).to_have_count(1)
    expect(note).to_have_text("")


def test_a_diagram_takes_the_colours_of_the_theme(stack: Stack, new_page: NewPage) -> None:
    chat = new_page(color_scheme="light").open()
    chat.send(directive(text=f"```mermaid\n{DIAGRAM}\n```"))
    chat.expect_end()
    chat.last_reply.get_by_role("button", name="Draw the diagram").click()
    frame = chat.last_reply.locator("iframe.drawn").content_frame
    label = frame.locator(".nodeLabel, .node text").first

    def expect_ink(dark: bool) -> None:
        scheme = frame.locator("html").evaluate("html => getComputedStyle(html).colorScheme")
        ink = label.evaluate("label => getComputedStyle(label).fill.match(/\\d+/g).map(Number)")
        assert (scheme, sum(ink) > 384) == ("dark" if dark else "light", dark), (scheme, ink)

    def redrawn(change: Callable[[], object]) -> None:
        old = label.element_handle()
        change()
        old.wait_for_element_state("hidden")
        expect(label).to_be_visible()

    expect_ink(dark=False)
    redrawn(lambda: chat.page.evaluate("document.documentElement.dataset.theme = 'dark'"))
    expect_ink(dark=True)
    redrawn(lambda: chat.page.evaluate("document.documentElement.dataset.theme = 'system'"))
    expect_ink(dark=False)
    redrawn(lambda: chat.page.emulate_media(color_scheme="dark"))
    expect_ink(dark=True)
    chat.page.screenshot(path=SHOTS / "diagram-dark.png")


_COUNT_LISTENERS = """
window.__listeners = 0;
const { addEventListener: add, removeEventListener: remove } = window;
window.addEventListener = (name, listener, options) => {
  if (name === "message") {
    window.__listeners += 1;
    options?.signal?.addEventListener("abort", () => (window.__listeners -= 1));
  }
  return add.call(window, name, listener, options);
};
window.removeEventListener = (name, ...rest) => {
  if (name === "message") window.__listeners -= 1;
  return remove.call(window, name, ...rest);
};
"""
_HOLD_SLICES = """import("#js/models/slices.js").then(({ slices }) => {
  slices.later = (act) => (window.__later = act);
})"""
_WORK_ON = """() => {
  for (let i = 0; i < 100 && window.__later; i += 1) {
    const act = window.__later;
    window.__later = null;
    act();
  }
  return window.__code.querySelectorAll(".code-lines span").length;
}"""


def test_nothing_more_is_done_for_what_has_left_the_page(stack: Stack, new_page: NewPage) -> None:
    chat = new_page()
    page = chat.page
    page.add_init_script(_COUNT_LISTENERS)
    chat.open()
    page.route("**/diagram", lambda route: None)  # a frame that never gets ready
    page.evaluate(_HOLD_SLICES)
    chat.send(directive(text=f"```python\n{CODE}\n```\n\n```mermaid\n{DIAGRAM}\n```"))
    chat.expect_end()
    before = page.evaluate("window.__listeners")
    chat.last_reply.get_by_role("button", name="Draw the diagram").click()
    expect(chat.last_reply.locator("iframe")).to_have_count(1)
    assert page.evaluate("window.__listeners") == before + 1
    chat.wait_until("Boolean(window.__later)")
    page.evaluate("window.__code = document.querySelector('#thread .code code'), 0")
    page.get_by_role("link", name="New chat").click()
    expect(page.locator("#thread > *")).to_have_count(0)
    assert page.evaluate(_WORK_ON) == 0
    assert page.evaluate("window.__listeners") == before


def test_a_formula_that_fails_keeps_no_other_from_being_drawn(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    chat.page.evaluate(
        """import("dompurify").then(({ default: purify }) => {
          const { sanitize } = purify;
          purify.sanitize = (html, ...rest) => {
            if (html.startsWith("<math") && html.includes("boom")) throw new Error("no");
            return sanitize.call(purify, html, ...rest);
          };
        })"""
    )
    chat.send(directive(text="First $\\text{boom}$, then $x^2$ and $y^3$."))
    chat.expect_end()
    expect(chat.last_reply.locator("msup")).to_have_count(2)
    expect(chat.last_reply).to_contain_text("$\\text{boom}$")


_WRITE = """async ([lines, perFrame]) => {
  const { MarkdownView } = await import("#js/views/markdown_view.js");
  const view = new MarkdownView();
  document.querySelector("#thread").append(view.element);
  const scroller = document.querySelector("#scroller");
  let text = "Code:\\n\\n```python\\n";
  for (let line = 0; line < lines; line += perFrame) {
    await new Promise(requestAnimationFrame);
    performance.mark(`line ${line}`);
    for (let i = line; i < line + perFrame; i += 1) {
      text += `value_${i} = compute(${i}, "text", [a for a in b if a])  # note\\n`;
    }
    view.show(text);
    scroller.scrollTop = scroller.scrollHeight;
  }
  view.show(text + "```\\n", true);
  return view.element.querySelectorAll(".code-lines").length;
}"""


def main_thread_tasks(
    browser: Browser, chat: ChatPage, expression: str, argument: Any
) -> list[float]:
    """Milliseconds of CPU of each task of the page's main thread while `expression` runs.

    CPU, not wall: other processes of the machine do not count.
    """
    browser.start_tracing(
        page=chat.page, categories=["toplevel", "disabled-by-default-devtools.timeline"]
    )
    assert chat.page.evaluate(expression, argument) > 1
    events = json.loads(browser.stop_tracing())["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event["tdur"] / 1_000
        for event in sorted(events, key=lambda event: float(event.get("ts", 0)))
        if event["name"].endswith("RunTask")
        and (event["pid"], event["tid"]) in mains
        and "tdur" in event
    ]


@pytest.mark.timeout(300)
def test_three_thousand_lines_of_code_never_hold_the_page(
    browser: Browser, stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    tasks = main_thread_tasks(browser, chat, _WRITE, [3_000, 4])
    assert len(tasks) > 700
    third = len(tasks) // 3
    # As cheap at the end as at the beginning; the square of the length would be five times as much.
    early, late = sum(tasks[:third]), sum(tasks[-third:])
    assert late < 2.5 * early, (early, late)
    assert max(tasks) < 50, sorted(tasks)[-10:]
