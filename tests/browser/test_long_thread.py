"""A conversation of 500 messages: it opens fast, and nothing that is read moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.test_manners import PHONE
from tests.phone import PATIENT
from tests.stack import Stack, directive

if TYPE_CHECKING:
    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage

MESSAGES = 500
LINE_PX = 32
_MAKE = """
import os
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatproject.settings")
import django
django.setup()
from accounts.models import User
from bench.page_rows import make_long_thread
print(make_long_thread(User.objects.get(email="{email}"), {length}))
"""

# One step of a reader who scrolls: what is topmost must move by what was scrolled, and by no more.
_STEP = """
async (by) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const scroller = document.getElementById("scroller");
  const edge = scroller.getBoundingClientRect().top;
  const seen = [...document.querySelectorAll("#thread > .message")]
    .find((one) => one.getBoundingClientRect().bottom > edge);
  const before = seen.getBoundingClientRect().top;
  const topBefore = scroller.scrollTop;
  scroller.scrollBy({top: by, behavior: "instant"});
  const moved = scroller.scrollTop - topBefore;
  for (let count = 0; count < 3; count += 1) await frame();
  const jumped = seen.getBoundingClientRect().top - before + moved;
  return {jumped: Math.round(jumped), top: scroller.scrollTop, moved: Math.round(moved)};
}
"""


@contextmanager
def made(stack: Stack, length: int) -> Iterator[str]:
    """The id of a long conversation of ada's; deleted afterwards: other tests' lists stay short."""
    script = _MAKE.format(email=stack.people["ada"].email, length=length)
    conversation = stack.python("-c", script).strip()
    yield conversation
    headers = stack.people["ada"].headers
    url = f"{stack.webs[0].url}/v1/conversations/{conversation}"
    httpx.delete(url, headers=headers, **PATIENT).raise_for_status()


@pytest.fixture(scope="module")
def long_thread(stack: Stack) -> Iterator[str]:
    """One that no test changes."""
    with made(stack, MESSAGES) as conversation:
        yield conversation


def open_long(chat: ChatPage, conversation: str) -> None:
    chat.open(conversation)
    expect(chat.page.locator("#thread > .message").last).to_contain_text(f"Message {MESSAGES - 1}.")


def scroll_to_the_top(chat: ChatPage, by: int) -> list[int]:
    """How far what was read has moved by itself, at each step."""
    jumps: list[int] = []
    for _ in range(3_000):
        step: dict[str, Any] = chat.page.evaluate(_STEP, by)
        jumps.append(step["jumped"])
        if step["top"] <= 0 and not chat.page.locator("#earlier button").count():
            return jumps
    raise AssertionError("never at the top")


@pytest.mark.parametrize("device", [{}, PHONE], ids=["desktop", "phone"])
def test_scrolling_up_through_all_of_it_moves_nothing_that_is_read(
    new_page: NewPage, long_thread: str, device: dict[str, Any]
) -> None:
    chat = new_page(**device)
    open_long(chat, long_thread)
    jumps = scroll_to_the_top(chat, -700 if device else -500)
    # On a busy machine a reader may be faster than the drawing of older messages that have come.
    moved = [jump for jump in jumps if abs(jump) > 2]
    assert len(moved) <= 3, moved
    assert max(map(abs, jumps)) <= LINE_PX
    messages = chat.page.locator("#thread > .message")
    expect(messages).to_have_count(MESSAGES)
    expect(messages.first).to_contain_text("Message 0.")
    expect(chat.page.locator(".undrawn")).to_have_count(0)


def test_it_opens_with_only_what_is_near_drawn(new_page: NewPage, long_thread: str) -> None:
    chat = new_page()
    chat.page.add_init_script(
        """
        window.__idle = [];
        window.requestIdleCallback = (act) => window.__idle.push(act);
        """
    )
    open_long(chat, long_thread)
    undrawn = chat.page.locator(".undrawn")
    before = undrawn.count()
    assert before >= 10
    # Found and heard all the same.
    assert "\n- " in str(undrawn.first.text_content())
    assert chat.page.evaluate(f"window.find('Message {MESSAGES - 45}.')")
    chat.page.evaluate("window.__idle.pop()({timeRemaining: () => 0})")
    assert undrawn.count() < before
    chat.page.evaluate("window.__idle.pop()({timeRemaining: () => 50})")
    expect(undrawn).to_have_count(0)


def test_who_comes_back_is_where_they_were(
    stack: Stack, new_page: NewPage, long_thread: str
) -> None:
    chat = new_page()
    open_long(chat, long_thread)
    page = chat.page
    for _ in range(60):  # well above the page that opens
        chat.page.evaluate(_STEP, -900)
    where = """() => {
      const edge = document.getElementById("scroller").getBoundingClientRect().top;
      const seen = [...document.querySelectorAll("#thread > .message")]
        .find((one) => one.getBoundingClientRect().bottom > edge);
      return seen && [seen.dataset.id, Math.round(seen.getBoundingClientRect().top)];
    }"""
    before = page.evaluate(where)
    page.get_by_role("link", name="New chat").click()
    expect(page.get_by_role("heading", name="What is on your mind?")).to_be_visible()
    page.go_back()
    chat.wait_until(f"({where})()?.[0] === {before[0]!r}")
    page.wait_for_timeout(200)  # nothing moves it any more
    after = page.evaluate(where)
    assert after[0] == before[0]
    assert abs(after[1] - before[1]) <= 1
    expect(page.locator("#jump")).to_be_visible()

    # Whoever was at the end finds the end.
    page.locator("#jump").click()
    expect(page.locator("#jump")).to_be_hidden()
    page.get_by_role("link", name="New chat").click()
    page.go_back()
    expect(page.locator("#thread > .message").last).to_be_in_viewport()


def test_an_answer_that_streams_in_a_long_thread_is_followed_and_let_go(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("long")
    chat = new_page()
    with made(stack, 80) as conversation:
        follow_and_let_go(chat, conversation, hold)


def follow_and_let_go(chat: ChatPage, conversation: str, hold: Path) -> None:
    chat.open(conversation)
    expect(chat.page.locator("#thread > .message").last).to_contain_text("Message 79.")
    paragraphs = [f"Paragraph {number}.\n\n" for number in range(60)]
    chat.send(directive(pieces=paragraphs, hold="long", hold_after=30))
    chat.expect_reply("Paragraph 29.")
    scroller = chat.page.locator("#scroller")
    assert scroller.evaluate("s => s.scrollHeight - s.scrollTop - s.clientHeight < 4")
    for _ in range(10):
        assert abs(chat.page.evaluate(_STEP, -900)["jumped"]) <= 2
    before = chat.page.evaluate(_STEP, -1)["top"]
    hold.unlink()
    chat.expect_end()
    assert scroller.evaluate("s => s.scrollTop") == before
    chat.page.locator("#jump").click()
    chat.wait_until(
        "(() => { const s = document.getElementById('scroller');"
        " return s.scrollHeight - s.scrollTop - s.clientHeight < 4 })()"
    )
    expect(chat.page.locator(".reply").last.get_by_text("Paragraph 59.")).to_be_in_viewport()
