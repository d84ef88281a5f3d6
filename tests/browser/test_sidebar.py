"""The list, the palette, the shortcuts: what a person goes about with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx
from playwright.sync_api import expect

from tests.browser.test_manners import PHONE
from tests.browser.test_tree import say
from tests.phone import PATIENT
from tests.stack import Stack, directive

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

    from tests.browser.chat_page import ChatPage
    from tests.browser.conftest import NewPage

LIST = "**/v1/conversations?*"


def made_up(number: int, **more: Any) -> dict[str, Any]:
    """Conversation `number` of a long list: one every five hours, newest first."""
    at = datetime.now(UTC) - timedelta(hours=5 * number)
    return {
        "id": f"c_{number:032x}",
        "title": f"Conversation {number}",
        "active_leaf": f"m_{number:032x}",
        "last_activity": at.isoformat().replace("+00:00", "Z"),
        "created": at.isoformat().replace("+00:00", "Z"),
        **more,
    }


def long_list(
    page: Page,
    count: int,
    fails: Callable[[int], bool] = lambda start: False,
    second_page: int | None = None,
) -> list[int]:
    """The server's list is `count` made-up ones. `fails(start)`: no page from there.

    → where the pages began that were asked for. `second_page`: so many at once, to be quick.
    """
    items = [made_up(number) for number in range(count)]
    asked: list[int] = []

    def answer(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        start, limit = int(query.get("cursor", ["0"])[0]), int(query["limit"][0])
        asked.append(start)
        if fails(start):
            return route.fulfill(status=503, json={"error": {"code": "x", "message": "x"}})
        end = start + (second_page if second_page and start == 30 else limit)
        cursor = str(end) if end < count else None
        return route.fulfill(json={"items": items[start:end], "next_cursor": cursor})

    page.route(LIST, answer)
    return asked


def rows(page: Page) -> Locator:
    return page.locator(".conversation-item")


def shown_titles(page: Page) -> list[str]:
    """The rows that are seen in the list's window, from above."""
    found: list[str] = page.evaluate(
        """() => {
          const frame = document.getElementById("conversations").getBoundingClientRect();
          return [...document.querySelectorAll(".conversation-link")].filter((link) => {
            const { top, bottom } = link.getBoundingClientRect();
            return top >= frame.top && bottom <= frame.bottom;
          }).map((link) => link.textContent);
        }"""
    )
    return found


def scroll_list(chat: ChatPage, px: int) -> None:
    """And wait for the frame in which the rows are drawn."""
    chat.page.evaluate(
        """(px) => new Promise((done) => {
          document.getElementById("conversations").scrollTop = px;
          requestAnimationFrame(() => requestAnimationFrame(done));
        })""",
        px,
    )


def open_palette(page: Page) -> Locator:
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search conversations and commands")
    expect(field).to_be_focused()
    return field


def chosen(page: Page) -> str:
    """The option that the field names as active."""
    text: str = page.evaluate(
        """() => {
          const id = document.activeElement.getAttribute("aria-activedescendant");
          const option = id && document.getElementById(id);
          return option ? option.querySelector(".palette-label").textContent : "";
        }"""
    )
    return text


def test_ten_thousand_conversations_by_day_with_few_of_them_in_the_page(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    page = chat.page
    asked = long_list(page, 10_000, second_page=9_750)
    chat.open()
    expect(rows(page).first).to_be_visible()
    headings = page.locator(".day h2")
    expect(headings.first).to_have_text("Today")
    assert {"Yesterday", "Previous 7 days"} <= set(headings.all_inner_texts())
    chat.wait_until(
        """(() => {
          const list = document.getElementById("conversations");
          list.scrollTop = list.scrollHeight;
          return document.querySelector(".list-end").hidden;
        })()"""
    )
    assert [start for start in asked if start] == [30, 9_780, 9_880, 9_980]
    chat.wait_until("document.querySelector(\"[data-item$='270f']\") !== null")  # 9,999
    assert rows(page).count() < 150
    assert shown_titles(page)[-1] == "Conversation 9999"
    expect(page.get_by_role("link", name="Conversation 9999")).to_be_visible()
    longest_ms = page.evaluate(
        """() => new Promise((done) => {
          const list = document.getElementById("conversations");
          let [longest, before, left] = [0, performance.now(), 60];
          const step = (now) => {
            longest = Math.max(longest, now - before);
            before = now;
            list.scrollTop -= 2_500;
            if (left -= 1) requestAnimationFrame(step);
            else done(longest);
          };
          requestAnimationFrame(step);
        })"""
    )
    assert longest_ms < 1_000, longest_ms  # a whole redraw of such a list takes seconds
    scroll_list(chat, 100_000)
    assert len(shown_titles(page)) > 5
    assert rows(page).count() < 150


def test_a_page_that_fails_says_so_and_is_asked_for_again(stack: Stack, new_page: NewPage) -> None:
    chat = new_page()
    page = chat.page
    broken = {30, 0}
    asked = long_list(page, 60, lambda start: start in broken)
    chat.open()
    expect(page.locator(".conversations .list-note")).to_contain_text("could not be loaded")
    broken.remove(0)
    page.get_by_role("button", name="Try again").click()
    expect(rows(page)).to_have_count(30)
    page.locator(".conversation-link").last.scroll_into_view_if_needed()
    expect(page.locator(".list-end .list-note")).to_have_text(
        "Older conversations could not be loaded."
    )
    again = page.locator(".list-end").get_by_role("button", name="Try again")
    assert asked.count(30) == 1, "only the reader asks again"
    broken.clear()
    again.focus()
    page.keyboard.press("Enter")
    expect(rows(page)).to_have_count(60)
    assert page.evaluate("document.activeElement !== document.body")


def test_what_happens_elsewhere_moves_neither_the_focus_nor_the_place(
    stack: Stack, new_page: NewPage
) -> None:
    url, headers = stack.webs[-1].url, stack.people["ada"].headers
    with httpx.Client(base_url=url, headers=headers, **PATIENT) as api:

        def make(title: str) -> str:
            made = api.post("/v1/conversations", json={"title": title}).raise_for_status()
            conversation: str = made.json()["id"]
            return conversation

        made = [make(f"Row {number}") for number in range(25)]
        chat = new_page(viewport={"width": 1000, "height": 500}).open()
        page = chat.page
        expect(page.locator(f'[data-item="{made[0]}"]')).to_be_attached()
        expect(page.locator(f'[data-item="{made[-1]}"]')).to_be_visible()
        focused = page.locator(f'[data-item="{made[12]}"] a')
        focused.focus()
        focused.scroll_into_view_if_needed()
        scroll_list(
            chat, int(page.evaluate("document.getElementById('conversations').scrollTop")) + 20
        )
        top = focused.bounding_box()
        assert top
        assert page.evaluate("document.getElementById('conversations').scrollTop") > 0

        fresh = make("Made elsewhere")
        expect(page.locator(f'[data-item="{fresh}"]')).to_be_attached()
        first = page.locator(".day").first
        expect(first.locator("h2")).to_have_text("Today")
        assert first.locator(f'[data-item="{fresh}"]').count() == 1
        expect(focused).to_be_focused()
        assert abs(focused.bounding_box()["y"] - top["y"]) < 2  # type: ignore[index]

        api.patch(f"/v1/conversations/{made[20]}", json={"title": "New name"}).raise_for_status()
        expect(page.locator(f'[data-item="{made[20]}"] a')).to_have_text("New name")
        api.delete(f"/v1/conversations/{made[22]}").raise_for_status()
        expect(page.locator(f'[data-item="{made[22]}"]')).to_have_count(0)
        expect(focused).to_be_focused()
        assert abs(focused.bounding_box()["y"] - top["y"]) < 2  # type: ignore[index]

        api.delete(f"/v1/conversations/{made[12]}").raise_for_status()
        expect(focused).to_have_count(0)
        expect(page.locator(f'[data-item="{made[11]}"] a')).to_be_focused()
        for conversation in [*made, fresh]:
            api.delete(f"/v1/conversations/{conversation}")


def test_an_old_conversation_that_is_spoken_in_comes_to_the_top(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    page = chat.page
    chat.send(say("moves up"))
    chat.expect_end()
    conversation = chat.conversation
    stack.execute(
        "UPDATE conversations_conversation SET last_activity = now() - interval '40 days'"
        " WHERE id = %s::uuid",
        conversation.removeprefix("c_"),
    )
    page.reload()
    row = page.locator(f'[data-item="{conversation}"]')
    today = page.locator('[data-day="today"]')
    # Further down, or below the first page where other tests have spoken much.
    expect(page.locator("#conversations")).to_have_attribute("aria-busy", "false")
    assert today.locator(f'[data-item="{conversation}"]').count() == 0
    chat.send(say("again"))
    chat.expect_end()
    expect(today.locator(f'[data-item="{conversation}"]')).to_be_visible()
    assert row.count() == 1


def test_the_palette_goes_to_a_conversation_and_gives_the_focus_back(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    page = chat.page
    asked = long_list(page, 700)
    chat.open()
    expect(rows(page).first).to_be_visible()
    page.get_by_role("link", name="Conversation 3", exact=True).focus()
    field = open_palette(page)
    listbox = page.get_by_role("listbox")
    expect(listbox.get_by_role("group", name="Recent conversations")).to_be_visible()
    assert chosen(page) == "Conversation 0"
    page.keyboard.press("ArrowDown")
    assert chosen(page) == "Conversation 1"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert chosen(page) == "Keyboard shortcuts"
    expect(listbox.get_by_role("option", selected=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Conversation 3", exact=True)).to_be_focused()

    field = open_palette(page)
    field.fill("no such title")
    expect(page.locator(".palette-status")).to_have_text("Nothing was found.")
    expect(field).to_have_attribute("aria-expanded", "false")
    assert asked[-1] == 630
    field.fill("conversation 666")
    expect(listbox.get_by_role("option")).to_have_count(1)
    assert chosen(page) == "Conversation 666"
    expect(page.locator(".palette-status")).to_have_text("1 result")
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.wait_for_url(f"**/c/c_{666:032x}")
    page.keyboard.press("Control+k")
    page.keyboard.press("Control+k")
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_a_row_of_the_palette_is_pressed_though_the_list_changes_under_the_finger(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page()
    page = chat.page
    long_list(page, 40)
    chat.open()
    field = open_palette(page)
    field.fill("conversation 3")
    box = page.get_by_role("option", name="Conversation 3", exact=False).first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    # The finger is down while more is typed, which leaves this row where it is.
    page.keyboard.type("  ")
    page.keyboard.press("ArrowDown")
    page.mouse.up()
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.wait_for_url(f"**/c/c_{3:032x}")


def test_a_theme_colours_the_browsers_bar_and_the_last_choice_wins(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    page = chat.page
    bar = page.locator("meta[name=theme-color]")
    held: list[Route] = []
    page.route("**/v1/me/preferences", lambda route: held.append(route))
    for theme in ("dark", "light"):
        open_palette(page).fill(f"theme: {theme}")
        page.keyboard.press("Enter")
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        expect(bar).to_have_count(1)
    expect(bar).to_have_attribute("content", "#faf7f3")
    # The second waits until the first has arrived.
    assert [route.request.post_data_json for route in held] == [{"theme": "dark"}]
    held[0].fulfill(status=200, json={})
    until_s = time.monotonic() + 30
    while len(held) < 2 and time.monotonic() < until_s:
        page.wait_for_timeout(20)
    assert held[1].request.post_data_json == {"theme": "light"}
    held[1].fulfill(status=200, json={})
    page.unroute("**/v1/me/preferences")
    open_palette(page).fill("theme: like")
    page.keyboard.press("Enter")
    expect(bar).to_have_count(2)


def test_commands_of_the_palette(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("palette")
    chat = new_page(permissions=["clipboard-read", "clipboard-write"]).open()
    page = chat.page

    def command(text: str, name: str) -> None:
        open_palette(page).fill(text)
        expect(page.get_by_role("option", name=name)).to_have_attribute("aria-selected", "true")
        page.keyboard.press("Enter")
        expect(page.locator("dialog.palette")).to_be_hidden()

    open_palette(page)
    for absent in ("Stop the answer", "Copy the last answer", "Rename this", "Delete this"):
        expect(page.get_by_role("option", name=absent)).to_have_count(0)
    page.keyboard.press("Escape")
    chat.send(directive(text="one two three four", hold="palette", hold_after=1))
    chat.expect_reply("one")
    command("stop", "Stop the answer")
    chat.expect_end()
    chat.expect_strip("Stopped")
    hold.unlink(missing_ok=True)
    conversation = chat.conversation

    command("copy", "Copy the last answer")
    expect(page.locator("#notice")).to_have_text("The last answer is copied.")
    assert page.evaluate("navigator.clipboard.readText()").startswith("one")

    command("rename", "Rename this conversation")
    name = page.get_by_role("textbox", name="Title")
    expect(name).to_be_focused()
    name.fill("Named by command")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Named by command")

    command("delete", "Delete this conversation")
    expect(page.get_by_role("heading", name="What is on your mind?")).to_be_visible()
    expect(page.locator("#undo-button")).to_be_focused()
    page.keyboard.press("Control+z")
    page.wait_for_url(f"**/c/{conversation}")

    command("new", "New chat")
    expect(page.locator("#message")).to_be_focused()
    assert urlsplit(page.url).path == "/"
    command("settings", "Settings and account")
    page.wait_for_url("**/accounts/**")


def test_shortcuts(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("keys")
    chat = new_page(permissions=["clipboard-read", "clipboard-write"]).open()
    page = chat.page
    chat.send(directive(text="alpha beta gamma", hold="keys", hold_after=1))
    chat.expect_reply("alpha")
    page.keyboard.press("Escape")
    chat.expect_end()
    chat.expect_strip("Stopped")
    hold.unlink(missing_ok=True)
    page.keyboard.press("Control+Shift+C")
    expect(page.locator("#notice")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("alpha")

    page.locator("#message").focus()
    page.keyboard.type("what? /")
    expect(page.locator("#message")).to_have_value("what? /")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Edit your message")).to_have_count(0)
    page.fill("#message", "")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("textbox", name="Edit your message")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("textbox", name="Edit your message")).to_have_count(0)

    page.locator("#content").focus()
    page.keyboard.press("/")
    expect(page.locator("#message")).to_be_focused()
    expect(page.locator("#message")).to_have_value("")
    page.keyboard.press("Control+Shift+O")
    expect(page.get_by_role("heading", name="What is on your mind?")).to_be_visible()
    expect(page.locator("#message")).to_be_focused()


def test_the_help_sheet_and_the_switch_for_single_keys(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    page = chat.page
    page.locator("#content").focus()
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(sheet).to_be_visible()
    expect(sheet).to_contain_text("Copy the last answer")
    page.keyboard.press("Control+Shift+O")
    expect(sheet).to_be_visible()
    sheet.get_by_role("checkbox").uncheck()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(page.locator("#content")).to_be_focused()
    page.reload()
    expect(page.locator("#model")).not_to_be_empty()
    page.locator("#content").focus()
    page.keyboard.press("?")
    page.keyboard.press("/")
    expect(page.locator("#content")).to_be_focused()
    open_palette(page).fill("shortcuts")
    page.keyboard.press("Enter")
    expect(sheet).to_be_visible()


def test_the_way_back_closes_the_sheet_of_a_phone(stack: Stack, new_page: NewPage) -> None:
    chat = new_page(**PHONE).open()
    page = chat.page
    chat.send(say("under the sheet"))
    chat.expect_end()
    conversation = chat.conversation
    sidebar = page.locator("#sidebar")
    show = page.get_by_role("button", name="Show your conversations")
    show.click()
    expect(page.get_by_role("button", name="Close the list")).to_be_focused()
    assert page.evaluate("document.querySelector('.skip-link').inert")
    page.go_back()
    expect(sidebar).to_be_hidden()
    expect(show).to_be_focused()
    assert chat.conversation == conversation
    chat.expect_reply("under the sheet")

    page.reload()
    show.click()
    page.locator("#scrim").click(position={"x": 380, "y": 400})
    expect(sidebar).to_be_hidden()
    chat.wait_until("history.state === null")

    show.click()
    page.get_by_role("link", name="New chat").click()
    expect(sidebar).to_be_hidden()
    expect(page.get_by_role("heading", name="What is on your mind?")).to_be_visible()
    page.go_back()
    chat.expect_reply("under the sheet")
    expect(sidebar).to_be_hidden()

    show.click()
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(sidebar).to_be_visible()
    page.set_viewport_size({"width": 900, "height": 800})
    chat.wait_until("!document.getElementById('conversation').inert")


def swipe(page: Page, selector: str, from_x: int, to_x: int) -> None:
    page.evaluate(
        """([selector, ...xs]) => {
          const target = document.querySelector(selector);
          const touch = (x) => new Touch({ identifier: 1, target, clientX: x, clientY: 300 });
          const send = (name, x, touches) => target.dispatchEvent(
            new TouchEvent(name, { bubbles: true, touches, changedTouches: [touch(x)] }));
          send("touchstart", xs[0], [touch(xs[0])]);
          send("touchend", xs[1], []);
        }""",
        [selector, from_x, to_x],
    )


def test_a_sweep_of_the_thumb_brings_the_sheet_and_sends_it_away(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page(**PHONE).open()
    page = chat.page
    chat.send(directive(text="```\n" + "wide " * 80 + "\n```"))
    chat.expect_end()
    sidebar = page.locator("#sidebar")
    swipe(page, ".reply pre", 100, 250)  # code that scrolls sideways itself
    swipe(page, "#thread", 250, 100)
    expect(sidebar).to_be_hidden()
    swipe(page, "#thread", 100, 250)
    expect(sidebar).to_be_visible()
    swipe(page, "#conversations", 250, 100)
    expect(sidebar).to_be_hidden()
    page.evaluate("document.documentElement.dir = 'rtl'")
    swipe(page, "#thread", 250, 100)
    expect(sidebar).to_be_visible()


def test_before_the_list_is_there_its_place_is_kept(stack: Stack, new_page: NewPage) -> None:
    chat = new_page()
    page = chat.page
    waiting: list[Route] = []
    page.route(LIST, lambda route: waiting.append(route))
    chat.open()
    expect(page.locator(".list-skeleton")).to_be_visible()
    expect(page.locator("#conversations")).to_have_attribute("aria-busy", "true")
    before = page.locator("#sidebar").bounding_box()
    for route in waiting:
        route.fulfill(body=json.dumps({"items": [], "next_cursor": None}))
    expect(page.locator(".list-note")).to_have_text("Your conversations will be listed here.")
    expect(page.locator("#conversations")).to_have_attribute("aria-busy", "false")
    assert page.locator("#sidebar").bounding_box() == before
