"""How the page behaves: composer, scroll, announcements, directions, phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.stack import Stack, directive

if TYPE_CHECKING:
    from tests.browser.conftest import NewPage

PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}


def test_the_shell_paints_before_any_script(new_page: NewPage) -> None:
    chat = new_page(java_script_enabled=False)
    chat.page.goto(chat.url)
    expect(chat.page.locator("#message")).to_be_visible()
    expect(chat.page.get_by_role("link", name="New chat")).to_be_visible()


def test_enter_sends_shift_enter_does_not_and_composition_neither(
    stack: Stack, new_page: NewPage
) -> None:
    chat = new_page().open()
    field = chat.page.locator("#message")
    field.fill("に")
    for event in ({"isComposing": True}, {"keyCode": 229}):
        field.evaluate(
            """(field, event) => field.dispatchEvent(new KeyboardEvent(
              "keydown", {key: "Enter", bubbles: true, cancelable: true, ...event}))""",
            event,
        )
    assert chat.messages() == []
    field.press("Shift+Enter")
    field.type(directive(text="sent"))
    assert chat.messages() == []
    field.press("Enter")
    chat.expect_reply("sent")
    assert chat.messages()[0].startswith("に\n")
    expect(field).to_have_value("")
    expect(field).to_be_focused()


def test_nothing_empty_is_sent_and_one_button_sends_or_stops(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("button")
    chat = new_page().open()
    button = chat.page.locator("#action")
    expect(button).to_have_attribute("aria-disabled", "true")
    chat.send(" \n ")
    assert chat.messages() == []
    chat.page.fill("#message", directive(tokens=5, hold="button", hold_after=2))
    expect(button).to_have_attribute("aria-disabled", "false")
    expect(button).to_have_accessible_name("Send")
    button.click()
    expect(button).to_have_accessible_name("Stop the answer")
    chat.expect_reply("w2")
    chat.page.fill("#message", "written meanwhile")
    expect(button).to_have_accessible_name("Stop the answer")
    hold.unlink()
    chat.expect_end()
    expect(chat.page.locator("#message")).to_have_value("written meanwhile")
    expect(button).to_have_accessible_name("Send")


def test_start_and_end_are_announced_once_and_words_never(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.page.evaluate(
        """() => {
          const region = document.getElementById("announcer");
          window.__heard = [];
          new MutationObserver(() => region.textContent && window.__heard.push(region.textContent))
            .observe(region, {childList: true, characterData: true, subtree: true});
        }"""
    )
    chat.send(directive(tokens=60, tokens_per_s=60))
    chat.expect_end()
    chat.wait_until("window.__heard.includes('Answer finished.')")
    assert chat.page.evaluate("window.__heard") == ["Hearth is answering.", "Answer finished."]
    live = chat.page.locator("[aria-live], [role=status], [role=alert], [role=log]")
    assert live.evaluate_all("all => all.map(one => one.id)") == ["announcer"]


def test_blocks_that_are_finished_keep_their_nodes(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("blocks")
    chat = new_page().open()
    paragraphs = [f"Paragraph {number}.\n\n" for number in range(12)]
    chat.send(directive(pieces=paragraphs, hold="blocks", hold_after=8))
    chat.expect_reply("Paragraph 7.")
    chat.page.evaluate(
        """() => {
          window.__first = document.querySelector(".block");
          getSelection().selectAllChildren(window.__first);
        }"""
    )
    hold.unlink()
    chat.expect_end()
    assert chat.page.evaluate("window.__first === document.querySelector('.block')")
    assert chat.page.evaluate("getSelection().toString()").strip() == "Paragraph 0."


def test_a_long_code_block_grows_in_place(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("code")
    chat = new_page().open()
    # Four lines to a piece: an answer is cut after 1,024 pieces.
    lines = ["".join(f"line {n}\n" for n in range(at, at + 4)) for at in range(0, 3_000, 4)]
    code = ["```python\n", *lines, "```\n\nDone."]
    chat.send(directive(pieces=code, hold="code", hold_after=200))
    chat.expect_reply("line 790")
    chat.page.evaluate("() => { window.__code = document.querySelector('.reply code') }")
    hold.unlink()
    chat.expect_reply("Done.")
    chat.expect_end()
    assert chat.page.evaluate("window.__code.isConnected")
    # Without the line end before the closing marks: it comes and goes while a block is written.
    assert chat.page.evaluate("window.__code.textContent") == "".join(lines).rstrip("\n")


def test_a_paste_that_no_message_can_carry_is_refused(stack: Stack, new_page: NewPage) -> None:
    chat = new_page().open()
    chat.page.fill("#message", "kept ")
    chat.page.locator("#message").evaluate(
        """field => {
          const data = new DataTransfer();
          data.setData("text/plain", "x".repeat(2 * 1024 * 1024));
          const paste = {clipboardData: data, bubbles: true, cancelable: true};
          window.__refused = !field.dispatchEvent(new ClipboardEvent("paste", paste));
        }"""
    )
    assert chat.page.evaluate("window.__refused")
    chat.expect_strip("Nothing was pasted")
    expect(chat.page.locator("#message")).to_have_value("kept ")
    chat.send(directive(text="goes on"))
    chat.expect_reply("goes on")


def test_the_end_is_followed_only_while_the_reader_is_there(
    stack: Stack, new_page: NewPage
) -> None:
    hold = stack.hold("scroll")
    chat = new_page().open()
    paragraphs = [f"Paragraph {number}.\n\n" for number in range(80)]
    chat.send(directive(pieces=paragraphs, hold="scroll", hold_after=40))
    chat.expect_reply("Paragraph 39.")
    at_end = "s => s.scrollHeight - s.scrollTop - s.clientHeight < 4"
    scroller = chat.page.locator("#scroller")
    assert scroller.evaluate(at_end)
    scroller.hover()
    chat.page.mouse.wheel(0, -400)
    expect(chat.page.locator("#jump")).to_be_visible()
    before = scroller.evaluate("s => s.scrollTop")
    hold.unlink()
    chat.expect_end()
    assert scroller.evaluate("s => s.scrollTop") == before
    chat.page.locator("#jump").click()
    expect(chat.page.locator("#jump")).to_be_hidden()
    assert scroller.evaluate(at_end)


def test_each_block_has_its_own_direction_and_code_is_left_to_right(
    stack: Stack, new_page: NewPage
) -> None:
    arabic = "قوس قزح جميل"
    answer = (
        f"{arabic}\n\nEnglish here.\n\n`print()` {arabic}\n\n- {arabic}\n- {arabic}\n\n"
        f"```\nx = '{arabic}'\n```\n"
    )
    chat = new_page().open()
    chat.send(directive(text=answer))
    chat.expect_end()
    directions = chat.page.locator(".reply .block > *").evaluate_all(
        "all => all.map(one => [one.tagName, getComputedStyle(one).direction])"
    )
    assert directions == [
        ["P", "rtl"],
        ["P", "ltr"],
        ["P", "rtl"],
        ["UL", "rtl"],
        ["DIV", "ltr"],
    ]
    codes = chat.page.locator(".reply code").evaluate_all(
        "all => all.map(one => getComputedStyle(one).direction)"
    )
    assert codes == ["ltr", "ltr"]


def test_text_is_shown_byte_for_byte(stack: Stack, new_page: NewPage) -> None:
    text = "👨‍👩‍👧‍👦 क्षत्रिय 中文 e\u0301 data: x"
    chat = new_page().open()
    chat.send(f"{text} {directive(pieces=list(text))}")
    chat.expect_end()
    assert chat.reply() == text
    assert chat.page.locator(".user-text").inner_text().startswith(text)
    chat.page.reload()
    chat.expect_reply("data: x")
    assert chat.reply() == text


def test_copy_gives_the_markdown(stack: Stack, new_page: NewPage) -> None:
    chat = new_page(permissions=["clipboard-read", "clipboard-write"]).open()
    chat.send(directive(text="A **bold** `word`."))
    chat.expect_end()
    chat.last_reply.get_by_role("button", name="Copy").click()
    expect(chat.last_reply.get_by_role("button", name="Copied")).to_be_visible()
    assert chat.page.evaluate("navigator.clipboard.readText()") == "A **bold** `word`."


def test_on_a_phone_the_list_is_a_sheet(stack: Stack, new_page: NewPage) -> None:
    chat = new_page(**PHONE).open()
    chat.send(f"Phone {directive(text='hello')}")
    chat.expect_end()
    page = chat.page
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    sidebar = page.locator("#sidebar")
    expect(sidebar).to_be_hidden()
    page.get_by_role("button", name="Show your conversations").click()
    expect(sidebar).to_be_visible()
    expect(page.get_by_role("button", name="Close the list")).to_be_focused()
    assert page.evaluate("document.getElementById('conversation').inert")
    page.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    expect(page.get_by_role("button", name="Show your conversations")).to_be_focused()
    page.get_by_role("button", name="Show your conversations").click()
    page.get_by_role("link", name="New chat").click()
    expect(sidebar).to_be_hidden()
    expect(page.get_by_role("heading", name="What is on your mind?")).to_be_visible()


def test_keyboard_reaches_everything_and_focus_is_seen(new_page: NewPage) -> None:
    chat = new_page().open()
    chat.page.keyboard.press("Tab")
    expect(chat.page.get_by_role("link", name="Skip to content")).to_be_focused()
    wanted, reached = {"brand", "new-conversation", "message", "action"}, set[str]()
    for _ in range(500):  # the list may hold a page of others' conversations, two stops each
        if wanted <= reached:
            break
        chat.page.keyboard.press("Tab")
        focused = chat.page.evaluate(
            """() => {
              const one = document.activeElement;
              const style = getComputedStyle(one);
              const shell = getComputedStyle(one.closest("form") ?? one);
              const seen = style.outlineStyle !== "none" || shell.boxShadow !== "none";
              return one === document.body ? null : [one.id || one.className || one.tagName, seen];
            }"""
        )
        if focused:
            reached.add(focused[0])
            assert focused[1], f"no visible focus on {focused[0]}"
    assert wanted <= reached


def test_every_animation_rests_under_reduced_motion(stack: Stack, new_page: NewPage) -> None:
    hold = stack.hold("calm")
    chat = new_page(reduced_motion="reduce").open()
    chat.send(directive(tokens=2, hold="calm"))
    expect(chat.page.locator(".thinking")).to_be_visible()
    chat.wait_until(
        "document.getAnimations().every((animation) => animation.playState === 'finished')"
    )
    hold.unlink()
    chat.expect_end()
