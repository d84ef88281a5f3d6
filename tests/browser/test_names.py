"""Rename, delete, and bring back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
from playwright.sync_api import expect

from tests.browser.test_manners import PHONE
from tests.browser.test_tree import say
from tests.phone import PATIENT
from tests.stack import Stack

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage


def listed(chat: ChatPage, conversation: str) -> Locator:
    return chat.page.locator(f'[data-item="{conversation}"]')


def choose_listed(chat: ChatPage, conversation: str, action: str) -> None:
    row = listed(chat, conversation)
    row.hover()
    row.get_by_role("button").click()
    chat.page.get_by_role("menuitem", name=action).click()


def test_renamed_above_the_thread_and_in_the_list(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    page = chat.page
    chat.send(say("named"))
    chat.expect_end()
    conversation = chat.conversation
    chat.choose("Rename")
    field = page.get_by_role("textbox", name="Title")
    expect(field).to_be_focused()
    field.fill("First name")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("First name")
    expect(listed(chat, conversation)).to_contain_text("First name")
    expect(page).to_have_title("First name · Hearth")
    expect(page.get_by_role("button", name="More about this conversation")).to_be_focused()

    choose_listed(chat, conversation, "Rename")
    field.fill("Never saved")
    page.keyboard.press("Escape")
    expect(listed(chat, conversation).get_by_role("button")).to_be_focused()
    expect(listed(chat, conversation)).to_contain_text("First name")

    choose_listed(chat, conversation, "Rename")
    page.context.set_offline(True)
    field.fill("Second name")
    page.keyboard.press("Enter")
    expect(page.locator(".form-problem")).to_contain_text("could not be saved. It is still here")
    expect(field).to_have_value("Second name")
    page.context.set_offline(False)
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Second name")
    page.reload()
    expect(page.locator("#title")).to_have_text("Second name")


def test_a_list_that_changes_under_an_open_menu_takes_no_focus_away(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    chat.send(say("renamed elsewhere"))
    chat.expect_end()
    conversation = chat.conversation
    row = listed(chat, conversation)
    row.get_by_role("button").focus()
    chat.page.keyboard.press("Enter")
    expect(chat.page.get_by_role("menuitem", name="Rename")).to_be_focused()
    httpx.patch(
        f"{stack.webs[-1].url}/v1/conversations/{conversation}",
        json={"title": "From elsewhere"},
        headers=stack.people["ada"].headers,
        **PATIENT,
    ).raise_for_status()
    expect(chat.page.locator("#title")).to_have_text("From elsewhere")
    expect(chat.page.get_by_role("menuitem", name="Rename")).to_be_focused()
    chat.page.keyboard.press("Escape")
    assert chat.page.evaluate("document.activeElement !== document.body")
    row.get_by_role("link").focus()
    httpx.patch(
        f"{stack.webs[-1].url}/v1/conversations/{conversation}",
        json={"title": "Once more"},
        headers=stack.people["ada"].headers,
        **PATIENT,
    ).raise_for_status()
    expect(row.get_by_role("link")).to_have_text("Once more")
    expect(row.get_by_role("link")).to_be_focused()


def test_deleted_with_undo_and_the_focus_is_never_lost(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    page = chat.page
    chat.send(say("kept for undo"))
    chat.expect_end()
    conversation = chat.conversation
    page.fill("#message", "a draft stays")
    page.get_by_role("link", name="New chat").click()
    chat.send(say("the other one"))
    chat.expect_end()
    other = chat.conversation

    choose_listed(chat, conversation, "Delete")
    expect(listed(chat, conversation)).to_have_count(0)
    undo = page.get_by_role("region", name="Deleted conversation").get_by_role(
        "button", name="Undo"
    )
    expect(undo).to_be_focused()
    chat.expect_reply("the other one")
    page.keyboard.press("Enter")
    expect(listed(chat, conversation)).to_be_visible()
    expect(page.locator("#undo")).to_be_hidden()
    expect(page.locator("#message")).to_be_focused()
    page.locator(f'[data-conversation="{conversation}"]').click()
    chat.expect_reply("kept for undo")
    expect(page.locator("#message")).to_have_value("a draft stays")

    chat.choose("Delete")
    expect(page.get_by_role("heading", name="What is on your mind?")).to_be_visible()
    expect(undo).to_be_focused()
    page.keyboard.press("Control+z")
    chat.expect_reply("kept for undo")
    assert chat.conversation == conversation

    page.route("**/v1/conversations/c_*", lambda route: route.abort())
    choose_listed(chat, other, "Delete")
    expect(page.locator("#undo-text")).to_contain_text("could not be deleted. The server")
    expect(listed(chat, other)).to_be_visible()
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(listed(chat, other)).to_have_count(0)
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator("#undo")).to_be_hidden()
    page.reload()
    chat.expect_reply("kept for undo")
    expect(listed(chat, other)).to_have_count(0)


def test_on_a_phone_names_are_changed_in_the_sheet(stack: Stack, new_page: NewPage) -> None:
    chat = new_page(**PHONE).open()
    page = chat.page
    chat.send(say("on a phone"))
    chat.expect_end()
    conversation = chat.conversation
    page.get_by_role("button", name="Show your conversations").tap()
    row = listed(chat, conversation)
    box = row.get_by_role("button").bounding_box()
    assert box
    assert min(box["width"], box["height"]) >= 24
    row.get_by_role("button").tap()
    page.get_by_role("menuitem", name="Rename").tap()
    page.get_by_role("textbox", name="Title").fill("By thumb")
    page.get_by_role("button", name="Save the title").tap()
    expect(row).to_contain_text("By thumb")
    row.get_by_role("button").tap()
    page.get_by_role("menuitem", name="Delete").tap()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Undo", exact=True).tap()
    expect(row).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
