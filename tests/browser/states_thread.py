"""The conversation: what is written, read and changed in it."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.state_table import state
from tests.browser.state_world import Scene


@state("empty", forced=True)
def _(scene: Scene) -> None:
    scene.open()
    expect(scene.page.get_by_role("heading", name="What is on your mind?")).to_be_visible()


@state("draft")
def _(scene: Scene) -> None:
    scene.open()
    scene.page.fill("#message", "A first line.\n\nAnd a second thought, which is longer. " * 4)


@state("first answer", forced=True)
def _(scene: Scene) -> None:
    scene.open()
    scene.ask()


@state("streaming", forced=True)
def _(scene: Scene) -> None:
    scene.streaming()


@state("code")
def _(scene: Scene) -> None:
    scene.open("code")
    scene.chat.expect_reply("unique([3, 1, 3])")
    expect(scene.chat.last_reply.locator(".code-keyword").first).to_be_visible()


@state("tables")
def _(scene: Scene) -> None:
    scene.open("table")
    scene.chat.expect_reply("Lisbon is the largest")


@state("arabic answer")
def _(scene: Scene) -> None:
    scene.open("arabic")
    scene.chat.expect_reply("rainbow")


@state("long conversation", walk=False)
def _(scene: Scene) -> None:
    scene.open("long")
    scene.chat.expect_reply("Lighthouse 60")
    scene.page.locator("#scroller").evaluate("one => { one.scrollTop = one.scrollHeight / 2 }")
    expect(scene.page.locator("#jump")).to_be_visible()


@state("versions")
def _(scene: Scene) -> None:
    scene.open()
    scene.ask()
    scene.chat.regenerate()
    scene.chat.expect_version(scene.chat.last_reply, "2/2")
    scene.chat.expect_end()


@state("editing", forced=True)
def _(scene: Scene) -> None:
    scene.open("table")
    scene.chat.last_question.hover()
    scene.chat.last_question.get_by_role("button", name="Edit your message").click()
    expect(scene.page.get_by_label("Edit your message")).to_be_focused()


@state("feedback form")
def _(scene: Scene) -> None:
    scene.open()
    scene.ask()
    scene.chat.last_reply.get_by_role("button", name="Bad answer").click()
    expect(scene.page.get_by_label("What was wrong with it? (optional)")).to_be_visible()


@state("menu open", resizes=False, walk=False)
def _(scene: Scene) -> None:
    scene.open("table")
    scene.page.get_by_role("button", name="More about this conversation").click()
    expect(scene.page.get_by_role("menuitem", name="Rename")).to_be_focused()


@state("renaming")
def _(scene: Scene) -> None:
    scene.open("table")
    scene.chat.choose("Rename")
    expect(scene.page.get_by_role("textbox", name="Title")).to_be_focused()


@state("undo bar", forced=True)
def _(scene: Scene) -> None:
    scene.open()
    scene.ask()
    scene.chat.choose("Delete")
    expect(scene.page.get_by_role("button", name="Undo", exact=True)).to_be_focused()


@state("sheet open", phone=True)
def _(scene: Scene) -> None:
    scene.open("long")
    scene.page.get_by_role("button", name="Show your conversations").click()
    expect(scene.page.get_by_role("button", name="Close the list")).to_be_focused()


@state("maths")
def _(scene: Scene) -> None:
    scene.open("maths")
    expect(scene.chat.last_reply.locator(".math-display math").first).to_be_visible()


@state("diagram offered")
def _(scene: Scene) -> None:
    scene.open("diagram")
    expect(scene.chat.last_reply.get_by_role("button", name="Draw the diagram")).to_be_visible()


@state("diagram drawn", walk=False)
def _(scene: Scene) -> None:
    scene.open("diagram")
    scene.chat.last_reply.get_by_role("button", name="Draw the diagram").click()
    drawn = scene.chat.last_reply.locator("iframe.drawn")
    expect(drawn).to_be_visible()
    box = drawn.bounding_box()
    assert box
    assert box["width"] > 500, "its letters can be read"


@state("details of an answer", forced=True)
def _(scene: Scene) -> None:
    scene.open()
    scene.ask()
    scene.chat.last_reply.get_by_role("button", name="Details:").click()
    details = scene.chat.last_reply.get_by_role("group", name="Details of this answer")
    expect(details).to_contain_text("Finished after")


@state("large message")
def _(scene: Scene) -> None:
    scene.open()
    scene.page.fill("#message", "A long report, and then some. " * 700)
    expect(scene.page.locator("#size")).to_contain_text("A long message")


@state("message too large")
def _(scene: Scene) -> None:
    scene.open()
    scene.chat.send("A report of many hundred pages. " * 6_000)
    expect(scene.page.locator("#size")).to_contain_text("Too long to send")
    scene.chat.expect_strip("Your message is too long")
