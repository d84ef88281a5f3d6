"""What stands under an answer: how it was made, on demand, and buttons that a thumb can hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Route, expect

from tests.browser.test_manners import PHONE
from tests.stack import Stack, directive

if TYPE_CHECKING:
    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage

SMALL = {**PHONE, "viewport": {"width": 320, "height": 640}}


def with_answer(chat: ChatPage) -> ChatPage:
    chat.open()
    chat.send(f"Details {directive(tokens=20, tokens_per_s=200)}")
    chat.expect_end()
    return chat


def test_details_open_and_close_by_keyboard(new_page: NewPage) -> None:
    chat = with_answer(new_page())
    page = chat.page
    button = chat.last_reply.get_by_role("button", name="Details:")
    expect(button).to_have_attribute("aria-expanded", "false")
    button.focus()
    page.keyboard.press("Enter")
    details = chat.last_reply.get_by_role("group", name="Details of this answer")
    expect(details).to_be_visible()
    expect(details).to_contain_text("Tokens written20")
    expect(details).to_contain_text("Finished after")
    expect(details).to_contain_text("First words after")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(button).to_be_focused()
    chat.last_reply.get_by_role("button", name="Good answer").click()  # the foot is filled anew
    expect(button).to_have_attribute("aria-expanded", "true")
    button.focus()
    page.keyboard.press("Space")
    expect(details).to_have_count(0)
    expect(button).to_be_focused()
    expect(button).to_have_attribute("aria-expanded", "false")

    # The same after a reload, and Escape closes it.
    page.reload()
    button.click()
    expect(details).to_contain_text("Finished after")
    page.keyboard.press("Escape")
    expect(details).to_have_count(0)
    expect(button).to_be_focused()


def test_escape_in_details_closes_them_and_nothing_else(stack: Stack, new_page: NewPage) -> None:
    chat = with_answer(new_page())
    page = chat.page
    hold = stack.hold("details")
    chat.send(f"Another {directive(tokens=20, hold='details', hold_after=5)}")
    chat.expect_reply("w5")
    earlier = page.locator("#thread > .reply").first
    button = earlier.get_by_role("button", name="Details:")
    for inside in (False, True):
        button.focus()
        page.keyboard.press("Enter")
        details = earlier.get_by_role("group", name="Details of this answer")
        expect(details).to_contain_text("Finished after")
        if inside:
            details.focus()
        page.keyboard.press("Escape")
        expect(details).to_have_count(0)
        expect(button).to_be_focused()
    expect(page.locator("#action")).to_have_attribute("data-mode", "stop")
    expect(page.locator("#action")).to_have_attribute("aria-disabled", "false")
    # Nothing is open any more: now it is the answer's.
    page.keyboard.press("Escape")
    chat.expect_strip("Stopped. What was written is kept")
    hold.unlink()
    chat.expect_end()


def test_details_that_cannot_be_read_say_so_and_can_be_asked_for_again(new_page: NewPage) -> None:
    chat = with_answer(new_page())
    page = chat.page
    cut = True

    def answer(route: Route) -> None:
        if cut:
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/runs/g_*", answer)
    chat.last_reply.get_by_role("button", name="Details:").click()
    details = chat.last_reply.get_by_role("group", name="Details of this answer")
    expect(details).to_contain_text("The times could not be read just now.")
    expect(details).to_contain_text("Tokens written")  # what the page knows by itself
    cut = False
    details.get_by_role("button", name="Try again").focus()
    page.keyboard.press("Enter")
    expect(details).to_contain_text("Finished after")
    expect(details.get_by_role("button", name="Try again")).to_have_count(0)
    expect(details).to_be_focused()


@pytest.mark.parametrize("device", [PHONE, SMALL], ids=["390", "320"])
def test_on_a_phone_every_button_under_a_message_is_there_and_broad_enough(
    stack: Stack, new_page: NewPage, device: dict[str, object]
) -> None:
    with stack.second_model("A second model with quite a long name"):
        chat = with_answer(new_page(**device))
        chat.regenerate()
        chat.expect_version(chat.last_reply, "2/2")
        chat.expect_end()
        chat.last_reply.get_by_role("button", name="Details:").click()
        expect(chat.last_reply.get_by_role("group", name="Details")).to_contain_text("Finished")
        # The one that leads nowhere is pale, and says so.
        assert chat.page.locator(".message-foot [aria-disabled=true]").count() == 1
        boxes = chat.page.locator(".message-foot button:not([aria-disabled])").evaluate_all(
            """all => all.map((one) => {
              const {width, height, left, right} = one.getBoundingClientRect();
              return [one.innerText, Math.round(width), Math.round(height),
                Math.round(left), Math.round(right), getComputedStyle(one).opacity];
            })"""
        )
        width = chat.page.viewport_size["width"] if chat.page.viewport_size else 0
        assert len(boxes) >= 8
        for label, wide, high, left, right, opacity in boxes:
            assert wide >= 44, label
            assert high >= 44, label
            assert left >= 0, label
            assert right <= width, label
            assert opacity == "1", label
        assert chat.page.evaluate("document.documentElement.scrollWidth") == width
