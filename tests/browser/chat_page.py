"""The chat page as a person sees it: what tests do to it and read from it."""

from __future__ import annotations

import re
import time
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, expect

# Answers that a test provokes, and a socket whose server is away; the browser writes each into its
# console. (A socket that the server refuses is a fault.)
_EXPECTED_CONSOLE = re.compile(
    r"Failed to load resource"
    r"|^WebSocket connection to 'ws://127\.0\.0\.1:(?!.*Unexpected response code)"
)

_WATCH = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


class ChatPage:
    """One device. `faults` collects what must never happen on any page."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self._faults: list[str] = []
        page.add_init_script(_WATCH)
        page.on("pageerror", lambda error: self._faults.append(f"script error: {error}"))
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("dialog", lambda dialog: self._faults.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._check_host(request.url))

    def _hear(self, kind: str, text: str) -> None:
        if kind == "error" and not _EXPECTED_CONSOLE.search(text):
            self._faults.append(f"console: {text}")

    def _check_host(self, url: str) -> None:
        host = urlsplit(url).hostname
        if host != "127.0.0.1" and not url.startswith("chrome-error:"):
            self._faults.append(f"asked a foreign host: {url[:200]}")

    @property
    def faults(self) -> list[str]:
        return self._faults

    @property
    def violations(self) -> list[str]:
        found: list[str] = self.page.evaluate("window.__violations")
        return found

    def wait_until(self, expression: str) -> None:
        """Until `expression` is true in the page. (Playwright's own wait needs `unsafe-eval`.)"""
        until_s = time.monotonic() + 30
        while not self.page.evaluate(expression):
            assert time.monotonic() < until_s, f"never became true: {expression}"
            self.page.wait_for_timeout(50)

    def open(self, conversation: str = "") -> ChatPage:
        self.page.goto(self.url + (f"/c/{conversation}" if conversation else "/"))
        expect(self.page.locator("#model")).not_to_be_empty()
        return self

    def send(self, text: str) -> None:
        self.page.fill("#message", text)
        self.page.keyboard.press("Enter")

    def stop(self) -> None:
        expect(self.page.locator("#action")).to_have_attribute("data-mode", "stop")
        self.page.click("#action")

    @property
    def conversation(self) -> str:
        """The id in the address, once the conversation has one."""
        self.page.wait_for_url("**/c/*")
        return urlsplit(self.page.url).path.removeprefix("/c/")

    def expect_reply(self, text: str) -> None:
        """The last reply shows `text` and is not ended yet, or is."""
        expect(self.page.locator(".reply:last-child .prose")).to_contain_text(text)

    def expect_end(self, patience_ms: float | None = None) -> None:
        reply = self.page.locator(".reply:last-child")
        expect(reply).to_have_attribute("aria-busy", "false", timeout=patience_ms)

    def reply(self) -> str:
        """The last reply's text as it is shown."""
        return self.page.locator(".reply:last-child .prose").inner_text()

    def expect_strip(self, text: str) -> None:
        expect(self.page.locator("#strip")).to_contain_text(text)

    @property
    def last_reply(self) -> Locator:
        return self.page.locator("#thread > .reply").last

    @property
    def last_question(self) -> Locator:
        return self.page.locator("#thread > .user").last

    def expect_version(self, message: Locator, place: str) -> None:
        """`place` as it is shown: "2/3"."""
        expect(message.locator(".place")).to_have_text(place)

    def edit(self, message: Locator, text: str) -> None:
        """Put `text` in place of what the message says, and send it."""
        message.hover()
        message.get_by_role("button", name="Edit your message").click()
        self.page.get_by_label("Edit your message").fill(text)
        self.page.keyboard.press("Enter")

    def regenerate(self) -> None:
        self.last_reply.get_by_role("button", name="Regenerate", exact=True).click()

    def choose(self, action: str) -> None:
        """Rename or delete the open conversation, from the menu above it."""
        self.page.get_by_role("button", name="More about this conversation").click()
        self.page.get_by_role("menuitem", name=action).click()

    def choose_model(self, title: str) -> None:
        """The model for new messages."""
        self.page.get_by_role("button", name="Model for new messages").click()
        self.page.get_by_role("menuitemradio", name=title).click()

    def messages(self) -> list[str]:
        texts: list[str] = self.page.locator("#thread > .message").evaluate_all(
            """all => all.map(one => one.querySelector('.user-text, .prose'))
              // What is far from the reader is not laid out, and has no innerText.
              .map(one => one.innerText || one.textContent.trim())"""
        )
        return texts
