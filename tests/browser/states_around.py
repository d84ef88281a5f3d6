"""What stands around the conversation: the list, the palette, the shortcuts, the menus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.state_table import state
from tests.browser.state_world import Scene
from tests.browser.test_sidebar import LIST, long_list, open_palette

if TYPE_CHECKING:
    from playwright.sync_api import Route


@state("palette", walk=False, forced=True)
def _(scene: Scene) -> None:
    long_list(scene.page, 40)
    scene.open()
    open_palette(scene.page)
    expect(scene.page.get_by_role("group", name="Recent conversations")).to_be_visible()


@state("palette, found", walk=False)
def _(scene: Scene) -> None:
    long_list(scene.page, 40)
    scene.open()
    open_palette(scene.page).fill("conversation 2")
    expect(scene.page.locator(".palette-status")).to_contain_text("results")


@state("palette, nothing found", walk=False)
def _(scene: Scene) -> None:
    long_list(scene.page, 40)
    scene.open()
    open_palette(scene.page).fill("no such title")
    expect(scene.page.locator(".palette-status")).to_have_text("Nothing was found.")


@state("shortcuts help", forced=True)
def _(scene: Scene) -> None:
    scene.open()
    scene.page.locator("#content").focus()
    scene.page.keyboard.press("?")
    expect(scene.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()


@state("models to choose", resizes=False, walk=False)
def _(scene: Scene) -> None:
    scene.page.route("**/v1/models", _two_models)
    scene.page.route("**/v1/usage", _what_is_left)
    scene.open()
    scene.page.get_by_role("button", name="Model for new messages").click()
    expect(scene.page.locator("#menu")).to_contain_text("9 of 40 messages left")


def _two_models(route: Route) -> None:
    found = route.fetch().json()
    other = {"id": "small", "title": "The small and quick one", "default": False}
    route.fulfill(json={**found, "data": [*found["data"], {**found["data"][0], **other}]})


def _what_is_left(route: Route) -> None:
    left = {"limit": 40, "remaining": 9, "resets_at": "2030-01-05T18:30:00Z"}
    none = {"limit": None, "remaining": None, "resets_at": None}
    messages = [{"model": "sim", **left}, {"model": "small", **none}]
    route.fulfill(json={"limits": {"messages": messages}})


@state("list loads", walk=False)
def _(scene: Scene) -> None:
    scene.page.route(LIST, lambda route: None)
    scene.open()
    expect(scene.page.locator(".list-skeleton")).to_be_attached()


@state("list could not be loaded")
def _(scene: Scene) -> None:
    long_list(scene.page, 40, lambda _start: True)
    scene.open()
    expect(scene.page.locator(".conversations")).to_contain_text("could not be loaded")


@state("older part of the list could not be loaded", walk=False)
def _(scene: Scene) -> None:
    long_list(scene.page, 60, lambda start: start > 0)
    scene.open()
    scene.page.locator(".conversation-link").last.scroll_into_view_if_needed()
    end = scene.page.locator(".list-end")
    expect(end).to_contain_text("Older conversations could not be loaded")
    end.get_by_role("button", name="Try again").scroll_into_view_if_needed()
