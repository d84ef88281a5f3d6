"""What is waited for, refused, cut off: each has its words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.state_table import state
from tests.browser.state_world import RAINBOW, SLOTS, Scene
from tests.phone import post_message
from tests.stack import directive

if TYPE_CHECKING:
    from playwright.sync_api import Route


@state("waiting for the first word")
def _(scene: Scene) -> None:
    scene.open()
    scene.chat.send("What makes a rainbow? " + scene.hold(tokens=5))
    scene.chat.expect_strip("Reading your message")
    expect(scene.page.locator(".thinking")).to_be_visible()


@state("queue")
def _(scene: Scene) -> None:
    taken = scene.hold(tokens=3)
    url, crowd = scene.chat.url, scene.world.people["crowd"].headers
    for _number in range(SLOTS + 2):
        post_message(url, crowd, taken)
    scene.exit.callback(scene.world.clear, "crowd")
    scene.open()
    scene.chat.send("What makes a rainbow? " + directive(text=RAINBOW))
    scene.chat.expect_strip("in line")


@state("refused", person="cleo")
def _(scene: Scene) -> None:
    scene.open()
    for _number in range(2):
        scene.chat.send("What makes a rainbow? " + directive(text=RAINBOW))
        scene.chat.expect_end()
    scene.chat.expect_strip("Too many messages just now")


@state("offline")
def _(scene: Scene) -> None:
    scene.streaming()
    scene.context.set_offline(True)
    scene.exit.callback(scene.context.set_offline, False)
    scene.chat.expect_strip("You are offline")


@state("reconnecting")
def _(scene: Scene) -> None:
    scene.streaming()
    conversation = scene.chat.conversation
    scene.page.route("**/v1/runs/*/stream*", lambda route: route.abort())
    scene.chat.open(conversation)
    scene.chat.expect_strip("Reconnecting, nothing is lost")


@state("recovered")
def _(scene: Scene) -> None:
    scene.open()
    held = scene.hold(text=RAINBOW, cut_after=8, hold_after=12)
    scene.chat.send("What makes a rainbow? " + held)
    scene.chat.expect_strip("Continued on another machine")


@state("interrupted")
def _(scene: Scene) -> None:
    scene.open()
    scene.ask(text=RAINBOW, broken_at=6)
    scene.chat.expect_strip("What was written is kept")


@state("stopped", forced=True)
def _(scene: Scene) -> None:
    scene.streaming()
    scene.chat.stop()
    scene.chat.expect_strip("Stopped. What was written is kept")
    scene.chat.expect_end()


@state("retracted")
def _(scene: Scene) -> None:
    scene.page.route("**/v1/conversations/new/messages", _retract)
    scene.open()
    scene.chat.send("What must not be said?")
    scene.chat.expect_reply("taken back")
    scene.chat.expect_end()


def _retract(route: Route) -> None:
    """What moderation will do, from a scripted log."""
    start = {"user_msg": "m_1", "reply_msg": "m_2", "conversation": "c_1", "model": "sim"}
    done = {"finish": "moderation", "usage": {"output_tokens": 3}, "active_leaf": "m_2"}
    events: list[tuple[str, dict[str, Any]]] = [
        ("start", {"run": "g_1", **start}),
        ("delta", {"text": "Something that"}),
        ("retract", {"text": "This answer was taken back."}),
        ("done", done),
    ]
    body = "".join(
        f"id: g_1:{number}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
        for number, (name, data) in enumerate(events, 1)
    )
    route.fulfill(status=200, content_type="text/event-stream", body=body)


@state("paste refused")
def _(scene: Scene) -> None:
    scene.open()
    scene.page.locator("#message").evaluate(
        """(field) => {
          const data = new DataTransfer();
          data.setData("text/plain", "x".repeat(2 * 1024 * 1024));
          const paste = {clipboardData: data, bubbles: true, cancelable: true};
          field.dispatchEvent(new ClipboardEvent("paste", paste));
        }"""
    )
    scene.chat.expect_strip("Nothing was pasted")


@state("missing conversation")
def _(scene: Scene) -> None:
    scene.visit("/c/c_" + "0" * 32)
    heading = scene.page.get_by_role("heading", name="This conversation is not here")
    expect(heading).to_be_visible()


@state("conversation could not be loaded")
def _(scene: Scene) -> None:
    scene.page.route("**/v1/conversations/c_*", lambda route: route.abort())
    scene.visit("/c/" + scene.world.seeds["code"])
    scene.chat.expect_strip("could not be loaded")


@state("signed out in between")
def _(scene: Scene) -> None:
    scene.open()
    scene.ask()
    scene.be(None)
    scene.chat.send("Still here?")
    scene.chat.expect_strip("You have been signed out")


def _refuse_once(scene: Scene) -> None:
    """The next send is refused for a while, as the product refuses."""
    body = {"code": "busy", "message": "no", "param": None, "retry_after_s": 540}
    scene.page.route(
        "**/v1/conversations/*/messages",
        lambda route: route.fulfill(status=429, json={"error": body}),
        times=1,
    )
    scene.open()
    scene.chat.send("What makes a rainbow?")
    scene.chat.expect_strip("You can send again in")


@state("refused for a while")
def _(scene: Scene) -> None:
    _refuse_once(scene)
    expect(scene.page.get_by_role("button", name="Send it then")).to_be_visible()


@state("sent by itself in a while")
def _(scene: Scene) -> None:
    _refuse_once(scene)
    scene.page.get_by_role("button", name="Send it then").click()
    scene.chat.expect_strip("Sending again in")


@state("next message waits", forced=True)
def _(scene: Scene) -> None:
    scene.streaming()
    scene.chat.send("And why is the sky blue, while it is red in the evening?")
    expect(scene.page.locator("#next")).to_contain_text("Next, as soon as the answer has ended")


@state("next message held")
def _(scene: Scene) -> None:
    scene.streaming()
    scene.chat.send("And why is the sky blue, while it is red in the evening?")
    scene.page.keyboard.press("Escape")
    expect(scene.page.locator("#next")).to_contain_text("Not sent")
    scene.chat.expect_end()


@state("conversation loads", walk=False)
def _(scene: Scene) -> None:
    # Neither the conversation nor the list, which knows its name, has come yet.
    scene.page.route("**/v1/conversations**", lambda route: None)
    scene.page.route("**/v1/conversations/**", lambda route: None)
    scene.page.goto(scene.chat.url + "/c/" + scene.world.seeds["code"])
    expect(scene.page.locator("#loading")).to_be_visible()
    expect(scene.page.locator("#title")).to_have_text("Opening the conversation")
