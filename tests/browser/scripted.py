"""A run whose token log is a script: events that no engine makes when asked."""

from __future__ import annotations

import json
from typing import Any, Final

from playwright.sync_api import Page

RUN: Final = "g_" + "5" * 32
CONVERSATION: Final = "c_" + "5" * 32

# The page's `fetch`, but for the streams of runs: those are fed by the test, and stay open until it
# ends them. The server knows nothing of the conversation, so a look at it fails.
_FETCH = """
(() => {
  const real = window.fetch;
  const open = new Set();
  const encoder = new TextEncoder();
  const isRun = (url, method) =>
    url.endsWith("/stream") || (method === "POST" && /\\/messages(\\/|$)/.test(url));
  window.__log = {
    scripted: true, reachable: true, asked: [],
    feed: (text) => open.forEach((one) => one.enqueue(encoder.encode(text))),
    cut: () => { open.forEach((one) => one.error(new TypeError("cut"))); open.clear(); },
    close: () => { open.forEach((one) => one.close()); open.clear(); },
  };
  window.fetch = async (url, options = {}) => {
    const log = window.__log;
    if (url.endsWith(":stop") && log.scripted) return Response.json({}, { status: 202 });
    if (/conversations\\/c_5{32}/.test(url)) return Response.json({}, { status: 503 });
    if (!log.scripted || !isRun(url, options.method)) return real(url, options);
    log.asked.push([url, options.headers["Last-Event-ID"] ?? null]);
    if (!log.reachable) throw new TypeError("no line");
    const body = new ReadableStream({ start: (controller) => void open.add(controller) });
    options.signal?.addEventListener("abort", () => log.cut());
    return new Response(body, { status: 200, headers: { "Content-Type": "text/event-stream" } });
  };
})();
"""


class ScriptedLog:
    """Feeds events into the open page. Make it before the page is opened."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.seq = 0
        page.add_init_script(_FETCH)

    def event(self, name: str, *, numbered: bool = True, **data: object) -> None:
        """One event; `numbered` as those of the log are, not as a place in the queue is."""
        self.seq += numbered
        number = f"id: {RUN}:{self.seq}\n" if numbered else ""
        frame = f"{number}event: {name}\ndata: {json.dumps(data)}\n\n"
        self.page.evaluate("text => window.__log.feed(text)", frame)

    def start(self) -> None:
        """The send is taken."""
        self.page.evaluate("() => { window.__log.asked.length = 0 }")
        self.seq = 0
        ids: dict[str, Any] = {"user_msg": "m_" + "6" * 32, "reply_msg": "m_" + "7" * 32}
        self.event("start", run=RUN, conversation=CONVERSATION, model="sim", **ids)

    def notice(self, code: str, **data: object) -> None:
        self.event("notice", numbered=code != "queued", code=code, text="", **data)

    def done(self, finish: str) -> None:
        usage = {"prompt_tokens": 1, "cached_tokens": 0, "output_tokens": 1}
        self.event("done", finish=finish, usage=usage, active_leaf="m_" + "7" * 32)

    def reach(self, *, reachable: bool) -> None:
        """Whether the server answers when it is asked for the stream."""
        self.page.evaluate("yes => { window.__log.reachable = yes }", reachable)

    def cut(self) -> None:
        """The connection breaks."""
        self.page.evaluate("() => window.__log.cut()")

    @property
    def asked(self) -> list[list[str | None]]:
        """Each request for the stream since `start`: its address and its cursor."""
        found: list[list[str | None]] = self.page.evaluate("window.__log.asked")
        return found
