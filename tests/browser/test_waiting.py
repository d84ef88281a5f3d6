"""Every wait has a name: what the page says while it waits, is refused, cut off, or comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import SHOTS
from tests.browser.scripted import RUN, ScriptedLog
from tests.browser.test_manners import PHONE
from tests.phone import PATIENT
from tests.stack import Stack, directive, wait_for

if TYPE_CHECKING:
    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage

SLOTS = 8  # of the stack's one worker
DEVICES: dict[str, dict[str, Any]] = {
    "desktop": {},
    "phone": PHONE,
    "dark": {"color_scheme": "dark"},
}


def refuse(page: Page, *, retry_after_s: int, code: str = "busy", times: int = 1) -> None:
    """The next sends are refused, as the product refuses."""
    error = {"code": code, "message": "no", "param": None, "retry_after_s": retry_after_s}

    def answer(route: Route) -> None:
        route.fulfill(
            status=429, json={"error": error}, headers={"Retry-After": str(retry_after_s)}
        )

    page.route("**/v1/conversations/*/messages", answer, times=times)


def strip(chat: ChatPage) -> str:
    return chat.page.locator("#strip").inner_text()


# --- what is told while an answer is waited for and written ---------------------------------------

Step = Callable[[ScriptedLog], None]
LADDER = {"model": "small", "instead_of": "sim"}
BACK_AT = "2030-01-05T18:30:00Z"
STATES: list[tuple[str, Step, str]] = [
    ("reading", lambda log: log.start(), "Reading your message"),
    ("queued", lambda log: log.notice("queued", position=3, eta_s=18), "Third in line, about 20 s"),
    (
        "queued-smaller",
        lambda log: log.notice("smaller_model", **LADDER, back_at=None),
        "Using the smaller model until it is quieter",
    ),
    (
        "shorter",
        lambda log: log.notice("shorter_answer", answer_tokens=9),
        "A shorter answer until it is quieter",
    ),
    ("queued-next", lambda log: log.notice("queued", position=1, eta_s=4), "Next in line, about"),
    ("region", lambda log: log.notice("other_region", region="us"), "another region"),
    ("other-model", lambda log: log.notice("other_model", **LADDER), "small answers instead"),
    (
        "used-up",
        lambda log: log.notice("smaller_model", **LADDER, back_at=BACK_AT),
        "small answers; sim is back on",
    ),
    ("writing", lambda log: log.event("delta", text="The first words. "), "small answers"),
    ("recovered", lambda log: log.notice("recovered"), "Continued on another machine"),
]
ENDS: list[tuple[str, str, str, str | None]] = [
    (
        "interrupted",
        "interrupted",
        "The answer was interrupted. What was written is kept",
        "Continue",
    ),
    ("stopped", "user_stopped", "Stopped. What was written is kept", "Continue"),
    ("unwatched", "unwatched", "Ended because nobody was looking", "Continue"),
    ("length", "length", "reached its length limit", "Continue"),
    ("error", "error", "ended with an error", "Continue"),
]


def scripted(new_page: NewPage, device: str) -> tuple[ChatPage, ScriptedLog]:
    chat = new_page(**DEVICES[device])
    log = ScriptedLog(chat.page)
    chat.open()
    chat.send("What does a lighthouse keeper do all day?")
    chat.expect_strip("Sending")
    return chat, log


def snap(page: Page, name: str) -> None:
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / name, animations="disabled")


def shoot(chat: ChatPage, name: str) -> None:
    assert chat.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(chat.page.locator("#strip .icon")).to_have_count(1)
    snap(chat.page, f"waiting-{name}.png")


@pytest.mark.parametrize("device", DEVICES)
def test_each_step_of_a_wait_is_told_in_words_with_an_icon(
    stack: Stack, new_page: NewPage, device: str
) -> None:
    chat, log = scripted(new_page, device)
    for name, step, words in STATES:
        step(log)
        chat.expect_strip(words)
        shoot(chat, f"{device}-{name}")
    log.reach(reachable=False)
    log.cut()
    chat.expect_strip("Reconnecting, nothing is lost")
    shoot(chat, f"{device}-reconnecting")
    log.reach(reachable=True)
    chat.page.evaluate("dispatchEvent(new Event('online'))")
    chat.wait_until("window.__log.asked.at(-1)[1] !== null")
    log.event("retract", text="This answer was taken back.")
    chat.expect_strip("The answer was taken back")
    chat.expect_reply("This answer was taken back.")
    log.done("moderation")
    chat.expect_end()
    chat.expect_strip("You can ask in another way")
    expect(chat.page.locator("#strip button")).to_have_count(0)
    assert "The first words" not in chat.page.locator("#thread").inner_text()
    shoot(chat, f"{device}-retracted")


@pytest.mark.parametrize("device", DEVICES)
def test_each_end_that_is_not_the_usual_one_is_told(
    stack: Stack, new_page: NewPage, device: str
) -> None:
    for name, finish, words, offer in ENDS:
        chat, log = scripted(new_page, device)
        log.start()
        log.event("delta", text="A keeper trims the wick, and writes the log.")
        log.done(finish)
        chat.expect_strip(words)
        expect(chat.page.get_by_role("button", name=offer or "", exact=True).first).to_be_visible()
        shoot(chat, f"{device}-end-{name}")


def test_a_predicted_wait_is_counted_down_and_an_overrun_is_said(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    chat.page.clock.install()
    log = ScriptedLog(chat.page)
    chat.open()
    chat.send("Count")
    log.start()
    log.notice("queued", position=2, eta_s=18)
    chat.expect_strip("Second in line, about 20 s")
    chat.page.clock.run_for(12_000)
    chat.expect_strip("Second in line, about 6 s")
    chat.page.clock.run_for(7_000)
    chat.expect_strip("Second in line, a little longer than expected")


def test_a_real_queue_says_its_place(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("places")
    url = f"{stack.webs[0].url}/v1/conversations/new/messages"
    headers = stack.people["bob"].headers
    ahead = [
        httpx.post(
            url, headers=headers, json={"content": directive(tokens=1, hold="places")}, **PATIENT
        )
        for _ in range(SLOTS)
    ]
    assert {answer.status_code for answer in ahead} == {202}
    query = "SELECT count(*) FROM generation_run WHERE status = 'running'"
    wait_for(lambda: stack.rows(query) == [(SLOTS,)], "all slots taken")
    chat = new_page().open()
    chat.send(directive(text="at last"))
    chat.expect_strip("Next in line")
    shoot(chat, "real-queue")
    hold.unlink()
    chat.expect_reply("at last")
    chat.expect_end()


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_a_refused_message_is_sent_by_itself_only_when_told_to(
    stack: Stack, new_page: NewPage, device: str
) -> None:
    chat = new_page(**DEVICES[device])
    chat.page.clock.install()
    chat.open()
    refuse(chat.page, retry_after_s=12)
    text = directive(text="sent then")
    chat.send(text)
    chat.expect_strip("Your message is kept below. You can send again in 12 s.")
    shoot(chat, f"{device}-refused")
    chat.page.clock.run_for(5_000)
    chat.expect_strip("You can send again in 7 s.")
    chat.page.clock.run_for(8_000)
    chat.expect_strip("You can send it again now.")
    assert chat.messages() == []
    refuse(chat.page, retry_after_s=12)
    chat.page.get_by_role("button", name="Send it now").click()
    chat.page.get_by_role("button", name="Send it then").click()
    chat.expect_strip("Sending again in")
    shoot(chat, f"{device}-armed")
    chat.page.get_by_role("button", name="Cancel").click()
    chat.expect_strip("You can send again in")
    chat.page.get_by_role("button", name="Send it then").press("Enter")
    expect(chat.page.locator("#message")).to_have_value(text)
    chat.page.clock.run_for(3_000)
    expect(chat.page.get_by_role("button", name="Cancel")).to_be_focused()
    chat.page.clock.run_for(10_000)
    chat.expect_reply("sent then")
    expect(chat.page.locator("#message")).to_have_value("")


def test_who_goes_on_typing_is_not_sent_in_mid_word(stack: Stack, new_page: NewPage) -> None:
    chat = new_page()
    chat.page.clock.install()
    chat.open()
    refuse(chat.page, retry_after_s=12)
    chat.send("half a")
    chat.page.get_by_role("button", name="Send it then").click()
    chat.expect_strip("Sending again in")
    chat.page.locator("#message").press_sequentially(" thought")
    chat.expect_strip("You can send again in")
    chat.page.clock.run_for(13_000)
    chat.expect_strip("You can send it again now.")
    assert chat.messages() == []
    expect(chat.page.locator("#message")).to_have_value("half a thought")


def test_a_limit_that_is_hours_away_offers_no_sending_by_itself(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    refuse(chat.page, retry_after_s=7_200, code="quota_exceeded")
    chat.send("one too many")
    chat.expect_strip("You can send again in 2 h.")
    expect(chat.page.locator("#strip button")).to_have_count(0)


def test_a_long_message_says_its_size_and_one_too_long_is_not_sent(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    size = chat.page.locator("#size")
    chat.page.fill("#message", "x" * 1_000)
    expect(size).to_be_hidden()
    chat.page.fill("#message", "x" * 20_000)
    expect(size).to_have_text("A long message: 20 KB of at most 128 KB")
    snap(chat.page, "waiting-size.png")
    sent: list[str] = []
    chat.page.on("request", lambda asked: sent.append(asked.url))
    chat.send("x" * 200_000)
    expect(size).to_contain_text("Too long to send")
    chat.expect_strip("Your message is too long. Your message is kept below.")
    snap(chat.page, "waiting-size-over.png")
    assert not [url for url in sent if url.endswith("/messages")]


# --- the next message -----------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_the_next_message_waits_through_a_reload_and_is_sent_at_the_end(
    stack: Stack, new_page: NewPage, device: str
) -> None:
    hold = stack.hold("next")
    chat = new_page(**DEVICES[device]).open()
    page = chat.page
    chat.send(directive(tokens=12, hold="next", hold_after=6))
    chat.expect_reply("w6")
    chat.send("And what does the keeper of a lighthouse do when the fog comes in?")
    card = page.locator("#next")
    expect(card).to_contain_text("Next, as soon as the answer has ended")
    expect(page.locator("#message")).to_have_value("")
    expect(page.locator("#message")).to_be_focused()
    snap(page, f"waiting-{device}-next.png")
    card.get_by_role("button", name="Edit the next message").click()
    expect(card).to_be_hidden()
    page.fill("#message", directive(text="the second answer"))
    page.get_by_role("button", name="Send it when the answer has ended").click()
    expect(card).to_contain_text("the second answer")
    assert chat.conversation
    page.reload()
    expect(card).to_contain_text("the second answer")
    chat.expect_reply("w6")
    assert len(chat.messages()) == 2
    hold.unlink()
    chat.expect_reply("the second answer")
    chat.expect_end()
    expect(card).to_be_hidden()
    assert len(chat.messages()) == 4


@pytest.mark.parametrize("device", DEVICES)
def test_after_a_stop_by_hand_the_next_message_is_held(
    stack: Stack, new_page: NewPage, device: str
) -> None:
    hold = stack.hold("held")
    chat = new_page(**DEVICES[device]).open()
    chat.send(directive(tokens=12, hold="held", hold_after=6))
    chat.expect_reply("w6")
    chat.send(directive(text="after all"))
    chat.page.keyboard.press("Escape")
    chat.expect_strip("Stopped. What was written is kept")
    hold.unlink()
    card = chat.page.locator("#next")
    expect(card).to_contain_text("Not sent, since the answer did not end by itself")
    snap(chat.page, f"waiting-{device}-held.png")
    chat.page.reload()
    expect(card).to_contain_text("Not sent")
    assert len(chat.messages()) == 2
    card.get_by_role("button", name="Send it now").click()
    chat.expect_reply("after all")
    chat.expect_end()
    expect(card).to_be_hidden()


def test_removed_the_next_message_is_not_sent(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("removed")
    chat = new_page().open()
    chat.send(directive(tokens=4, hold="removed", hold_after=2))
    chat.expect_reply("w2")
    chat.send("never mind")
    chat.page.get_by_role("button", name="Remove the next message").click()
    expect(chat.page.locator("#next")).to_be_hidden()
    expect(chat.page.locator("#message")).to_be_focused()
    hold.unlink()
    chat.expect_end()
    expect(chat.page.locator("#action")).to_have_attribute("data-mode", "send")
    assert len(chat.messages()) == 2


def test_two_tabs_of_one_conversation_send_the_next_message_once(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("tabs")
    first = new_page().open()
    first.send(directive(tokens=8, hold="tabs", hold_after=4))
    first.expect_reply("w4")
    from tests.browser.chat_page import ChatPage

    second = ChatPage(first.page.context.new_page(), first.url).open(first.conversation)
    second.expect_reply("w4")
    first.send(directive(text="once only"))
    expect(second.page.locator("#next")).to_contain_text("once only")
    hold.unlink()
    for tab in (first, second):
        tab.expect_reply("once only")
        tab.expect_end()
        expect(tab.page.locator("#next")).to_be_hidden()
    saved = httpx.get(
        f"{first.url}/v1/conversations/{first.conversation}",
        headers=stack.people["ada"].headers,
        **PATIENT,
    ).json()["messages"]
    assert [one["role"] for one in saved] == ["user", "assistant"] * 2
    assert second.faults == []


# --- composing, drafts, models --------------------------------------------------------------------


def test_the_enter_that_ends_a_composition_never_sends(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    field = chat.page.locator("#message")
    field.focus()
    keyboard = chat.page.context.new_cdp_session(chat.page)
    keyboard.send(
        "Input.imeSetComposition", {"text": "にほん", "selectionStart": 3, "selectionEnd": 3}
    )
    composing = {"key": "Process", "code": "Enter", "windowsVirtualKeyCode": 229}
    keyboard.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **composing})
    keyboard.send("Input.insertText", {"text": "日本"})
    for late in ({"isComposing": True}, {"keyCode": 229}):
        for key in ("Enter", "Escape"):
            field.evaluate(
                """(field, init) => field.dispatchEvent(new KeyboardEvent("keydown",
                  {bubbles: true, cancelable: true, ...init}))""",
                {"key": key, **late},
            )
    expect(field).to_have_value("日本")
    assert chat.messages() == []
    field.press("Enter")
    expect(field).to_have_value("")
    expect(chat.last_question.locator(".user-text")).to_have_text("日本")


def test_a_draft_survives_a_sign_out(
    stack: Stack, new_page: NewPage, cookies: dict[str, Any]
) -> None:
    chat = new_page().open()
    chat.send(f"Draft {directive(text='ok')}")
    chat.expect_end()
    conversation = chat.conversation
    chat.page.fill("#message", "for my eyes only")
    chat.page.context.clear_cookies()
    chat.page.goto(chat.url)
    expect(chat.page.get_by_role("heading", name="Sign in")).to_be_visible()
    chat.page.context.add_cookies(cookies["ada"])
    chat.open(conversation)
    expect(chat.page.locator("#message")).to_have_value("for my eyes only")


@pytest.mark.parametrize("device", DEVICES)
def test_models_are_a_menu_with_what_is_left(stack: Stack, new_page: NewPage, device: str) -> None:
    chat = new_page(**DEVICES[device])
    page = chat.page
    models = [
        {"id": "large", "title": "Ember Large", "default": True},
        {"id": "small", "title": "Ember Small", "default": False},
    ]
    messages = [
        {"model": "large", "limit": 40, "remaining": 0, "resets_at": BACK_AT},
        {"model": "small", "limit": None, "remaining": None, "resets_at": None},
    ]
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": models}))
    page.route("**/v1/usage", lambda route: route.fulfill(json={"limits": {"messages": messages}}))
    chat.open()
    button = page.get_by_role("button", name="Model for new messages: Ember Large")
    button.focus()
    page.keyboard.press("Enter")
    menu = page.get_by_role("menu", name="Model for new messages")
    large = menu.get_by_role("menuitemradio", name="Ember Large")
    expect(large).to_be_focused()
    expect(large).to_have_attribute("aria-checked", "true")
    expect(large).to_contain_text("Default · No message left, all back on")
    expect(menu.get_by_role("menuitemradio", name="Ember Small")).to_contain_text("No limit")
    snap(page, f"waiting-{device}-models.png")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Model for new messages: Ember Small")).to_be_focused()
    page.reload()
    expect(page.locator("#model")).to_contain_text("Ember Small")


def test_what_is_left_comes_from_the_product(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.page.get_by_role("button", name="Model for new messages").click()
    expect(chat.page.get_by_role("menuitemradio").first).to_contain_text("No limit")
    chat.page.keyboard.press("Escape")
    expect(chat.page.get_by_role("button", name="Model for new messages")).to_be_focused()


# --- the line -------------------------------------------------------------------------------------


def test_on_a_throttled_line_an_answer_is_whole_and_stop_is_at_once(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("slow")
    chat = new_page().open()
    line = chat.page.context.new_cdp_session(chat.page)
    slow = {"latency": 300, "downloadThroughput": 50_000, "uploadThroughput": 20_000}
    line.send("Network.emulateNetworkConditions", {"offline": False, **slow})
    chat.send(directive(tokens=60, hold="slow", hold_after=30))
    chat.expect_reply("w30")
    chat.page.keyboard.press("Escape")
    assert strip(chat) in ("Stopping", "Stopped. What was written is kept")
    chat.expect_strip("Stopped. What was written is kept")
    hold.unlink()
    chat.expect_end()
    assert chat.reply() == " ".join(f"w{number}" for number in range(1, 31))


def test_a_short_loss_of_the_line_is_told_and_made_up_for(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("loss")
    chat = new_page().open()
    chat.send(directive(tokens=40, hold="loss", hold_after=10))
    chat.expect_reply("w10")
    for _ in range(2):
        chat.page.context.set_offline(True)
        chat.expect_strip("You are offline")
        shoot(chat, "offline")
        chat.page.context.set_offline(False)
        expect(chat.page.locator("#strip")).not_to_contain_text("offline")
    hold.unlink()
    chat.expect_end()
    assert chat.reply() == " ".join(f"w{number}" for number in range(1, 41))


def _sleep(page: Page, minutes: int) -> None:
    """The machine sleeps: no timer fires, and the clock is ahead when it wakes."""
    now = page.evaluate("Date.now()")
    page.clock.set_system_time(now + minutes * 60_000)


def test_after_a_sleep_the_page_asks_again_from_its_cursor(stack: Stack, new_page: NewPage) -> None:
    chat = new_page()
    chat.page.clock.install()
    log = ScriptedLog(chat.page)
    chat.open()
    chat.send("Sleep")
    log.start()
    log.event("delta", text="before")
    chat.expect_reply("before")
    assert len(log.asked) == 0
    _sleep(chat.page, 10)
    chat.page.clock.run_for(6_000)
    chat.wait_until("window.__log.asked.length === 1")
    assert log.asked[0][1] is not None
    assert log.asked[0][1].endswith(":2")
    log.event("delta", text=" and after")
    chat.expect_reply("before and after")


def _hide(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", {configurable: true, value: hidden});
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_seen_again_after_long_the_page_does_not_trust_its_connection(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    chat.page.clock.install()
    log = ScriptedLog(chat.page)
    chat.open()
    chat.send("Hide")
    log.start()
    log.event("delta", text="before")
    chat.expect_reply("before")
    _hide(chat.page, hidden=True)
    _sleep(chat.page, 10)
    chat.page.clock.run_for(6_000)
    assert log.asked == []  # nobody looks
    _hide(chat.page, hidden=False)
    chat.wait_until("window.__log.asked.length === 1")
    log.event("delta", text=" and after")
    chat.expect_reply("before and after")


def test_tries_go_on_from_the_cursor_until_the_line_is_back(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    log = ScriptedLog(chat.page)
    chat.open()
    chat.send("Away")
    log.start()
    log.event("delta", text="before")
    chat.expect_reply("before")
    log.reach(reachable=False)
    log.cut()
    chat.expect_strip("Reconnecting, nothing is lost")
    chat.wait_until("window.__log.asked.length >= 2")
    log.reach(reachable=True)
    chat.page.evaluate("dispatchEvent(new Event('online'))")
    chat.wait_until("!document.getElementById('strip').textContent.includes('Reconnecting')")
    log.event("delta", text=" and after")
    chat.expect_reply("before and after")
    assert {cursor for _, cursor in log.asked} == {f"{RUN}:2"}
