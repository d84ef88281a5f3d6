"""What the page costs whoever uses it: bytes, time to paint and to the first word, a busy thread.

A real Chromium (Debian's, by Playwright) opens the product as production runs it: static files
collected and compressed, one web process, one GPU worker with the simulated engine, PostgreSQL,
Valkey. Each cold load is in a browser context of its own, with an empty cache. Tasks of the page's
main thread are read from Chromium's own trace: how long each lasted, which on a busy machine is
longer than it need be, and the CPU time that it used.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.support.cli import Bench, Target
from bench.support.numbers import percentile
from bench.support.people import make_people
from bench.support.services import Services

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

POOL: Final = "sim"
SLOTS: Final = 4
RATE: Final = 100
"""Tokens a second of the engine; a token of code is a whole line."""
LINES: Final = 3_000
QUICK_LINES: Final = 600
TOKENS: Final = 1_000
QUICK_TOKENS: Final = 400
ROUNDS: Final = 7
QUICK_ROUNDS: Final = 3
MESSAGES: Final = 500
PATIENCE_S: Final = 120.0
POLL_MS: Final = 50
CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS: Final = (
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--js-flags=--expose-gc",
)
TASK: Final = "ThreadControllerImpl::RunTask"
TARGETS: Final = {"js_kib": Target(120), "longest_task_ms": Target(50)}
ROWS: Final = (
    ("js_kib", "JavaScript before the first answer, as it goes over the wire"),
    ("page_kib", "all that is loaded before it"),
    ("first_paint_ms", "from the address to the first words on the screen, nothing cached"),
    ("first_token_ms", "from Enter to the first word of the answer; the engine itself takes none"),
    ("main_ms_per_1000_tokens", "busy main thread while 1,000 tokens of prose stream"),
    ("longest_task_ms", "of the main thread while code streams at 100 lines a second"),
    ("longest_task_cpu_ms", "the most CPU time of one of them"),
    ("code_lines", "so many lines"),
    ("open_500_ms", "from the address to the end of a 500-message conversation"),
    ("open_longest_task_ms", "of the main thread meanwhile"),
    ("open_longest_task_cpu_ms", ""),
    ("all_500_s", "to scroll up through all of it"),
    ("heap_mib", "JavaScript heap then"),
    ("nodes", "of the document then"),
)

# What the page notes of itself, from before its first script on.
_WATCH: Final = """
window.__seen = {};
new MutationObserver(() => {
  const thread = document.getElementById("thread");
  if (thread?.lastElementChild && !__seen.thread) {
    __seen.thread = -1;
    const painted = () => { __seen.thread = performance.now(); };
    requestAnimationFrame(() => requestAnimationFrame(painted));
  }
  const prose = __seen.entered && thread?.lastElementChild?.querySelector(".prose");
  if (prose?.textContent && !__seen.word) __seen.word = performance.now();
}).observe(document, {childList: true, subtree: true, characterData: true});
addEventListener("keydown", (event) => {
  if (event.key === "Enter") Object.assign(__seen, {entered: performance.now(), word: 0});
}, true);
"""
_LOADED: Final = """
() => performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
  .map((entry) => [entry.name, entry.encodedBodySize])
"""
_PAINTED: Final = """
() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0
"""
_UP: Final = """
() => new Promise((done) => {
  document.getElementById("scroller").scrollBy({top: -1500, behavior: "instant"});
  requestAnimationFrame(() => setTimeout(done));
})
"""


def main(arguments: Sequence[str] | None = None) -> int:
    bench = Bench.of_command_line(
        "page",
        "The web UI in a real browser, against a simulated engine.",
        [
            ("--lines", 0, "lines of code that stream; 0: 3,000, quick 600"),
            ("--messages", MESSAGES, "messages of the long conversation"),
        ],
        arguments,
    )
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        sys.exit("bench/page needs Chromium (apt-get install chromium, or CHROMIUM=<its path>)")
    lines = bench.options.lines or (QUICK_LINES if bench.quick else LINES)
    bench.say("starting PostgreSQL, Valkey")
    profiles = {POOL: _profile(lines)}
    with Services({"ENGINE_PROFILES": json.dumps(profiles), "WORKER_GRACE_S": "1"}) as services:
        services.set_up_django()
        bench.say("collecting and compressing static files")
        _collect_static()
        cookie, thread = _make_person(bench.options.messages)
        bench.say("starting a web process and a GPU worker")
        web, _ = services.start_web_and_worker(POOL, SLOTS)
        with _chromium(path) as browser:
            visit = Visit(browser, f"http://127.0.0.1:{web.port}", cookie)
            _measure(bench, visit, thread, lines)
    return bench.finish(ROWS, TARGETS)


def _profile(lines: int) -> dict[str, object]:
    """Whoever asks for nothing else gets a long program."""
    code = [f"    result_{at} = compute(result_{at - 1}, {at})  # {at}\n" for at in range(1, lines)]
    script = {"pieces": ["```python\n", *code, "```\n"], "tokens_per_s": RATE}
    return {
        "kind": "simulated",
        "slots": SLOTS,
        "context_tokens": 400_000,
        "options": {"directives": True, **script},
    }


def _collect_static() -> None:
    from django.core.management import call_command

    call_command("collectstatic", interactive=False, verbosity=0)


def _make_person(messages: int) -> tuple[str, str]:
    """Somebody's session cookie, and the conversation that they have."""
    from django.conf import settings
    from django.test import Client

    from accounts.models import User
    from bench.page_rows import make_long_thread

    make_people(1)
    user = User.objects.get(name="Bench")
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client.cookies[settings.SESSION_COOKIE_NAME].value, make_long_thread(user, messages)


@contextmanager
def _chromium(path: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *sandbox])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """Opens the page on a device of its own, as somebody who is signed in."""

    def __init__(self, browser: Browser, url: str, cookie: str) -> None:
        self.browser = browser
        self.url = url
        self._cookie = cookie

    @contextmanager
    def open(self, path: str = "/") -> Iterator[Page]:
        context = self._context()
        try:
            page = context.new_page()
            page.add_init_script(_WATCH)
            page.goto(self.url + path)
            yield page
        finally:
            context.close()

    def _context(self) -> BrowserContext:
        context = self.browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(PATIENCE_S * 1000)
        host = {"name": "sessionid", "value": self._cookie, "domain": "127.0.0.1", "path": "/"}
        context.add_cookies([host])  # type: ignore[list-item]  # a dictionary of the right keys
        return context

    @contextmanager
    def traced(self, found: list[Task]) -> Iterator[None]:
        """Adds the tasks of the page's main thread; no other page may be busy meanwhile."""
        self.browser.start_tracing(categories=["toplevel", "__metadata"])
        try:
            yield
        finally:
            found += main_thread_tasks(json.loads(self.browser.stop_tracing()))


class Task(NamedTuple):
    """One task of a page's main thread."""

    ms: float
    cpu_ms: float


def main_thread_tasks(trace: Mapping[str, Any]) -> list[Task]:
    """Those of the busiest renderer's main thread, from a trace of Chromium's."""
    events = trace["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and event["args"].get("name") == "CrRendererMain"
    }
    tasks: dict[tuple[int, int], list[Task]] = {place: [] for place in mains}
    for event in events:
        place = (event.get("pid"), event.get("tid"))
        if event.get("name") == TASK and event.get("ph") == "X" and place in tasks:
            tasks[place].append(Task(event["dur"] / 1000, event.get("tdur", 0) / 1000))
    return max(tasks.values(), key=lambda found: sum(task.ms for task in found), default=[])


def longest(tasks: Sequence[Task]) -> tuple[float, float]:
    """Of all tasks: the most milliseconds, and the most of CPU time."""
    return round(max(task.ms for task in tasks), 1), round(max(task.cpu_ms for task in tasks), 1)


def _measure(bench: Bench, visit: Visit, thread: str, lines: int) -> None:
    rounds = QUICK_ROUNDS if bench.quick else ROUNDS
    bench.say(f"opening it {rounds} times, nothing cached")
    _note_first_answers(bench, visit, rounds)
    bench.say("prose streams")
    _note_prose(bench, visit, QUICK_TOKENS if bench.quick else TOKENS)
    bench.say(f"{lines:,} lines of code stream")
    _note_code(bench, visit, lines)
    bench.say(f"opening a conversation of {bench.options.messages} messages")
    _note_long_thread(bench, visit, thread, rounds)


def _note_first_answers(bench: Bench, visit: Visit, rounds: int) -> None:
    painted, words, loaded = [], [], []
    for _ in range(rounds):
        with visit.open() as page:
            _wait(page, "document.querySelector('#model').textContent")
            _send(page, _directive(pieces=["First ", "words."]))
            _wait(page, "window.__seen.word > 0")
            painted.append(page.evaluate(_PAINTED))
            words.append(page.evaluate("__seen.word - __seen.entered"))
            loaded = page.evaluate(_LOADED)
            _wait_for_end(page)
    scripts = [size for name, size in loaded if name.endswith((".js", ".mjs"))]
    bench.figures |= {
        "js_kib": round(sum(scripts) / 1024, 1),
        "page_kib": round(sum(size for _, size in loaded) / 1024, 1),
        "first_paint_ms": round(percentile(painted, 50)),
        "first_token_ms": round(percentile(words, 50)),
    }


def _note_prose(bench: Bench, visit: Visit, tokens: int) -> None:
    with visit.open() as page:
        _wait(page, "document.querySelector('#model').textContent")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        before_s = _metrics(session)["TaskDuration"]
        sentence = [
            "The ",
            "**subject** ",
            "enters ",
            "in ",
            "`bar` ",
            "two",
            ", ",
            "again.",
            "\n\n",
        ]
        pieces = [sentence[at % len(sentence)] for at in range(tokens)]
        _send(page, _directive(pieces=pieces, tokens_per_s=RATE))
        _wait(page, "window.__seen.word > 0")
        _wait_for_end(page)
        busy_s = _metrics(session)["TaskDuration"] - before_s
    bench.figures["main_ms_per_1000_tokens"] = round(busy_s * 1000 * 1000 / tokens)


def _note_code(bench: Bench, visit: Visit, lines: int) -> None:
    tasks: list[Task] = []
    with visit.open() as page:
        _wait(page, "document.querySelector('#model').textContent")
        with visit.traced(tasks):
            _send(page, "Write a long program.")
            _wait(page, "window.__seen.word > 0")
            _wait_for_end(page)
        shown = page.locator(".reply code").text_content() or ""
    came = len(shown.splitlines())
    if came < lines - 1:
        sys.exit(f"only {came} of {lines} lines came")
    took_ms, used_ms = longest(tasks)
    bench.figures |= {
        "longest_task_ms": took_ms,
        "longest_task_cpu_ms": used_ms,
        "code_lines": lines,
    }


def _note_long_thread(bench: Bench, visit: Visit, thread: str, rounds: int) -> None:
    opened, tasks = [], list[Task]()
    for number in range(rounds):
        found: list[Task] = []
        with visit.traced(found), visit.open(f"/c/{thread}") as page:
            _wait(page, "window.__seen.thread > 0")
            opened.append(page.evaluate("__seen.thread"))
            if number == rounds - 1:
                _note_all_of_it(bench, page)
        # The last one goes on to the top; what is told is the opening.
        tasks += found if number < rounds - 1 else []
    took_ms, used_ms = longest(tasks)
    bench.figures |= {
        "open_500_ms": round(percentile(opened, 50)),
        "open_longest_task_ms": took_ms,
        "open_longest_task_cpu_ms": used_ms,
    }


def _note_all_of_it(bench: Bench, page: Page) -> None:
    began_s = time.monotonic()
    while page.locator("#thread > .message").count() < bench.options.messages:
        page.evaluate(_UP)
    while page.evaluate("document.getElementById('scroller').scrollTop > 0"):
        page.evaluate(_UP)
    bench.figures["all_500_s"] = round(time.monotonic() - began_s, 1)
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    found = _metrics(session)
    bench.figures |= {
        "heap_mib": round(found["JSHeapUsedSize"] / 2**20, 1),
        "nodes": round(found["Nodes"]),
    }


def _send(page: Page, text: str) -> None:
    page.fill("#message", text)
    page.keyboard.press("Enter")


def _directive(**script: object) -> str:
    return f"Go. [[sim {json.dumps(script)}]]"


def _wait_for_end(page: Page) -> None:
    _wait(page, "document.querySelector('.reply:last-child')?.ariaBusy === 'false'")


def _wait(page: Page, expression: str) -> None:
    """Until it is true in the page. (Playwright's own wait needs `unsafe-eval`.)"""
    until_s = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        if time.monotonic() > until_s:
            sys.exit(f"waited in vain for {expression}")
        page.wait_for_timeout(POLL_MS)


def _metrics(session: CDPSession) -> dict[str, float]:
    found = session.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in found}


if __name__ == "__main__":
    sys.exit(main())
