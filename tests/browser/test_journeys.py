"""What people do with the chat page, from sign-in to coming back on another device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.phone import PATIENT
from tests.stack import PASSWORD, Person, Stack, directive

if TYPE_CHECKING:
    from tests.browser.conftest import NewPage


def stored(stack: Stack, person: Person, conversation: str) -> list[dict[str, Any]]:
    """The messages of a conversation as the API has them."""
    url = f"{stack.webs[-1].url}/v1/conversations/{conversation}"
    answer = httpx.get(url, headers=person.headers, **PATIENT)
    answer.raise_for_status()
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"])


def words(count: int) -> str:
    """What the simulated engine answers by itself."""
    return " ".join(f"w{number}" for number in range(1, count + 1))


def test_sign_in_ask_read_and_sign_out(stack: Stack, new_page: NewPage) -> None:
    chat = new_page(person=None)
    page = chat.page
    page.goto(chat.url)
    page.fill("input[name=username]", stack.people["ada"].email)
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="What is on your mind?")).to_be_visible()
    expect(page.locator("#model")).not_to_be_empty()  # the page listens

    chat.send(f"Hello {directive(text='A **bold** answer.')}")
    chat.expect_reply("A bold answer.")
    chat.expect_end()
    assert page.locator(".reply strong").inner_text() == "bold"
    saved = stored(stack, stack.people["ada"], chat.conversation)
    assert [message["role"] for message in saved] == ["user", "assistant"]
    assert text_of(saved[1]) == "A **bold** answer."
    expect(page.locator("[aria-current=page]")).to_have_attribute(
        "data-conversation", chat.conversation
    )
    assert chat.violations == []

    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/accounts/sign-in/**")  # to go elsewhere at once may cut the form short
    page.goto(chat.url)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_reload_in_mid_answer_goes_on(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("reload")
    chat = new_page().open()
    chat.send(directive(tokens=40, hold="reload", hold_after=20))
    chat.expect_reply("w20")
    conversation = chat.conversation
    chat.page.reload()
    chat.expect_reply("w20")
    assert chat.reply() == words(20)
    hold.unlink()
    chat.expect_end()
    assert chat.reply() == words(40)
    assert text_of(stored(stack, stack.people["ada"], conversation)[-1]) == words(40)


def test_a_second_device_on_another_web_process_sees_the_same(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("second")
    first = new_page(web=0).open()
    first.send(directive(tokens=60, hold="second", hold_after=10))
    first.expect_reply("w10")
    second = new_page(web=1).open(first.conversation)
    second.expect_reply("w10")
    hold.unlink()
    for device in (first, second):
        device.expect_end()
        assert device.reply() == words(60)


def test_leaving_and_coming_back_shows_the_growing_answer(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("leave")
    chat = new_page().open()
    chat.send(f"First {directive(tokens=30, hold='leave', hold_after=10)}")
    chat.expect_reply("w10")
    conversation = chat.conversation
    chat.page.get_by_role("link", name="New chat").click()
    expect(chat.page.locator("#empty")).to_be_visible()
    chat.page.locator(f'[data-conversation="{conversation}"]').click()
    chat.expect_reply("w10")
    hold.unlink()
    chat.expect_end()
    assert chat.reply() == words(30)
    assert len(chat.messages()) == 2


def test_stop_before_the_first_word_then_send_again(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("early")
    chat = new_page().open()
    chat.send(directive(tokens=5, hold="early"))
    chat.stop()
    chat.expect_strip("Stopped before anything was written")
    chat.expect_end()
    hold.unlink()
    chat.send(directive(text="Second answer"))
    chat.expect_reply("Second answer")
    chat.expect_end()
    saved = stored(stack, stack.people["ada"], chat.conversation)
    assert [message["role"] for message in saved] == ["user", "assistant"] * 2
    assert saved[2]["parent_id"] == saved[1]["id"]
    assert saved[1]["run"]["finish"] == "user_stopped"


def test_stop_in_mid_answer_keeps_what_was_written(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("mid")
    chat = new_page().open()
    chat.send(directive(tokens=50, hold="mid", hold_after=10))
    chat.expect_reply("w10")
    chat.stop()
    chat.expect_strip("Stopped. What was written is kept")
    hold.unlink()
    chat.expect_end()
    assert chat.reply() == words(10)
    chat.page.reload()
    chat.expect_reply("w10")
    expect(chat.page.locator(".reply .finish-note")).to_have_text("Stopped")
    assert chat.reply() == words(10)


def test_offline_says_so_and_nothing_is_lost(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("offline")
    chat = new_page().open()
    chat.send(directive(tokens=40, hold="offline", hold_after=10))
    chat.expect_reply("w10")
    chat.page.context.set_offline(True)
    chat.expect_strip("You are offline. Nothing is lost")
    hold.unlink()
    chat.page.context.set_offline(False)
    chat.expect_end()
    assert chat.reply() == words(40)


@pytest.mark.timeout(600)  # it starts processes of its own
def test_killed_web_process_comes_back_and_the_page_goes_on(
    new_page: NewPage, cookies: dict[str, Any]
) -> None:
    from tests.browser.conftest import sign_in

    with Stack.start(webs=1, workers=1, redis_db=8) as own:
        hold = own.hold("kill")
        chat = new_page(person=None, url=own.webs[0].url)
        chat.page.context.add_cookies(sign_in(own.webs[0].url, own.people["ada"]))  # type: ignore[arg-type]
        chat.open()
        chat.send(directive(tokens=80, hold="kill", hold_after=20))
        chat.expect_reply("w20")
        conversation = chat.conversation
        port = own.webs[0].port
        own.webs[0].kill()
        chat.expect_strip("Reconnecting, nothing is lost")
        hold.unlink()
        own.start_web(port)
        chat.expect_end()
        assert chat.reply() == words(80)
        assert text_of(stored(own, own.people["ada"], conversation)[-1]) == words(80)


def test_a_failed_answer_is_marked_and_can_be_followed_up(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.send(directive(tokens=20, broken_at=5))
    chat.expect_end()
    chat.expect_strip("What was written is kept")
    expect(chat.page.locator(".reply .finish-note").first).to_be_visible()
    chat.send(directive(text="Fine again"))
    chat.expect_reply("Fine again")
    chat.expect_end()


def test_a_refused_message_stays_in_the_composer(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    too_long = "x" * 200_000
    chat.send(too_long)
    chat.expect_strip("kept below")
    expect(chat.page.locator("#message")).to_have_value(too_long)
    assert chat.messages() == []
    chat.send(directive(text="Short is fine"))
    chat.expect_reply("Short is fine")


def test_drafts_are_kept_for_each_conversation(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.send(f"Drafts {directive(text='ok')}")
    chat.expect_end()
    conversation = chat.conversation
    chat.page.fill("#message", "half a thought")
    chat.page.get_by_role("link", name="New chat").click()
    expect(chat.page.locator("#message")).to_have_value("")
    chat.page.fill("#message", "another one")
    chat.page.reload()
    expect(chat.page.locator("#message")).to_have_value("another one")
    chat.page.locator(f'[data-conversation="{conversation}"]').click()
    expect(chat.page.locator("#message")).to_have_value("half a thought")


def test_another_person_on_the_same_browser_finds_no_drafts(
    stack: Stack, new_page: NewPage, cookies: dict[str, Any]
) -> None:
    chat = new_page().open()
    chat.page.fill("#message", "for my eyes")
    chat.page.reload()
    expect(chat.page.locator("#message")).to_have_value("for my eyes")
    chat.page.context.clear_cookies()
    chat.page.context.add_cookies(cookies["bob"])
    chat.open()
    expect(chat.page.locator("#message")).to_have_value("")
    kept = chat.page.evaluate("Object.entries(localStorage).flat().join()")
    assert "for my eyes" not in kept


def test_someone_elses_conversation_is_not_here(stack: Stack, new_page: NewPage) -> None:
    ada = new_page().open()
    ada.send(directive(text="private"))
    ada.expect_end()
    bob = new_page(person="bob")
    for conversation in (ada.conversation, "c_" + "0" * 32, "nonsense", "%ff"):
        bob.page.goto(f"{bob.url}/c/{conversation}")
        expect(
            bob.page.get_by_role("heading", name="This conversation is not here")
        ).to_be_visible()
        expect(bob.page.locator("#composer")).to_be_hidden()
