"""Every state of every page, looked at in every way: see states.py for the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.access import axe_violations, keyboard_faults, layout_faults
from tests.browser.chat_page import ChatPage
from tests.browser.conftest import PATIENCE_MS, SHOTS, sign_in
from tests.browser.state_table import State
from tests.browser.state_world import Scene, World
from tests.browser.states import STATES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.stack import Stack

FOLDER = SHOTS / "states"


@pytest.fixture(scope="module")
def world(stack: Stack) -> World:
    return World.prepare(stack)


@pytest.fixture(scope="module")
def state_cookies(world: World) -> dict[str, list[dict[str, Any]]]:
    url = world.stack.webs[0].url
    return {name: sign_in(url, world.people[name]) for name in ("dina", "cleo")}


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all states: what each of them needs of the network is fetched once."""
    # Nothing is looked at half-way, and no worker stands between a scene and its network.
    made = browser.new_context(reduced_motion="reduce", service_workers="block")
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def scene(
    context: BrowserContext, world: World, state_cookies: dict[str, list[dict[str, Any]]]
) -> Iterator[Scene]:
    page = context.new_page()
    chat = ChatPage(page, world.stack.webs[0].url)
    made = Scene(world, chat, context.new_cdp_session(page), state_cookies)
    with made.exit:
        yield made
    faults = [*chat.faults, *chat.violations]
    page.close()
    world.clear("dina")
    assert not faults, faults


@pytest.mark.parametrize("state", STATES, ids=[state.file for state in STATES])
def test_everybody_can_use_every_state(scene: Scene, state: State) -> None:
    scene.be(state.person)
    scene.enter(state.modes[0])
    state.make(scene)
    modes = [*state.modes, *(["forced"] if state.forced else [])]
    wrong = [f"{mode}: {fault}" for mode in modes for fault in look(scene, state, mode)]
    # Last, for it moves the focus; in forced colours first, where the page is now.
    for mode in (modes[-1:] if state.forced else []) + modes[:1] if state.walk else []:
        scene.enter(mode)
        wrong += [f"{mode}: {fault}" for fault in keyboard_faults(scene.page)]
    assert not wrong, "\n".join(dict.fromkeys(wrong))


def look(scene: Scene, state: State, mode: str) -> list[str]:
    """What is wrong with the state in one mode; its screenshot is kept."""
    scene.enter(mode)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if mode != "narrow":
        scene.page.evaluate(_WITHOUT_DIRECTIVES)
        scene.page.screenshot(path=FOLDER / f"{state.file}.{mode}.png")
    wrong = layout_faults(scene.page)
    if mode == state.modes[0]:
        return wrong + axe_violations(scene.cdp)
    return wrong + (axe_violations(scene.cdp, RULES[mode]) if mode in RULES else [])


# What can differ from the first look, which is at all rules.
RULES = {
    "dark": ["color-contrast"],
    "phone-dark": ["color-contrast"],
    "phone": ["target-size"],
}

# The words by which a test steers the engine are not to be seen in the screenshots.
_WITHOUT_DIRECTIVES = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const {data} = texts.currentNode;
    if (!data.includes("[[sim")) continue;
    texts.currentNode.data = data
      .replace(/\\s*\\[\\[sim.*?(\\]\\]|…|$)/s, "");
  }
}"""
