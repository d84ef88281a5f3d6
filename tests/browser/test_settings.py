"""The settings pages in a browser: look, language, default model, keyboard, every size."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chat_page import ChatPage
from tests.browser.conftest import SHOTS, NewPage, sign_in
from tests.stack import PASSWORD, Person, Stack, directive

EMAIL = "grace@example.org"
_MAKE = f"""
from accounts import tokens
from accounts.models import User
user = User.objects.create_user({EMAIL!r}, {PASSWORD!r}, name="Grace")
tokens.create(user, "Laptop")
"""
PAGES = {
    "profile": "",
    "email": "email/",
    "password": "change-password/",
    "look": "look/",
    "usage": "usage/",
    "tokens": "tokens/",
    "devices": "sessions/",
    "second-step": "security/",
}
SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "narrow": {"viewport": {"width": 320, "height": 640}},
}
Grace = Callable[..., ChatPage]


@pytest.fixture(scope="module")
def cookies_of_grace(stack: Stack) -> list[dict[str, Any]]:
    """Somebody of this file alone: her look is nobody else's."""
    stack.manage("shell", "--verbosity", "0", "-c", _MAKE)
    return sign_in(stack.webs[0].url, Person(EMAIL, ""))


@pytest.fixture
def grace(new_page: NewPage, cookies_of_grace: list[dict[str, Any]], stack: Stack) -> Grace:
    """A device on which she is signed in, with the preferences given."""

    def make(preferences: str = "{}", **options: Any) -> ChatPage:
        stack.execute(
            "UPDATE accounts_user SET preferences = %s::jsonb WHERE email = %s", preferences, EMAIL
        )
        device = new_page(None, **options)
        device.page.context.add_cookies(cookies_of_grace)  # type: ignore[arg-type]
        return device

    return make


def go(device: ChatPage, path: str) -> Page:
    device.page.goto(f"{device.url}/accounts/{path}")
    return device.page


def paper(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


DARK, LIGHT = "oklch(0.2 0.01 60)", "oklch(0.98 0.006 80)"


def test_the_theme_shows_as_it_is_chosen_and_stays(grace: Grace) -> None:
    device = grace(color_scheme="light")
    page = go(device, "look/")
    assert paper(page) == LIGHT
    page.get_by_label("Dark").check()
    assert paper(page) == DARK  # before it is saved
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert paper(page) == DARK
    device.open()
    assert paper(page) == DARK
    assert not device.violations


def test_the_persons_theme_goes_before_the_systems(grace: Grace) -> None:
    for theme, system, colour in (
        ("light", "dark", LIGHT),
        ("system", "dark", DARK),
        ("system", "light", LIGHT),
    ):
        device = grace(f'{{"theme": "{theme}"}}', color_scheme=system)
        assert paper(go(device, "")) == colour, (theme, system)


def test_a_language_turns_the_page(grace: Grace) -> None:
    device = grace()
    page = go(device, "look/")
    page.get_by_label("العربية").check()
    page.locator("form[data-look] button").click()
    expect(page.locator("html")).to_have_attribute("dir", "rtl")
    expect(page.locator("html")).to_have_attribute("lang", "ar")
    left = page.evaluate("document.querySelector('main').getBoundingClientRect().left")
    places = page.evaluate("document.querySelector('.places').getBoundingClientRect().left")
    assert places > left


def test_a_default_model_is_what_the_picker_begins_with(grace: Grace, stack: Stack) -> None:
    with stack.second_model("Large"):
        device = grace()
        device.open()
        models = device.page.evaluate("fetch('/v1/models').then((answer) => answer.json())")["data"]
        usual = next(model for model in models if model["default"])
        other = next(model for model in models if not model["default"])
        # A choice that this browser remembers gives way to the one that is made now.
        device.page.evaluate(
            "(id) => localStorage.setItem(`hearth:model:${document.body.dataset.user}`, id)",
            usual["id"],
        )
        page = go(device, "usage/")
        page.get_by_label(other["title"], exact=True).check()
        page.get_by_role("button", name="Save the default model").click()
        expect(page.get_by_text("Saved.")).to_be_visible()
        device.open()
        expect(page.locator("#model")).to_contain_text(other["title"])
        assert (
            page.evaluate("localStorage.getItem(`hearth:model:${document.body.dataset.user}`)")
            is None
        )


def test_what_is_left_and_when_it_is_back_in_her_own_zone(grace: Grace) -> None:
    device = grace(timezone_id="Asia/Kolkata", locale="en-GB")
    page = go(device, "usage/")
    left = page.locator(".meters .left").first
    before = int(left.inner_text().split()[0])
    device.open()
    device.send("Hello")
    device.expect_end()
    go(device, "usage/")
    expect(left).to_have_text(f"{before - 1} of 40 left")
    back = page.locator(".meters time").first
    expect(back).to_have_text(re.compile(r"\d+:\d\d.* \(in [23] hours\)$"))
    told = page.evaluate(
        """() => new Intl.DateTimeFormat("en", { timeStyle: "short", timeZone: "Asia/Kolkata" })
             .format(new Date(document.querySelector(".meters time").dateTime))"""
    )
    assert told in back.inner_text()
    page.screenshot(path=SHOTS / "settings" / "usage-used.png", full_page=True)


def test_a_conversation_prints_as_words_on_white(grace: Grace) -> None:
    """All of it, not what fits the window; dark themes too."""
    device = grace('{"theme": "dark"}')
    device.open()
    answer = "\n\n".join(f"Paragraph {n} of a long answer." for n in range(60))
    device.send(directive(text=f"# A title\n\n{answer}\n\n```py\nprint('x' * 200)\n```"))
    device.expect_reply("Paragraph 59")
    device.expect_end()
    page = device.page
    page.emulate_media(media="print")
    assert paper(page) == "rgba(0, 0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.body).color") == "oklch(0.24 0.015 60)"
    for gone in (".sidebar", ".dock", ".message-foot", ".skip-link", "button", "#model"):
        for one in page.locator(gone).all():
            expect(one).to_be_hidden()
    for there in ("#title", ".user-text", ".reply .prose"):
        expect(page.locator(there).last).to_be_visible()
    said = page.get_by_role("heading", name="You said").bounding_box()
    assert said
    assert said["height"] > 8  # on the screen it is for screen readers alone
    last = page.evaluate("document.querySelector('.reply .prose').getBoundingClientRect().bottom")
    assert page.evaluate("document.documentElement.scrollHeight") >= last > 800
    page.screenshot(path=SHOTS / "settings" / "print.png", full_page=True)
    page.pdf(path=SHOTS / "settings" / "print.pdf")


def test_high_contrast_shows_what_is_chosen(grace: Grace) -> None:
    page = go(grace(forced_colors="active"), "look/")
    chosen = page.locator("label:has(:checked)").first
    other = page.locator("label:has(input:not(:checked))").first
    widths = [
        one.evaluate("(one) => getComputedStyle(one).borderTopWidth") for one in (chosen, other)
    ]
    assert widths == ["2px", "1px"]
    here = page.locator("[aria-current=page]")
    assert here.evaluate("(one) => getComputedStyle(one).outlineStyle") == "solid"
    page.screenshot(path=SHOTS / "settings" / "look-forced-colors.png")


def test_with_the_keyboard_alone(grace: Grace) -> None:
    page = go(grace(), "")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("Grace H")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Saved.")).to_be_visible()
    page = go(grace(), "look/")
    page.get_by_label("As this device").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Dark")).to_be_checked()
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_first_field_that_is_wrong_is_focused_and_says_why(grace: Grace) -> None:
    page = go(grace(), "change-password/")
    page.fill("[name=old_password]", PASSWORD)
    page.fill("[name=new_password1]", "short")
    page.fill("[name=new_password2]", "shorter")
    page.get_by_role("button", name="Change the password").click()
    wrong = page.locator("[aria-invalid=true]").first
    expect(wrong).to_be_focused()
    described = str(wrong.get_attribute("aria-describedby")).split()
    assert described
    texts = [page.locator(f"#{one}").inner_text() for one in described]
    assert all(texts)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("look", ["light", "dark", "rtl"])
def test_every_page_at_every_size(grace: Grace, size: str, look: str) -> None:
    language = '"ar"' if look == "rtl" else "null"
    theme = "dark" if look == "dark" else "light"
    device = grace(f'{{"theme": "{theme}", "language": {language}}}', **SIZES[size])
    (SHOTS / "settings").mkdir(parents=True, exist_ok=True)
    for name, path in PAGES.items():
        page = go(device, path)
        expect(page.locator("h1")).to_have_count(1)
        page.screenshot(path=SHOTS / "settings" / f"{name}-{size}-{look}.png", full_page=True)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, (name, wide)
        small = page.evaluate(
            """() => [...document.querySelectorAll("a, button, select, label:has(input)")]
                 .filter((one) => one.checkVisibility() && !one.matches(".skip-link, p a"))
                 .map((one) => [one.innerText, one.getBoundingClientRect()])
                 .filter(([, box]) => box.width < 24 || box.height < 24).map(([text]) => text)"""
        )
        assert not small, (name, small)
        assert not device.violations


@pytest.mark.parametrize("look", ["light", "dark", "rtl"])
def test_pages_of_errors_have_the_same_voice(grace: Grace, look: str) -> None:
    language = '"ar"' if look == "rtl" else "null"
    theme = "dark" if look == "dark" else "light"
    device = grace(f'{{"theme": "{theme}", "language": {language}}}', **SIZES["phone"])
    page = device.page

    def seen(name: str) -> None:
        expect(page.locator("h1")).to_have_count(1)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        expect(page.locator(".button.primary")).to_be_visible()
        page.screenshot(path=SHOTS / "settings" / f"error-{name}-{look}.png")
        assert not device.violations

    page.goto(f"{device.url}/nothing/here")
    seen("404")
    # A form of a page that was open for too long.
    page.goto(f"{device.url}/accounts/")
    page.evaluate("document.querySelector('[name=csrfmiddlewaretoken]').value = 'x'.repeat(64)")
    page.locator("main form button").first.click()
    seen("403")
    page.goto(f"{device.url}/offline")
    seen("offline")
