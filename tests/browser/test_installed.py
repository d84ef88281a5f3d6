"""The site as an app: installable, honest when offline, nothing of a person in its cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chat_page import ChatPage
from tests.browser.conftest import SHOTS, NewPage
from tests.stack import Stack, directive

# What each cache holds: address → text.
_CACHED = """async () => {
  const found = {}
  for (const name of await caches.keys()) {
    const cache = await caches.open(name)
    for (const request of await cache.keys()) {
      const response = await cache.match(request, { ignoreVary: true })
      found[new URL(request.url).pathname] = await response.text()
    }
  }
  return found
}"""
# Until the worker answers for this page.
_CONTROLLED = """() => navigator.serviceWorker.ready.then(() =>
  navigator.serviceWorker.controller ?? new Promise((resolve) =>
    navigator.serviceWorker.addEventListener("controllerchange", resolve))).then(() => true)"""


# With the CSRF token, as the page sends it.
_WISH = """(theme) => fetch("/v1/me/preferences", {
  method: "PATCH",
  body: JSON.stringify({ theme }),
  headers: { "Content-Type": "application/json", "X-CSRFToken": document.body.dataset.csrf },
}).then((answer) => answer.ok)"""


def wish_theme(page: Page, theme: str) -> None:
    assert page.evaluate(_WISH, theme)


@pytest.fixture
def device(new_page: NewPage) -> Callable[..., ChatPage]:
    """The chat page on a device whose worker has begun."""

    def make(**options: Any) -> ChatPage:
        made = new_page(service_workers="allow", **options).open()
        assert made.page.evaluate(_CONTROLLED)
        return made

    return make


def test_it_can_be_installed(device: Callable[..., ChatPage]) -> None:
    page = device().page
    cdp = page.context.new_cdp_session(page)
    found = cdp.send("Page.getAppManifest")
    assert not found["errors"], found["errors"]
    assert found["url"].endswith("/manifest.webmanifest")
    problems = cdp.send("Page.getInstallabilityErrors")["installabilityErrors"]
    # A context of Playwright is a private window, in which nothing can be installed.
    assert [one["errorId"] for one in problems if one["errorId"] != "in-incognito"] == []


def test_offline_it_says_so_and_comes_back_by_itself(device: Callable[..., ChatPage]) -> None:
    made = device(viewport={"width": 390, "height": 844})
    page = made.page
    page.context.set_offline(True)
    page.goto(f"{made.url}/")
    expect(page.get_by_role("heading", level=1)).to_have_text("You are offline")
    # With its styles, which come from the cache too.
    assert page.evaluate("getComputedStyle(document.querySelector('.button')).minHeight") == "40px"
    assert not made.violations
    page.screenshot(path=SHOTS / "offline.png")
    page.context.set_offline(False)
    expect(page.locator("#composer")).to_be_visible()


def test_the_worker_answers_for_no_call_and_no_stream(
    device: Callable[..., ChatPage], stack: Stack
) -> None:
    made = device()
    made.send(directive(text="Streamed past the worker."))
    made.expect_reply("Streamed past the worker.")
    made.expect_end()
    made.page.reload()
    made.expect_reply("Streamed past the worker.")
    for path in made.page.evaluate(_CACHED):
        assert path.startswith("/static/") or path == "/offline", path
    assert not made.violations


def test_after_a_sign_out_nothing_personal_is_left(
    device: Callable[..., ChatPage], new_page: NewPage, stack: Stack
) -> None:
    made = device()
    page = made.page
    made.send(directive(text="What nobody else may read."))
    made.expect_reply("What nobody else may read.")
    made.expect_end()
    conversation = made.conversation
    # As a sign-out leaves it, without ending the session that other tests share.
    page.context.clear_cookies()
    page.goto(f"{made.url}/accounts/sign-in/")
    cached = page.evaluate(_CACHED)
    assert cached["/offline"]
    for path, text in cached.items():
        assert path.startswith("/static/") or path == "/offline", path
        for personal in ("nobody else may read", stack.people["ada"].email, conversation):
            assert personal not in text, path
    page.context.set_offline(True)
    page.goto(f"{made.url}/c/{conversation}")
    expect(page.get_by_role("heading", level=1)).to_have_text("You are offline")
    expect(page.get_by_text("nobody else may read")).to_have_count(0)
    page.go_back()
    expect(page.get_by_text("nobody else may read")).to_have_count(0)


def test_an_old_cache_goes_when_a_new_worker_comes(device: Callable[..., ChatPage]) -> None:
    made = device()
    page = made.page
    page.evaluate("caches.open('shell-000000000000').then(() => true)")
    page.evaluate("caches.open('of-somebody-else').then(() => true)")
    before = page.evaluate("caches.keys()")
    assert "shell-000000000000" in before
    # Another look is another version of the worker.
    wish_theme(page, "dark")
    try:
        page.evaluate("navigator.serviceWorker.ready.then((registration) => registration.update())")
        made.wait_until(
            "caches.keys().then((names) => names.includes('of-somebody-else')"
            " && names.length === 2 && !names.includes('shell-000000000000'))"
        )
        assert set(page.evaluate("caches.keys()")).isdisjoint(set(before) - {"of-somebody-else"})
        assert 'data-theme="dark"' in page.evaluate(_CACHED)["/offline"]
    finally:
        wish_theme(page, "system")


# As when another worker takes over.
_ANOTHER = "navigator.serviceWorker.dispatchEvent(new Event('controllerchange'))"
_ASK = """(more) => new Promise((resolve) => {
  const { imports } = JSON.parse(document.querySelector("script[type=importmap]").textContent)
  const { port1, port2 } = new MessageChannel()
  port1.onmessage = ({ data }) => resolve(data)
  const files = [...Object.values(imports), ...more]
  navigator.serviceWorker.controller.postMessage({ files }, [port2])
})"""
# As a page of another release has it.
_AGE = """() => {
  const map = document.querySelector("script[type=importmap]")
  map.firstChild.data = map.textContent.replace(/sse[.]\\w+[.]js/, "sse.0123456789ab.js")
}"""


@pytest.mark.parametrize("look", ["light", "dark", "phone", "rtl"])
def test_a_page_of_the_release_before_offers_to_load_the_new_one(
    device: Callable[..., ChatPage], look: str
) -> None:
    options: dict[str, Any] = {"color_scheme": "dark"} if look == "dark" else {}
    if look == "phone":
        options = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    made = device(**options)
    page = made.page
    if look == "rtl":
        page.evaluate("document.documentElement.dir = 'rtl'")
    offer = page.get_by_role("region", name="A new version")
    assert page.evaluate(_ASK, []) is True
    assert page.evaluate(_ASK, ["/static/js/models/sse.0123456789ab.js"]) is False
    # Another look is another worker of the same release: nothing is offered.
    page.evaluate(_ANOTHER)
    assert page.evaluate(_ASK, []) is True  # it is answered after the page's own question
    expect(offer).to_be_hidden()
    page.evaluate(_AGE)
    page.fill("#message", "A draft that stays")
    page.evaluate(_ANOTHER)
    expect(offer).to_contain_text("A new version is here. Reload when it suits you.")
    expect(page.locator("#message")).to_be_focused()
    page.screenshot(path=SHOTS / f"release-{look}.png")
    offer.get_by_role("button", name="Dismiss").click()
    expect(offer).to_be_hidden()
    page.evaluate(_ANOTHER)
    offer.get_by_role("button", name="Reload").click()
    page.wait_for_load_state()
    expect(offer).to_be_hidden()
    expect(page.locator("#message")).to_have_value("A draft that stays")
    assert not made.violations


def test_a_page_without_a_worker_is_the_same_page(new_page: NewPage) -> None:
    """A private window, a browser without them, or a policy that forbids them."""
    made = new_page()
    made.page.add_init_script(
        "navigator.serviceWorker.register = () => Promise.reject(new Error('not here'))"
    )
    made.open()
    made.send("Hello")
    made.expect_end()
