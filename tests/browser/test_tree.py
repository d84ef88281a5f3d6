"""Versions, edits, other answers: what the tree looks like on the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import httpx
from playwright.sync_api import Route, expect

from tests.browser.test_journeys import stored, text_of, words
from tests.browser.test_manners import PHONE
from tests.phone import PATIENT
from tests.stack import Stack, directive, wait_for

if TYPE_CHECKING:
    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage


def say(text: str) -> str:
    """A question whose answer is `text`."""
    return f"Say {directive(text=text)}"


def active_leaf(stack: Stack, chat: ChatPage) -> str:
    url = f"{stack.webs[-1].url}/v1/conversations/{chat.conversation}"
    answer = httpx.get(url, headers=stack.people["ada"].headers, **PATIENT)
    leaf: str = answer.raise_for_status().json()["active_leaf"]
    return leaf


def settled_leaf(stack: Stack, chat: ChatPage, text: str) -> None:
    """The last message of the active branch, as the API has it, becomes `text`."""
    wait_for(
        lambda: text_of(stored(stack, stack.people["ada"], chat.conversation)[-1]) == text,
        f"the active leaf to be {text!r}",
    )


def test_an_edit_is_a_version_and_the_choice_survives_a_reload(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    page = chat.page
    chat.send(say("first answer"))
    chat.expect_end()
    chat.edit(chat.last_question, say("second answer"))
    chat.expect_reply("second answer")
    chat.expect_end()
    chat.expect_version(chat.last_question, "2/2")
    assert len(chat.messages()) == 2

    question = chat.last_question
    question.get_by_role("button", name="Previous version").click()
    chat.expect_reply("first answer")
    chat.expect_version(chat.last_question, "1/2")
    expect(chat.last_question.get_by_role("button", name="Previous version")).to_be_focused()
    settled_leaf(stack, chat, "first answer")
    page.reload()
    chat.expect_reply("first answer")
    chat.expect_version(chat.last_question, "1/2")

    chat.last_question.get_by_role("button", name="Next version").focus()
    page.keyboard.press("ArrowRight")
    chat.expect_reply("second answer")
    expect(chat.last_question.get_by_role("button", name="Next version")).to_be_focused()
    expect(page.locator("#announcer")).to_have_text("Version 2 of 2")
    assert chat.violations == []


def test_escape_leaves_the_message_as_it_is_and_a_draft_survives_a_reload(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    page = chat.page
    chat.send(say("an answer"))
    chat.expect_end()
    question = chat.last_question
    before = chat.messages()
    question.hover()
    question.get_by_role("button", name="Edit your message").click()
    field = page.get_by_label("Edit your message")
    expect(field).to_be_focused()
    expect(field).to_have_value(before[0])
    field.fill("half a thought")
    page.reload()
    chat.expect_end()
    chat.last_question.hover()
    chat.last_question.get_by_role("button", name="Edit your message").click()
    expect(field).to_have_value("half a thought")
    page.keyboard.press("Escape")
    expect(field).to_have_count(0)
    expect(question.get_by_role("button", name="Edit your message")).to_be_focused()
    assert chat.messages() == before


def test_a_refused_edit_stays_where_it_was_typed(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.send(say("kept"))
    chat.expect_end()
    too_long = "x" * 200_000
    chat.edit(chat.last_question, too_long)
    chat.expect_strip("kept where you edited it")
    expect(chat.page.get_by_label("Edit your message")).to_have_value(too_long)
    chat.expect_reply("kept")
    chat.page.get_by_label("Edit your message").fill(say("short is fine"))
    chat.page.get_by_role("button", name="Send").first.click()
    chat.expect_reply("short is fine")
    chat.expect_version(chat.last_question, "2/2")


def test_regenerate_with_another_model_and_the_choice_for_new_messages(
    stack: Stack, new_page: NewPage
) -> None:
    with stack.second_model("Small one"):
        chat = new_page().open()
        page = chat.page
        chat.send(say("an answer"))
        chat.expect_end()
        chat.last_reply.get_by_role("button", name="Regenerate with another model").click()
        menu = page.get_by_role("menu", name="Regenerate with another model")
        expect(menu.get_by_role("menuitem").first).to_be_focused()
        page.keyboard.press("ArrowUp")
        expect(menu.get_by_role("menuitem", name="Small one")).to_be_focused()
        page.keyboard.press("Enter")
        chat.expect_version(chat.last_reply, "2/2")
        chat.expect_end()
        expect(chat.last_reply.locator(".facts")).to_contain_text("Small one")
        assert stored(stack, stack.people["ada"], chat.conversation)[-1]["run"]["model"] == "small"

        chat.choose_model("Small one")
        page.reload()
        chat.expect_end()
        expect(page.locator("#model")).to_contain_text("Small one")
        chat.send(say("by the small one"))
        chat.expect_reply("by the small one")
        chat.expect_end()
        assert stored(stack, stack.people["ada"], chat.conversation)[-1]["run"]["model"] == "small"


def test_continue_goes_on_with_the_text_of_the_stopped_answer(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("go-on")
    chat = new_page().open()
    chat.send(directive(tokens=40, hold="go-on", hold_after=10))
    chat.expect_reply("w10")
    chat.stop()
    chat.expect_strip("Stopped. What was written is kept")
    chat.last_reply.get_by_role("button", name="Continue").click()
    chat.expect_version(chat.last_reply, "2/2")
    expect(chat.last_reply).to_have_attribute("aria-busy", "true")
    assert chat.reply() == words(10)
    hold.unlink()
    chat.expect_end()
    assert chat.reply() == words(40)
    settled_leaf(stack, chat, words(40))
    chat.last_reply.get_by_role("button", name="Previous version").click()
    chat.expect_version(chat.last_reply, "1/2")
    assert chat.reply() == words(10)


def test_feedback_with_a_reason_is_there_after_a_reload_and_can_be_taken_back(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    chat.send(say("an answer"))
    chat.expect_end()
    bad = chat.last_reply.get_by_role("button", name="Bad answer")
    good = chat.last_reply.get_by_role("button", name="Good answer")
    good.click()
    bad.click()
    expect(good).to_have_attribute("aria-pressed", "false")
    chat.page.get_by_label("What was wrong with it? (optional)").fill("Too short")
    chat.last_reply.get_by_role("button", name="Send").click()
    expect(chat.page.locator(".feedback")).to_have_count(0)
    expect(bad).to_be_focused()
    chat.page.reload()
    expect(bad).to_have_attribute("aria-pressed", "true")
    kept = stored(stack, stack.people["ada"], chat.conversation)[-1]["feedback"]
    assert kept == {"rating": "down", "reason": "Too short"}
    bad.click()
    expect(bad).to_have_attribute("aria-pressed", "false")
    expect(chat.page.locator("#announcer")).to_have_text("Your feedback is taken back.")
    assert stored(stack, stack.people["ada"], chat.conversation)[-1]["feedback"] is None


def test_the_end_of_an_answer_pulls_nobody_away_from_another_version(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("pull")
    chat = new_page().open()
    chat.send(directive(tokens=30, hold="pull", hold_after=5))
    hold.unlink()
    chat.expect_end()
    first_leaf = active_leaf(stack, chat)
    hold.touch()
    chat.regenerate()
    chat.expect_reply("w5")
    chat.expect_version(chat.last_reply, "2/2")
    chat.last_reply.get_by_role("button", name="Previous version").click()
    chat.expect_end()
    chat.expect_version(chat.last_reply, "1/2")
    # Meanwhile there is room for more: several answers of one conversation are written at once.
    chat.send(say("below the first"))
    chat.expect_reply("below the first")
    chat.expect_end()
    detail = re.compile(rf"/v1/conversations/{chat.conversation}(\?.*)?$")
    with chat.page.expect_response(detail):  # the hint of the end makes the page look again
        hold.unlink()
    chat.expect_reply("below the first")
    assert len(chat.messages()) == 4
    chat.page.reload()
    chat.expect_reply("below the first")
    assert first_leaf in [
        row["id"] for row in stored(stack, stack.people["ada"], chat.conversation)
    ]


def test_a_live_version_can_be_looked_at_and_is_chosen_when_it_ends(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("look")
    hold.unlink()
    chat = new_page().open()
    chat.send(directive(tokens=30, hold="look", hold_after=5))
    chat.expect_end()
    hold.touch()
    chat.regenerate()
    chat.expect_reply("w5")
    chat.last_reply.get_by_role("button", name="Previous version").click()
    chat.expect_end()
    chat.page.reload()
    chat.expect_end()
    chat.expect_version(chat.last_reply, "1/2")
    chat.last_reply.get_by_role("button", name="Next version").click()
    chat.expect_version(chat.last_reply, "2/2")
    expect(chat.last_reply).to_have_attribute("aria-busy", "true")
    live = chat.last_reply.get_attribute("data-id")
    assert active_leaf(stack, chat) != live
    hold.unlink()
    chat.expect_end()
    assert chat.reply() == words(30)
    wait_for(lambda: active_leaf(stack, chat) == live, "the answer to be the active leaf")


def test_a_follow_up_to_a_stopping_answer_waits_for_its_end(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("follow")
    chat = new_page().open()
    chat.send(directive(tokens=30, hold="follow", hold_after=5))
    chat.expect_reply("w5")
    stops: list[Route] = []
    chat.page.route("**/*:stop", lambda route: stops.append(route))
    chat.stop()
    chat.expect_strip("Stopping")
    chat.send(say("following up"))
    chat.expect_strip("Sent as soon as the answer above has stopped")
    assert len(chat.messages()) == 4
    stops[0].continue_()
    chat.expect_reply("following up")
    chat.expect_end()
    hold.unlink()
    saved = stored(stack, stack.people["ada"], chat.conversation)
    assert [text_of(row) for row in saved][1::2] == [words(5), "following up"]
    assert saved[2]["parent_id"] == saved[1]["id"]


def _damaged(column: str) -> str:
    """SQL for the column's bytes with the last one changed: what was sealed does not open again."""
    last = f"octet_length({column}) - 1"
    return f"set_byte({column}, {last}, get_byte({column}, {last}) # 1)"


def test_what_can_no_longer_be_read_says_so(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.send(say("lost"))
    chat.expect_end()
    key = chat.conversation.removeprefix("c_")
    for table, column, where in (
        ("conversations_conversation", "title", "id"),
        ("conversations_message", "content", "conversation_id"),
    ):
        stack.execute(f"UPDATE {table} SET {column} = {_damaged(column)} WHERE {where} = %s", key)  # noqa: S608
    chat.page.reload()
    expect(chat.page.get_by_text("This text can no longer be read.")).to_have_count(2)
    expect(chat.page.locator("#title")).to_have_text("This title can no longer be read")
    thread = chat.page.get_by_role("list", name="Messages")
    names = thread.get_by_role("button").evaluate_all("all => all.map(one => one.textContent)")
    assert {name for name in names if not name.startswith("Details:")} == {"Regenerate"}
    chat.page.locator("[aria-current=page]").filter(has_text="can no longer be read").wait_for()


def controls(chat: ChatPage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat.page.locator("#thread button").evaluate_all(
        """all => all.map(one => {
          const box = one.getBoundingClientRect();
          const opacity = getComputedStyle(one).opacity;
          return {name: one.textContent, role: one.tagName, width: box.width, height: box.height,
                  opacity: Number(opacity)};
        })"""
    )
    return found


def test_on_a_phone_every_control_is_in_reach_without_a_pointer(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page(**PHONE).open()
    chat.send(say("first answer"))
    chat.expect_end()
    chat.last_question.get_by_role("button", name="Edit your message").tap()
    chat.page.get_by_label("Edit your message").fill(say("second answer"))
    chat.last_question.get_by_role("button", name="Send").tap()
    chat.expect_reply("second answer")
    chat.expect_end()
    chat.expect_version(chat.last_question, "2/2")
    chat.last_reply.get_by_role("button", name="Bad answer").tap()
    found = controls(chat)
    names = {one["name"] for one in found}
    assert {"Edit your message", "Copy your message", "Previous version", "Next version"} <= names
    assert {"Copy", "Regenerate", "Good answer", "Bad answer", "Close", "Send"} <= names
    for one in found:
        assert min(one["width"], one["height"]) >= 24, one
        assert one["opacity"] >= 0.4, one
    assert chat.page.evaluate("document.documentElement.scrollWidth") == 390
    chat.last_question.get_by_role("button", name="Previous version").tap()
    chat.expect_reply("first answer")
    chat.page.reload()
    chat.expect_reply("first answer")


def test_the_keyboard_reaches_what_a_message_offers_and_nothing_is_lost_at_a_redraw(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    page = chat.page
    chat.send(say("an answer"))
    chat.expect_end()
    page.locator("#content").focus()
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert reached[:2] == ["Edit your message", "Copy your message"]
    assert {"Copy", "Regenerate", "Good answer", "Bad answer"} <= set(reached)
    chat.last_reply.get_by_role("button", name="Good answer").focus()
    page.keyboard.press("Enter")
    expect(chat.last_reply.get_by_role("button", name="Good answer")).to_be_focused()
    for _ in range(3):  # past "Bad answer" and the details
        page.keyboard.press("Tab")
    expect(page.get_by_label("What was good about it? (optional)")).to_be_focused()
    page.keyboard.press("Escape")
    expect(chat.last_reply.get_by_role("button", name="Good answer")).to_be_focused()


_LONG = """
from django.db import transaction
from accounts.ids import external_id, new_id
from accounts.models import User
from conversations import services

owner = User.objects.get(email="bob@example.org")
with transaction.atomic():
    row = services.create_conversation(owner, title="Long")
    leaf = None
    for number in range(250):
        parts = [{"type": "text", "text": f"question {number}"}]
        asked = services.add_user_message(row, leaf, parts)
        leaf = new_id()
        services.add_reply(
            reply_id=leaf, conversation_id=row.pk, owner_id=owner.pk, parent_id=asked.pk,
            text=f"answer {number}", token_count=2,
        )
    services.set_active_leaf(row.pk, leaf)
print(external_id("c", row.pk))
"""


def test_500_messages_open_from_the_end_and_come_up_while_the_reader_scrolls(
    stack: Stack, new_page: NewPage
) -> None:
    conversation = stack.manage("shell", "--verbosity", "0", "-c", _LONG).strip()
    chat = new_page(person="bob").open(conversation)
    chat.expect_reply("answer 249")
    assert len(chat.messages()) == 50
    page, scroller = chat.page, chat.page.locator("#scroller")
    shown = page.locator("#thread > .message")

    page.context.set_offline(True)
    first = shown.first
    key = first.get_attribute("data-key")
    scroller.evaluate("one => { one.scrollTop = 300 }")
    again = page.get_by_role("button", name="Earlier messages could not be loaded. Try again")
    expect(again).to_be_visible()
    page.context.set_offline(False)
    anchor = page.locator(f'[data-key="{key}"]')
    again.focus()
    before = anchor.evaluate("one => one.getBoundingClientRect().top")
    page.keyboard.press("Enter")
    expect(shown).to_have_count(150)
    after = anchor.evaluate("one => one.getBoundingClientRect().top")
    assert abs(after - before) < 2, f"the reader's place is kept ({before} → {after})"

    for count in (250, 350, 450, 500):
        scroller.evaluate("one => { one.scrollTop = 200 }")
        expect(shown).to_have_count(count)
    expect(page.locator(".earlier")).to_have_count(0)
    assert chat.messages()[0] == "question 0"
    assert chat.messages()[-1] == "answer 249"
