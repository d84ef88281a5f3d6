"""Tabs, absences and slow answers: nothing typed is lost, nothing is sent that nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.chat_page import ChatPage
from tests.browser.scripted import ScriptedLog
from tests.browser.test_manners import PHONE
from tests.browser.test_names import choose_listed, listed
from tests.browser.test_tree import say
from tests.browser.test_waiting import DEVICES, refuse, snap
from tests.stack import Stack, directive

if TYPE_CHECKING:
    from tests.browser.conftest import NewPage

SENDS = "**/v1/conversations/*/messages"
BUSY = {"code": "busy", "message": "no", "param": None, "retry_after_s": 12}


class Held:
    """Requests that have left the page and are answered when the test says so."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.routes: list[Route] = []

    def arrived(self, count: int = 1) -> None:
        while len(self.routes) < count:
            self.page.wait_for_timeout(20)

    def refuse(self) -> None:
        for route in self.routes:
            route.fulfill(status=429, json={"error": BUSY}, headers={"Retry-After": "12"})

    def let_go(self) -> None:
        for route in self.routes:
            route.continue_()


@contextmanager
def held(page: Page, pattern: str, method: str = "POST") -> Iterator[Held]:
    requests = Held(page)

    def take(route: Route) -> None:
        if route.request.method == method:
            requests.routes.append(route)
        else:
            route.fallback()

    page.route(pattern, take)
    yield requests
    page.unroute(pattern, take)


def beside(chat: ChatPage, conversation: str = "") -> ChatPage:
    """Another tab of the same browser."""
    return ChatPage(chat.page.context.new_page(), chat.url).open(conversation)


# --- drafts ---------------------------------------------------------------------------------------


def test_tabs_show_one_draft_and_an_idle_one_does_not_overwrite_it(
    stack: Stack, new_page: NewPage
) -> None:
    idle = new_page().open()
    idle.page.fill("#message", "old")
    busy = beside(idle)
    expect(busy.page.locator("#message")).to_have_value("old")
    busy.page.fill("#message", "newer, from the other tab")
    expect(idle.page.locator("#message")).to_have_value("newer, from the other tab")
    # One that has not heard of it is closed.
    idle.page.evaluate(
        "addEventListener('storage', (event) => event.stopImmediatePropagation(), true)"
    )
    busy.page.fill("#message", "newest")
    busy.page.evaluate("dispatchEvent(new Event('pagehide'))")
    idle.page.evaluate("dispatchEvent(new Event('pagehide'))")
    busy.page.reload()
    expect(busy.page.locator("#message")).to_have_value("newest")


@pytest.mark.parametrize("device", DEVICES)
def test_a_late_refusal_goes_before_what_has_been_begun_there_since(
    stack: Stack, new_page: NewPage, device: str
) -> None:
    chat = new_page(**DEVICES[device]).open()
    page = chat.page
    chat.send(say("the first"))
    chat.expect_end()
    conversation = chat.conversation
    with held(page, SENDS) as sends:
        chat.send("refused later")
        sends.arrived()
        page.fill("#message", "begun since")
        page.evaluate("document.querySelector('.new-conversation').click()")
        expect(page.locator("#message")).to_have_value("")
        sends.refuse()
        notice = "A message to another conversation was not sent. It is kept there as a draft."
        expect(page.locator("#announcer")).to_have_text(notice)
        expect(page.locator("#notice")).to_have_text(notice)
        expect(page.locator("#notice")).to_be_visible()
        snap(page, f"tabs-{device}-refused-away.png")
        expect(page.locator("#message")).to_have_value("")
    page.go_back()
    assert chat.conversation == conversation
    expect(page.locator("#message")).to_have_value("refused later\n\nbegun since")


def test_a_late_refusal_of_a_new_chat_goes_into_the_new_chat_that_is_open(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    page = chat.page
    with held(page, SENDS) as sends:
        chat.send("refused later")
        sends.arrived()
        page.get_by_role("link", name="New chat").click()
        page.fill("#message", "begun since")
        sends.refuse()
        expect(page.locator("#message")).to_have_value("refused later\n\nbegun since")
        assert len(sends.routes) == 1
        chat.expect_strip("Your message is kept below. You can send again in")
    page.reload()
    expect(page.locator("#message")).to_have_value("refused later\n\nbegun since")


# --- what is sent by itself -----------------------------------------------------------------------


def test_a_new_chat_does_not_repeat_the_first_send_that_is_not_answered_yet(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    page = chat.page
    with held(page, SENDS) as sends:
        chat.send(say("the first of its chat"))
        sends.arrived()
        page.get_by_role("link", name="New chat").click()
        expect(page.get_by_role("heading", name="What is on your mind?")).to_be_visible()
        with page.expect_response("**/v1/conversations?**"):
            sends.let_go()
        expect(page.locator(".conversation-item").first).to_be_visible()
        assert len(sends.routes) == 1
    assert chat.messages() == []
    assert page.evaluate("location.pathname") == "/"


def test_after_a_reload_the_first_send_goes_on_wherever_the_page_is(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    page = chat.page
    chat.send(say("another one"))
    chat.expect_end()
    other = chat.conversation
    page.get_by_role("link", name="New chat").click()
    with held(page, SENDS) as sends:
        chat.send(say("cut off by a reload"))
        sends.arrived()
        page.goto(f"{chat.url}/c/{other}")
        sends.arrived(2)
        keys = {route.request.headers["idempotency-key"] for route in sends.routes}
        assert len(keys) == 1
        sends.routes[-1].continue_()
        expect(page.locator(".conversation-item").first).not_to_have_attribute("data-item", other)
    chat.expect_reply("another one")
    assert chat.conversation == other


def test_who_comes_back_hours_later_is_asked_before_a_message_goes(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    chat.page.clock.install()
    chat.open()
    refuse(chat.page, retry_after_s=12)
    chat.send(directive(text="sent then"))
    chat.page.get_by_role("button", name="Send it then").click()
    chat.expect_strip("Sending again in")
    now = chat.page.evaluate("Date.now()")
    chat.page.clock.set_system_time(now + 10 * 3_600_000)
    chat.page.clock.run_for(5_000)
    chat.expect_strip("You can send it again now.")
    assert chat.messages() == []
    expect(chat.page.get_by_role("button", name="Send it now")).to_be_visible()


def test_a_text_that_the_page_puts_into_the_field_is_not_sent_by_itself(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    chat.page.clock.install()
    chat.open()
    refuse(chat.page, retry_after_s=12)
    chat.send("refused")
    chat.page.get_by_role("button", name="Send it then").click()
    chat.expect_strip("Sending again in")
    chat.page.locator("[data-suggestion]").first.click()
    chat.expect_strip("You can send again in")
    chat.page.clock.run_for(13_000)
    chat.expect_strip("You can send it again now.")
    assert chat.messages() == []


# --- the focus stays with its person --------------------------------------------------------------


@pytest.fixture
def answered(stack: Stack, new_page: NewPage) -> ChatPage:
    chat = new_page().open()
    chat.send(say("the answer"))
    chat.expect_end()
    assert chat.conversation
    return chat


def test_a_slow_rename_takes_no_focus_from_who_has_gone_on(answered: ChatPage) -> None:
    page = answered.page
    message = page.locator("#message")
    for listed_too in (False, True):
        if listed_too:
            choose_listed(answered, answered.conversation, "Rename")
        else:
            answered.choose("Rename")
        with held(page, "**/v1/conversations/c_*", "PATCH") as renames:
            field = page.get_by_role("textbox", name="Title")
            field.fill(f"{field.input_value()} again")
            page.keyboard.press("Enter")
            renames.arrived()
            message.focus()
            renames.let_go()
            expect(field).to_have_count(0)
        expect(message).to_be_focused()


def test_slow_feedback_takes_no_focus_from_who_has_gone_on(answered: ChatPage) -> None:
    page = answered.page
    answered.last_reply.get_by_role("button", name="Bad answer").click()
    form = page.locator(".feedback")
    with held(page, "**/feedback") as ratings:
        form.get_by_role("button", name="Send").click()
        ratings.arrived()
        page.locator("#message").focus()
        ratings.let_go()
        expect(form).to_have_count(0)
    expect(page.locator("#message")).to_be_focused()


def test_a_slow_version_takes_no_focus_from_who_has_gone_on(answered: ChatPage) -> None:
    page = answered.page
    answered.regenerate()
    answered.expect_version(answered.last_reply, "2/2")
    answered.expect_end()
    with held(page, "**/active_leaf", "PUT") as choices:
        answered.last_reply.get_by_role("button", name="Previous version").click()
        choices.arrived()
        page.locator("#message").focus()
        choices.let_go()
        answered.expect_version(answered.last_reply, "1/2")
        expect(page.locator("#strip")).not_to_contain_text("Fetching")
        expect(page.locator("#announcer")).to_contain_text("1 of 2")
    expect(page.locator("#message")).to_be_focused()


def test_a_slow_rename_leaves_the_next_field_open(answered: ChatPage) -> None:
    page = answered.page
    first = answered.conversation
    page.get_by_role("link", name="New chat").click()
    answered.send(say("another"))
    answered.expect_end()
    second = answered.conversation
    choose_listed(answered, first, "Rename")
    with held(page, "**/v1/conversations/c_*", "PATCH") as renames:
        page.get_by_role("textbox", name="Title").fill("The first")
        page.keyboard.press("Enter")
        renames.arrived()
        choose_listed(answered, second, "Rename")
        field = listed(answered, second).get_by_role("textbox", name="Title")
        field.fill("Half typed")
        renames.let_go()
        expect(page.locator("#announcer")).to_have_text("Renamed to The first")
    expect(field).to_have_value("Half typed")
    expect(field).to_be_focused()
    page.keyboard.press("Enter")
    expect(listed(answered, second)).to_contain_text("Half typed")
    expect(listed(answered, first)).to_contain_text("The first")


# --- the sheet ------------------------------------------------------------------------------------


def test_a_page_that_gets_wide_under_the_sheet_keeps_the_focus(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page(**PHONE).open()
    page = chat.page
    page.get_by_role("button", name="Show your conversations").click()
    expect(page.get_by_role("button", name="Close the list")).to_be_focused()
    page.set_viewport_size({"width": 1000, "height": 800})
    expect(page.locator(".new-conversation")).to_be_focused()


def test_the_way_back_leads_past_what_was_deleted(stack: Stack, new_page: NewPage) -> None:
    chat = new_page(**PHONE).open()
    page = chat.page
    chat.send(say("stays"))
    chat.expect_end()
    kept = chat.conversation
    page.get_by_role("button", name="Show your conversations").click()
    page.get_by_role("link", name="New chat").click()
    chat.send(say("goes"))
    chat.expect_reply("goes")
    chat.expect_end()
    gone = chat.conversation
    assert gone != kept
    page.get_by_role("button", name="Show your conversations").click()
    choose_listed(chat, gone, "Delete")
    expect(listed(chat, gone)).to_have_count(0)
    page.locator("#scrim").click(position={"x": 380, "y": 400})
    chat.wait_until("history.state === null")
    heading = page.get_by_role("heading", name="What is on your mind?")
    expect(heading).to_be_visible()
    chat.wait_until("location.pathname === '/'")
    page.go_back()
    chat.expect_reply("stays")
    assert chat.conversation == kept


# --- while an answer is written -------------------------------------------------------------------

_COUNT_READS = """
(() => {
  const value = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value");
  window.__reads = 0;
  Object.defineProperty(HTMLTextAreaElement.prototype, "value", {
    ...value, get() { window.__reads += 1; return value.get.call(this); } });
})();
"""


def test_the_words_of_an_answer_do_not_read_the_draft_again(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    chat.page.add_init_script(_COUNT_READS)
    log = ScriptedLog(chat.page)
    chat.open()
    chat.send("Count")
    log.start()
    log.event("delta", text="w0")
    chat.expect_reply("w0")
    before = chat.page.evaluate("window.__reads")
    for number in range(1, 31):
        log.event("delta", text=f" w{number}")
    chat.expect_reply("w30")
    assert chat.page.evaluate("window.__reads") == before


def test_a_draft_that_is_too_long_to_be_kept_says_so(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.page.fill("#message", "x" * 250_000)
    chat.page.reload()
    expect(chat.page.locator("#message")).to_have_value("x" * 250_000)
    chat.page.fill("#message", "x" * 300_000)
    snap(chat.page, "tabs-too-long.png")
    expect(chat.page.locator("#size")).to_contain_text("It is lost when you go elsewhere")
    expect(chat.page.locator("#announcer")).to_contain_text("It is lost when you go elsewhere")
