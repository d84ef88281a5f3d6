"""Where the keyboard's focus is after each action, and what a screen reader is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.test_manners import PHONE
from tests.browser.test_tree import say
from tests.stack import Stack, directive

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage

# Notes every action after which the focus was nowhere for longer than two frames.
_WATCH_FOCUS = """() => {
  window.__lost = [];
  window.__doing = "";
  let frames = 0;
  const look = () => {
    const nowhere = !document.activeElement || document.activeElement === document.body;
    frames = nowhere ? frames + 1 : 0;
    if (frames === 3) window.__lost.push(window.__doing);
    requestAnimationFrame(look);
  };
  look();
}"""

_HEAR = """() => {
  const region = document.getElementById("announcer");
  window.__heard = [];
  new MutationObserver(() => region.textContent && window.__heard.push(region.textContent))
    .observe(region, {childList: true, characterData: true, subtree: true});
}"""


class Focus:
    """Does things to a page as its person would, and notes which of them lost the focus."""

    def __init__(self, chat: ChatPage, *, touch: bool) -> None:
        self.chat = chat
        self.page = chat.page
        self.touch = touch
        # Where a person is before the first action.
        self.page.locator("#message").focus()
        self.page.evaluate(_WATCH_FOCUS)

    def press(self, target: Locator) -> None:
        """By thumb on a phone, by Enter elsewhere."""
        what = target.first.text_content() or ""
        self.page.evaluate("(what) => { window.__doing = what }", " ".join(what.split()))
        if self.touch:
            target.first.tap()
        else:
            target.first.focus()
            self.page.keyboard.press("Enter")
        self.settle()

    def settle(self) -> None:
        """Long enough for the watch to see where the focus is now."""
        self.page.evaluate(
            """async () => {
              const frame = () => new Promise((done) => requestAnimationFrame(done));
              for (let count = 0; count < 5; count += 1) await frame();
            }"""
        )

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def under(self, message: Locator, name: str) -> None:
        self.press(message.get_by_role("button", name=name, exact=True))

    @property
    def lost(self) -> list[str]:
        self.settle()
        found: list[str] = self.page.evaluate("window.__lost")
        return found


@pytest.mark.parametrize("touch", [False, True], ids=["keyboard", "phone"])
@pytest.mark.parametrize("calm", ["no-preference", "reduce"])
def test_no_action_leaves_the_focus_nowhere(
    stack: Stack, new_page: NewPage, touch: bool, calm: str
) -> None:
    chat = new_page(reduced_motion=calm, **(PHONE if touch else {})).open()
    page = chat.page
    focus = Focus(chat, touch=touch)
    focus.press(focus.button("Explain how a rainbow forms, for a ten-year-old"))
    page.fill("#message", say("first answer"))
    focus.press(focus.button("Send"))
    chat.expect_reply("first answer")
    chat.expect_end()

    focus.under(chat.last_question, "Edit your message")
    focus.press(focus.button("Cancel"))
    focus.under(chat.last_question, "Edit your message")
    page.get_by_label("Edit your message").fill(say("second answer"))
    focus.press(page.locator(".edit").get_by_role("button", name="Send"))
    chat.expect_reply("second answer")
    chat.expect_end()
    focus.under(chat.last_question, "Previous version")
    chat.expect_reply("first answer")
    focus.under(chat.last_reply, "Regenerate")
    chat.expect_version(chat.last_reply, "2/2")
    chat.expect_end()
    focus.under(chat.last_reply, "Previous version")
    chat.expect_version(chat.last_reply, "1/2")

    focus.under(chat.last_reply, "Bad answer")
    focus.press(page.locator(".feedback").get_by_role("button", name="Close"))
    focus.under(chat.last_reply, "Bad answer")  # takes it back
    focus.under(chat.last_reply, "Good answer")
    focus.press(page.locator(".feedback").get_by_role("button", name="Send"))
    expect(page.locator(".feedback")).to_have_count(0)
    assert focus.lost == []


@pytest.mark.parametrize("touch", [False, True], ids=["keyboard", "phone"])
def test_stop_continue_rename_delete_and_undo_keep_the_focus(
    stack: Stack, new_page: NewPage, touch: bool
) -> None:
    hold = stack.hold("focus")
    chat = new_page(**(PHONE if touch else {})).open()
    page = chat.page
    focus = Focus(chat, touch=touch)
    page.fill("#message", directive(tokens=30, hold="focus", hold_after=10))
    focus.press(focus.button("Send"))
    chat.expect_reply("w10")
    focus.press(focus.button("Stop the answer"))
    chat.expect_strip("Stopped. What was written is kept")
    hold.unlink()
    focus.press(page.locator("#strip").get_by_role("button", name="Continue"))
    chat.expect_reply("w30")
    chat.expect_end()

    more = focus.button("More about this conversation")
    title = page.get_by_role("textbox", name="Title")
    focus.press(more)
    focus.press(page.get_by_role("menuitem", name="Rename"))
    expect(title).to_be_focused()
    page.keyboard.press("Escape")
    focus.press(more)
    focus.press(page.get_by_role("menuitem", name="Rename"))
    title.fill("By any means")
    focus.press(focus.button("Save the title"))
    expect(page.locator("#title")).to_have_text("By any means")
    focus.press(more)
    focus.press(page.get_by_role("menuitem", name="Delete"))
    focus.press(focus.button("Undo"))
    chat.expect_reply("w30")
    focus.press(more)
    focus.press(page.get_by_role("menuitem", name="Delete"))
    focus.press(focus.button("Dismiss"))
    expect(page.locator("#undo")).to_be_hidden()
    assert focus.lost == []


@pytest.mark.parametrize("touch", [False, True], ids=["keyboard", "phone"])
def test_going_about_keeps_the_focus(stack: Stack, new_page: NewPage, touch: bool) -> None:
    chat = new_page(**(PHONE if touch else {})).open()
    page = chat.page
    chat.send(directive(pieces=[f"Paragraph {number}.\n\n" for number in range(60)]))
    chat.expect_end()
    conversation = chat.conversation
    focus = Focus(chat, touch=touch)
    page.locator("#scroller").evaluate("one => { one.scrollTop = 0 }")
    focus.press(focus.button("Go to the end"))
    expect(page.locator("#jump")).to_be_hidden()

    def in_list(target: Locator) -> None:
        if touch:
            focus.press(focus.button("Show your conversations"))
        focus.press(target)

    in_list(page.get_by_role("link", name="New chat"))
    expect(page.locator("#empty")).to_be_visible()
    in_list(page.locator(f'[data-conversation="{conversation}"]'))
    chat.expect_reply("Paragraph 59.")
    if touch:
        focus.press(focus.button("Show your conversations"))
        focus.press(focus.button("Close the list"))
        focus.press(focus.button("Show your conversations"))
        page.touchscreen.tap(380, 700)  # beside the sheet
        expect(page.locator("#sidebar")).to_be_hidden()
    assert focus.lost == []


def test_each_thing_is_said_once_and_two_hundred_words_are_not(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    chat.page.evaluate(_HEAR)

    def hear(*wanted: str) -> None:
        chat.wait_until(f"window.__heard.length >= {len(wanted)}")
        # Past the announcer's own pause: what is said too much would be there by now.
        chat.page.evaluate("new Promise((done) => setTimeout(done, 200))")
        heard = chat.page.evaluate("window.__heard.splice(0)")
        assert heard == list(wanted)

    chat.send(directive(tokens=200, tokens_per_s=200))
    chat.expect_end()
    hear("Hearth is answering.", "Answer finished.")
    hold = stack.hold("said")
    chat.send(directive(tokens=50, hold="said", hold_after=5))
    chat.expect_reply("w5")
    hear("Hearth is answering.")
    chat.stop()
    chat.expect_end()
    hold.unlink()
    hear("Stopped. What was written is kept")
    chat.page.context.set_offline(True)
    hear("You are offline. Nothing is lost.")
    chat.page.context.set_offline(False)
    chat.send("x" * 200_000)
    chat.expect_strip("kept below")
    said = chat.page.locator("#strip").inner_text().strip()
    hear(said)
    chat.page.fill("#message", "")
    chat.send(directive(reject=True))
    chat.expect_end()
    chat.wait_until("window.__heard.length >= 1")
    chat.page.evaluate("new Promise((done) => setTimeout(done, 200))")
    heard = chat.page.evaluate("window.__heard.splice(0)")
    assert len(heard) == len(set(heard)) <= 2, heard
    assert heard[-1] == chat.page.locator("#strip .strip-text").inner_text()
