"""The queues page in Chromium: live, honest about its age, kept while it is refreshed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.browser.chat_page import ChatPage
from tests.browser.conftest import PATIENCE_MS, SHOTS, sign_in
from tests.stack import PASSWORD, Person, Stack, directive, wait_for

_BOSS = f"""
from accounts.models import User
User.objects.create_superuser("queues@example.org", {PASSWORD!r}, name="Admin")
"""


@pytest.fixture(scope="module")
def cookies_of_boss(stack: Stack) -> list[dict[str, Any]]:
    stack.manage("shell", "--verbosity", "0", "-c", _BOSS)
    return sign_in(stack.webs[0].url, Person("queues@example.org", ""))


@pytest.fixture
def context(browser: Browser, cookies_of_boss: list[dict[str, Any]]) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies(cookies_of_boss)  # type: ignore[arg-type]
    yield context
    context.close()


@pytest.fixture
def device(stack: Stack, context: BrowserContext) -> ChatPage:
    device = ChatPage(context.new_page(), stack.webs[0].url)
    device.page.goto(f"{device.url}/admin/queues/")
    expect(device.page.locator(".queues-state")).to_have_text("Live: refreshed every 2 seconds.")
    return device


def marks(page: Page) -> Any:
    return page.locator(".pool[aria-label='Pool sim'] .marks")


def test_a_pool_is_paused_what_is_sent_waits_and_it_goes_on(stack: Stack, device: ChatPage) -> None:
    page = device.page
    expect(marks(page)).to_contain_text("open")
    page.get_by_role("link", name="Pause", exact=True).first.click()
    expect(page.get_by_role("heading", name="Pause the pool sim?")).to_be_visible()
    page.get_by_role("button", name="Pause it").click()
    expect(page.get_by_text("sim: paused.")).to_be_visible()
    try:
        expect(marks(page)).to_contain_text("paused")
        page.get_by_text("Runs that wait and run").first.click()
        ada = stack.people["ada"]
        with httpx.Client(base_url=device.url, headers=ada.headers, timeout=60) as client:
            ask = {"content": f"{directive(text='waits')} ?"}
            run = client.post("/v1/conversations/new/messages", json=ask).json()["id"]
        row = page.locator(f"tr[data-key='{run}']")
        expect(row).to_contain_text("1")
        row.get_by_role("link", name="Stop").focus()
        refreshed(page)
        expect(row.get_by_role("link", name="Stop")).to_be_focused()
    finally:
        page.get_by_role("link", name="Resume", exact=True).first.click()
        page.get_by_role("button", name="Resume it").click()
    expect(page.get_by_text("sim: resumed.")).to_be_visible()
    expect(marks(page)).to_contain_text("open")
    with httpx.Client(base_url=device.url, headers=ada.headers, timeout=60) as client:
        wait_for(lambda: client.get(f"/v1/runs/{run}").json()["status"] == "completed", "its end")
    assert device.faults == []
    assert device.violations == []


def refreshed(page: Page) -> None:
    """Until figures that were asked for later are shown."""
    for _ in range(2):
        with page.expect_response("**/admin/queues/figures*"):
            pass


def test_it_says_how_old_the_figures_are_and_recovers(device: ChatPage) -> None:
    page = device.page

    def cut(route: Route) -> None:
        route.abort()

    page.route("**/admin/queues/figures*", cut)
    expect(page.locator(".queues-state")).to_contain_text("The server cannot be reached.")
    expect(page.locator("#queues[data-stale]")).to_be_visible()
    page.unroute("**/admin/queues/figures*", cut)
    expect(page.locator(".queues-state")).to_have_text("Live: refreshed every 2 seconds.")
    expect(page.locator("#queues[data-stale]")).to_have_count(0)
    page.context.clear_cookies()
    expect(page.locator(".queues-state")).to_contain_text("You are signed out")


def test_nobody_looks_nobody_asks(device: ChatPage) -> None:
    page = device.page
    asked: list[str] = []
    page.clock.install()
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide % "true" + tell)
    page.wait_for_load_state("networkidle")
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(5_000)  # two refreshes and more
    with page.expect_response("**/admin/queues/figures*"):
        page.evaluate(hide % "false" + tell)
    # Counted after that one: what was asked for before it has been told by then.
    assert len([url for url in asked if "figures" in url]) == 1


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)],
)
def test_screenshots(
    stack: Stack,
    browser: Browser,
    cookies_of_boss: list[dict[str, Any]],
    name: str,
    scheme: Any,
    width: int,
) -> None:
    """For people to look at (test-results/queues-*.png); and no page is wider than a phone."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    context.add_cookies(cookies_of_boss)  # type: ignore[arg-type]
    device = ChatPage(context.new_page(), stack.webs[0].url)
    SHOTS.mkdir(exist_ok=True)
    for path in ("", "pools/sim/pause/", "plans/free/weigh/"):
        device.page.goto(f"{device.url}/admin/queues/{path}")
        if not path:
            expect(marks(device.page)).to_be_visible()
        shot = f"queues-{name}-{path.strip('/').replace('/', '-') or 'live'}.png"
        device.page.screenshot(path=SHOTS / shot, full_page=True)
        assert device.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert device.faults == []
        assert device.violations == []
    context.close()
