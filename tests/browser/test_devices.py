"""The same account on two devices: what one does, the other sees without a reload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.test_journeys import words
from tests.browser.test_tree import say
from tests.stack import Stack, directive

if TYPE_CHECKING:
    from tests.browser.conftest import NewPage


def test_messages_answers_and_names_of_another_device_are_seen_at_once(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("devices")
    here = new_page(web=0).open()
    here.send(say("hello"))
    here.expect_end()
    there = new_page(web=1).open(here.conversation)
    there.expect_reply("hello")

    here.send(directive(tokens=30, hold="devices", hold_after=5))
    there.expect_reply("w5")
    expect(there.last_reply).to_have_attribute("aria-busy", "true")
    hold.unlink()
    for device in (here, there):
        device.expect_end()
        assert device.reply() == words(30)
    assert len(there.messages()) == 4

    here.choose("Rename")
    here.page.keyboard.type("Named over there")
    here.page.keyboard.press("Enter")
    expect(there.page.locator("#title")).to_have_text("Named over there")
    expect(there.page.locator("[aria-current=page]")).to_have_text("Named over there")
    here.last_reply.get_by_role("button", name="Good answer").click()
    good = there.last_reply.get_by_role("button", name="Good answer")
    expect(good).to_have_attribute("aria-pressed", "true")


def test_another_version_elsewhere_is_told_and_what_is_read_stays(
    stack: Stack, new_page: NewPage
) -> None:
    here = new_page(web=0).open()
    here.send(say("first"))
    here.expect_end()
    there = new_page(web=1).open(here.conversation)
    there.expect_reply("first")
    here.edit(here.last_question, say("second"))
    here.expect_reply("second")
    there.expect_strip("went on in another version on another device")
    there.expect_version(there.last_question, "1/2")
    there.expect_reply("first")
    there.page.get_by_role("button", name="Show it").click()
    there.expect_reply("second")
    there.expect_version(there.last_question, "2/2")
    # A choice of the other device comes the same way back.
    there.last_question.get_by_role("button", name="Previous version").click()
    there.expect_reply("first")
    here.expect_strip("went on in another version on another device")
    here.expect_reply("second")


def test_a_stop_and_a_delete_reach_the_other_device_and_undo_brings_it_back(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("far-stop")
    here = new_page(web=0).open()
    here.send(directive(tokens=30, hold="far-stop", hold_after=5))
    here.expect_reply("w5")
    there = new_page(web=1).open(here.conversation)
    there.expect_reply("w5")
    there.stop()
    here.expect_strip("Stopped. What was written is kept")
    here.expect_end()
    hold.unlink()
    conversation = here.conversation

    here.choose("Delete")
    gone = there.page.get_by_role("heading", name="This conversation is not here")
    expect(gone).to_be_visible()
    listed = there.page.locator(f'[data-conversation="{conversation}"]')
    expect(listed).to_have_count(0)
    here.page.get_by_role("button", name="Undo", exact=True).click()
    there.expect_reply("w5")
    expect(listed).to_have_count(1)
    here.expect_reply("w5")


def test_without_a_socket_the_page_works_and_looks_when_it_is_seen_again(
    stack: Stack, new_page: NewPage
) -> None:
    here = new_page().open()
    here.send(say("first"))
    here.expect_end()
    there = new_page()
    there.page.route_web_socket("**/v1/ws", lambda socket: socket.close())
    there.open(here.conversation)
    there.expect_reply("first")
    here.send(say("second"))
    here.expect_end()
    there.expect_reply("first")
    there.page.evaluate("window.dispatchEvent(new Event('focus'))")
    there.expect_reply("second")
    there.send(say("from the second device"))
    there.expect_reply("from the second device")
    here.expect_reply("from the second device")
