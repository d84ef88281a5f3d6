"""A real Chromium against the running stack.

The browser lives as long as one module, not as long as the run: Playwright keeps an event loop
running in the main thread, and under it neither Django's ORM nor an async test of another module
would start. (So pytest-playwright's own fixtures, which last for the run, are replaced.)
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.chat_page import ChatPage
from tests.phone import PATIENT
from tests.stack import PASSWORD, Person, Stack

CHROMIUM_ARGS = [
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SHOTS = Path(__file__).resolve().parents[2] / "test-results"
PATIENCE_MS = 30_000


def chromium_path() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium_path()
    if path is None and os.environ.get("CI") == "true":
        pytest.fail("No Chromium: the page cannot go untested in CI (apt-get install chromium)")
    if path is None:
        pytest.skip("NOT TESTED: the page in a browser (apt-get install chromium)")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=[*CHROMIUM_ARGS, *sandbox])
        yield launched
        launched.close()


def sign_in(url: str, person: Person) -> list[dict[str, Any]]:
    """The cookies of a signed-in person, got by the sign-in form."""
    with httpx.Client(base_url=url, follow_redirects=True, **PATIENT) as client:
        form = client.get("/accounts/sign-in/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token
        data = {"csrfmiddlewaretoken": token[1], "username": person.email, "password": PASSWORD}
        answer = client.post("/accounts/sign-in/", data=data)
        assert answer.status_code == 200
        assert "sessionid" in client.cookies
        return [
            {"name": name, "value": value, "domain": "127.0.0.1", "path": "/"}
            for name, value in client.cookies.items()
        ]


@pytest.fixture(scope="session")
def cookies(stack: Stack) -> dict[str, list[dict[str, Any]]]:
    """One sign-in per person and run: sign-ins are rate-limited."""
    return {name: sign_in(stack.webs[0].url, person) for name, person in stack.people.items()}


NewPage = Callable[..., ChatPage]


@pytest.fixture
def new_page(
    browser: Browser,
    stack: Stack,
    cookies: dict[str, list[dict[str, Any]]],
    request: pytest.FixtureRequest,
) -> Iterator[NewPage]:
    """`new_page(person="ada", web=0, **context options)`: the chat page on a device of its own.

    At the end no page may have broken its own content policy, failed in a script, or asked a
    foreign host for anything; a failed test leaves screenshots in test-results/.
    """
    devices: list[ChatPage] = []
    contexts: list[BrowserContext] = []

    def make(person: str | None = "ada", web: int = 0, url: str = "", **options: Any) -> ChatPage:
        # A service worker stands between a page and what a test does to its network; the tests of
        # the worker itself allow it (test_installed.py).
        usual = {"viewport": {"width": 1280, "height": 800}, "service_workers": "block"}
        context = browser.new_context(**{**usual, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        if person:
            context.add_cookies(cookies[person])  # type: ignore[arg-type]
        devices.append(ChatPage(context.new_page(), url or stack.webs[web].url))
        return devices[-1]

    yield make
    failed = getattr(request.node, "failed", False)
    for number, device in enumerate(devices):
        if failed:
            _shoot(device.page, f"{request.node.name}-{number}")
    faults = [fault for device in devices for fault in device.faults]
    for context in contexts:
        context.close()
    assert not faults, faults


def _shoot(page: Page, name: str) -> None:
    SHOTS.mkdir(exist_ok=True)
    file = re.sub(r"[^\w.-]+", "_", name)[:120] + ".png"
    page.screenshot(path=SHOTS / file)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and report.failed:
        item.failed = True  # type: ignore[attr-defined]
