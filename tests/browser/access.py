"""What everybody must be able to do with a page: axe, the keyboard, narrow windows.

axe runs in a world of its own beside the page's: the page's strict policy holds as it does for
people, and its scripts see nothing of it. Each check gives a list of what is wrong, in words.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.stack import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# Beyond what WCAG asks, and what a person with a screen reader moves by.
OWN_RULES = [
    "target-size",  # of WCAG 2.2, but off by itself
    "page-has-heading-one",
    "landmark-one-main",
    "landmark-no-duplicate-main",
    "landmark-unique",
    "region",
    "heading-order",
    "empty-heading",
    "tabindex",
    "skip-link",
    "aria-dialog-name",
]
STOPS_MAX = 200

_AXE_OPTIONS = {
    "runOnly": {"type": "tag", "values": WCAG},
    "rules": {rule: {"enabled": True} for rule in OWN_RULES},
    "resultTypes": ["violations"],
}


@cache
def _axe_source() -> str:
    return (ROOT / "node_modules" / "axe-core" / "axe.min.js").read_text()


@cache
def _ask(question: str) -> str:
    return f"({Path(__file__).with_suffix('.js').read_text()}).{question}()"


def axe_violations(cdp: CDPSession, rules: list[str] | None = None) -> list[str]:
    """Each broken rule (of all, or of `rules` alone), with the elements that break it.

    (A menu lies over the page, in no region of it, as axe lets a dialog be.)
    """
    some = {**_AXE_OPTIONS, "runOnly": {"type": "rule", "values": rules}, "rules": {}}
    options = json.dumps(some if rules else _AXE_OPTIONS)
    world = _world(cdp)
    if _evaluate(cdp, world, "typeof axe") != "object":
        _evaluate(cdp, world, _axe_source() + "; 0")
    found: list[str] = _evaluate(
        cdp,
        world,
        f"""axe.run(document, {options}).then(({{violations}}) => violations.flatMap((rule) =>
          rule.nodes.filter((node) => rule.id !== "region" || !node.html.includes('role="menu"'))
          .map((node) => `${{rule.id}}: ${{node.html.slice(0, 160)}} — `
            + (node.failureSummary ?? "").replace(/\\s+/g, " ").slice(0, 240))))""",
    )
    return found


def _world(cdp: CDPSession) -> int:
    """The context of a world beside the page's own; the same one while the document stays."""
    frame = cdp.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
    made = cdp.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "axe"})
    number: int = made["executionContextId"]
    return number


def _evaluate(cdp: CDPSession, world: int, expression: str) -> Any:
    answer = cdp.send(
        "Runtime.evaluate",
        {
            "expression": expression,
            "contextId": world,
            "awaitPromise": True,
            "returnByValue": True,
        },
    )
    assert "exceptionDetails" not in answer, str(answer["exceptionDetails"])[:500]
    return answer["result"].get("value")


def layout_faults(page: Page) -> list[str]:
    """Where something reaches out of the window at its width now, and how many h1 there are."""
    found: list[str] = page.evaluate(_ask("layout"))
    return found


def keyboard_faults(page: Page) -> list[str]:
    """Walks through the page with Tab: every stop is reached, seen, and under nothing."""
    count: int = page.evaluate(_ask("stops"))
    assert count <= STOPS_MAX, f"{count} stops are too many to walk in this state"
    wrong: list[str] = []
    reached: set[int] = set()
    lost = 0
    for _ in range(count + 12):  # scrolling regions are stops too, and the way round
        page.keyboard.press("Tab")
        stop = page.evaluate(_ask("stop"))
        if stop is None:
            lost += 1
            continue
        wrong += stop["wrong"]
        reached.add(stop["at"])
        if len(reached - {-1}) == count:
            break
    if lost > 1:
        wrong.append(f"the focus was nowhere {lost} times")
    missing = sorted(set(range(count)) - reached)
    names = page.evaluate("(all) => all.map((at) => window.__name(window.__stops[at]))", missing)
    return wrong + [f"Tab does not reach {name}" for name in names]
