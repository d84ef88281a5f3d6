"""Journeys by keyboard alone, without a line and on a slow one, on desktop and phone sizes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Route, expect

from tests.browser.test_journeys import words
from tests.browser.test_manners import PHONE
from tests.browser.test_tree import say
from tests.stack import PASSWORD, Stack, directive

if TYPE_CHECKING:
    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage

SIZES = pytest.mark.parametrize("device", [{}, PHONE], ids=["desktop", "phone"])
SLOW_3G = {
    "offline": False,
    "latency": 300,
    "downloadThroughput": 50_000,
    "uploadThroughput": 50_000,
}
NO_LINE = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
FREE_LINE = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
TABS_MAX = 150
SCRIPTS = re.compile(r"\.m?js$")

# The name by which a person knows what has the focus.
_FOCUSED = """() => {
  const one = document.activeElement;
  const label = one.labels?.[0]?.textContent ?? "";
  return (one.getAttribute("aria-label") || label || one.textContent).replace(/\\s+/g, " ").trim();
}"""


class Keyboard:
    """A person who has nothing but keys."""

    def __init__(self, chat: ChatPage) -> None:
        self.page = chat.page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.insert_text(text)

    def go_to(self, name: str, *, back: bool = False) -> None:
        """Tab until what is called `name` has the focus."""
        seen = []
        for _ in range(TABS_MAX):
            focused = self.page.evaluate(_FOCUSED)
            if focused == name:
                return
            seen.append(focused[:30])
            self.press("Shift+Tab" if back else "Tab")
        raise AssertionError(f"no way to {name!r} by Tab: {seen}")

    def choose(self, name: str, *, back: bool = False) -> None:
        self.go_to(name, back=back)
        self.press("Enter")


@SIZES
def test_a_whole_conversation_by_keyboard_alone(
    stack: Stack, new_page: NewPage, device: dict[str, Any]
) -> None:
    hold = stack.hold("keys")
    chat = new_page(person=None, **device)
    page, keys = chat.page, Keyboard(chat)
    page.goto(chat.url)
    keys.go_to("E-mail address")
    keys.type(stack.people["ada"].email)
    keys.press("Tab")
    keys.type(PASSWORD)
    keys.press("Enter")
    expect(page.locator("#model")).not_to_be_empty()

    keys.go_to("Message")
    keys.type(say("first answer"))
    keys.press("Enter")
    chat.expect_reply("first answer")
    chat.expect_end()
    keys.type(directive(tokens=40, hold="keys", hold_after=10))
    keys.press("Enter")
    chat.expect_reply("w10")
    keys.choose("Stop the answer")
    chat.expect_strip("Stopped. What was written is kept")
    chat.expect_end()
    hold.unlink()
    assert chat.reply() == words(10)

    keys.choose("Edit your message", back=True)
    keys.press("Control+a")
    keys.type(say("another answer"))
    keys.press("Enter")
    chat.expect_reply("another answer")
    chat.expect_end()
    keys.choose("Previous version", back=True)
    chat.expect_reply("w10")
    keys.press("ArrowRight")
    chat.expect_reply("another answer")

    keys.choose("More about this conversation", back=True)
    keys.press("Enter")  # Rename is the first
    keys.press("Control+a")
    keys.type("Named by keys")
    keys.press("Enter")
    expect(page.locator("#title")).to_have_text("Named by keys")
    keys.choose("More about this conversation")
    keys.press("ArrowDown", "Enter")
    expect(page.get_by_role("button", name="Undo", exact=True)).to_be_focused()
    keys.press("Enter")
    chat.expect_reply("another answer")
    expect(page.locator("#title")).to_have_text("Named by keys")

    if device:
        keys.choose("Show your conversations", back=True)
        expect(page.get_by_role("button", name="Close the list")).to_be_focused()
    keys.choose("Sign out", back=not device)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@SIZES
def test_the_line_goes_in_mid_answer_and_comes_back(
    stack: Stack, new_page: NewPage, device: dict[str, Any]
) -> None:
    hold = stack.hold("line")
    chat = new_page(**device).open()
    network = chat.page.context.new_cdp_session(chat.page)
    chat.send(directive(tokens=60, hold="line", hold_after=15))
    chat.expect_reply("w15")
    network.send("Network.emulateNetworkConditions", NO_LINE)
    chat.expect_strip("You are offline. Nothing is lost")
    chat.page.fill("#message", "thought of meanwhile")
    hold.unlink()
    assert chat.reply() == words(15)
    network.send("Network.emulateNetworkConditions", FREE_LINE)
    chat.expect_end()
    assert chat.reply() == words(60)
    expect(chat.page.locator("#message")).to_have_value("thought of meanwhile")
    chat.page.reload()
    chat.expect_reply("w60")
    assert chat.reply() == words(60)


@SIZES
def test_on_a_slow_line_the_shell_comes_first_and_the_answer_comes(
    stack: Stack, new_page: NewPage, device: dict[str, Any]
) -> None:
    chat = new_page(**device)
    page = chat.page
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.send("Network.emulateNetworkConditions", SLOW_3G)
    held: list[Route] = []
    let_go = False
    page.route(SCRIPTS, lambda route: route.continue_() if let_go else held.append(route))
    page.goto(chat.url, wait_until="commit")
    # Painted and usable, though no script has come yet.
    chat.wait_until("performance.getEntriesByName('first-contentful-paint').length > 0")
    expect(page.locator("#message")).to_be_visible()
    expect(page.locator("#action")).to_be_visible()
    assert held, "scripts were asked for"
    page.fill("#message", say("slow and sure"))
    let_go = True
    for route in held:
        route.continue_()
    expect(page.locator("#model")).not_to_be_empty()
    expect(page.locator("#message")).to_have_value(say("slow and sure"))
    page.locator("#action").click()
    chat.expect_reply("slow and sure")
    chat.expect_end()


def test_a_desktop_and_a_phone_ask_at_once(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("both")
    desktop, phone = new_page(web=0).open(), new_page(web=1, **PHONE).open()
    for number, device in enumerate((desktop, phone), 1):
        tokens = 20 * number
        device.send(directive(tokens=tokens, hold="both", hold_after=number))
    desktop.expect_reply("w1")
    phone.expect_reply("w2")
    conversations = [desktop.conversation, phone.conversation]
    hold.unlink()
    for number, device in enumerate((desktop, phone), 1):
        device.expect_end()
        assert device.reply() == words(20 * number)
        for conversation in conversations:
            expect(device.page.locator(f'[data-item="{conversation}"]')).to_have_count(1)
