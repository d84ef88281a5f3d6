"""Another model answers than the one that was chosen: said while it does, and after a reload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chat_page import ChatPage
from tests.browser.conftest import PATIENCE_MS, SHOTS, NewPage, sign_in
from tests.stack import PASSWORD, Person, Stack, directive

TOLD = "Big one cannot be reached just now; Stand-in answers instead"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

_PREPARE = """
from generation.models import Model, Pool
Model.objects.filter(slug="sim").update(title="Stand-in")
big = Model.objects.create(slug="big", title="Big one", fallback_id="sim")
Pool.objects.create(slug="big", model=big, profile="sim")
"""
_UNDO = """
from generation.models import Model, Pool, Replica, Run
Replica.objects.filter(pool="big").delete()
Run.objects.filter(pool="big").delete()
Pool.objects.filter(slug="big").delete()
Model.objects.filter(slug="big").delete()
Model.objects.filter(slug="sim").update(title="sim")
"""


@pytest.fixture(scope="module")
def big_model(stack: Stack) -> Iterator[None]:
    """A model that nobody serves, and for which the others' answers."""
    stack.manage("shell", "--verbosity", "0", "-c", _PREPARE)
    yield
    stack.manage("shell", "--verbosity", "0", "-c", _UNDO)


@pytest.mark.usefixtures("big_model")
@pytest.mark.parametrize("name", ["desktop", "phone"])
def test_the_page_says_which_model_answers(stack: Stack, new_page: NewPage, name: str) -> None:
    hold = stack.hold("fallback")
    chat = new_page(**(PHONE if name == "phone" else {})).open()
    chat.choose_model("Big one")
    chat.send(directive(text="A first word and the rest of it", hold="fallback", hold_after=2))
    chat.expect_reply("A first")
    chat.expect_strip(TOLD)
    SHOTS.mkdir(exist_ok=True)
    chat.page.screenshot(path=SHOTS / f"fallback-{name}.png")
    assert chat.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    chat.page.reload()
    chat.expect_reply("A first")
    chat.expect_strip(TOLD)
    hold.unlink()
    chat.expect_reply("the rest of it")
    chat.expect_end()
    expect(chat.last_reply.locator(".facts")).to_contain_text("Stand-in")
    chat.page.reload()
    chat.expect_end()
    expect(chat.last_reply.locator(".facts")).to_contain_text("Stand-in")


_BOSS = f"""
from accounts.models import User
User.objects.create_superuser("mover-walk@example.org", {PASSWORD!r}, name="Mover")
"""
_IDLE = """
INSERT INTO generation_replica (name, pool_id, slots, healthy, detail, running, started, heartbeat)
VALUES (%s, 'big', 1, false, 'stopped', 0, now(), now())
"""


@pytest.fixture(scope="module")
def boss_cookies(stack: Stack) -> list[dict[str, Any]]:
    stack.manage("shell", "--verbosity", "0", "-c", _BOSS)
    return sign_in(stack.webs[0].url, Person("mover-walk@example.org", ""))


@pytest.mark.usefixtures("big_model")
@pytest.mark.parametrize(("name", "width"), [("desktop", 1280), ("phone", 390)])
def test_a_replica_is_moved_in_the_admin(
    stack: Stack, browser: Browser, boss_cookies: list[dict[str, Any]], name: str, width: int
) -> None:
    stack.execute(_IDLE, f"idle-{name}")
    context = browser.new_context(viewport={"width": width, "height": 844})
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies(boss_cookies)  # type: ignore[arg-type]
    device = ChatPage(context.new_page(), stack.webs[0].url)
    page = device.page
    page.goto(f"{device.url}/admin/generation/replica/")
    page.get_by_role("row", name=f"idle-{name}").locator("input.action-select").check()
    bar = page.locator("#changelist-actions")
    bar.locator("select[name=action]").select_option("move")
    bar.get_by_label("Pool to move to").select_option("sim")
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"admin-move-{name}.png")
    bar.locator("button[name=index]").click()
    expect(page.get_by_text("Asked to move: 1.")).to_be_visible()
    page.screenshot(path=SHOTS / f"admin-moved-{name}.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert (device.violations, device.faults) == ([], [])
    query = "SELECT wanted_pool_id FROM generation_replica WHERE name = %s"
    assert stack.rows(query, f"idle-{name}") == [("sim",)]
    context.close()
