"""The pages in Hindi and Arabic: direction, words, plural forms, numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import SHOTS
from tests.browser.scripted import ScriptedLog
from tests.browser.test_manners import PHONE
from tests.browser.test_tree import say

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import NewPage

# Names: of an API token, the plan and the model; keys as they are printed on keyboards.
NOT_TRANSLATED = re.compile(
    r"Hearth|JavaScript|Python|API|QR|UTC|KB|[\w.+-]+@[\w.-]+|English|[Tt]ests|\bsim\b|\b[ap]m\b"
    r"|Ctrl|Control|Command|Shift|Enter|Esc(?:ape)?"
)
BROWSER = re.compile(r"Mozilla|python-httpx")
LATIN = re.compile(r"[A-Za-z]{2,}")
# What people, models and administrators wrote; and keys are called what stands on them.
VISIBLE_TEXT = """() => {
  const NOT_OURS = "script, noscript, [dir=auto]:not(textarea), #model, .facts, .prose, .user-text"
    + ", .conversation-item, kbd"
  const found = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest(NOT_OURS)) continue
    found.push(node.textContent.trim())
  }
  for (const element of document.querySelectorAll("[aria-label], [title], [placeholder]"))
    for (const name of ["aria-label", "title", "placeholder"])
      if (!element.closest(".conversation-item")) found.push(element.getAttribute(name) ?? "")
  return found.filter(Boolean)
}"""


def english(page: Page) -> list[str]:
    """Texts and names of the page, seen or heard, that hold English words."""
    texts: list[str] = page.evaluate(VISIBLE_TEXT)
    assert texts
    return [text for text in texts if LATIN.search(NOT_TRANSLATED.sub("", text))]


@pytest.mark.parametrize(("language", "direction"), [("ar", "rtl"), ("hi", "ltr"), ("en", "ltr")])
def test_the_page_has_its_language_and_direction(
    new_page: NewPage, language: str, direction: str
) -> None:
    chat = new_page(locale=language).open()
    html = chat.page.locator("html")
    expect(html).to_have_attribute("lang", language)
    expect(html).to_have_attribute("dir", direction)
    sign_in = new_page(person=None, locale=language).page
    sign_in.goto(f"{chat.url}/accounts/sign-in/")
    expect(sign_in.locator("html")).to_have_attribute("dir", direction)


@pytest.mark.parametrize("language", ["ar", "hi"])
def test_no_english_is_left_in_the_chat_and_the_account_pages(
    new_page: NewPage, language: str
) -> None:
    chat = new_page(locale=language).open()
    page = chat.page
    assert english(page) == []
    chat.send(say("yes"))
    expect(page.locator(".reply [data-act=regenerate]")).to_be_visible()
    assert english(page) == []
    page.keyboard.press("Control+k")
    expect(page.locator("dialog.palette")).to_be_visible()
    assert english(page) == []
    for path in ("", "look/", "usage/", "change-password/", "tokens/", "sessions/", "security/"):
        page.goto(f"{chat.url}/accounts/{path}")
        assert [text for text in english(page) if not BROWSER.search(text)] == [], path


@pytest.mark.parametrize("language", ["ar", "hi"])
@pytest.mark.parametrize(
    "path", ["accounts/sign-in/", "accounts/sign-up/", "accounts/reset-password/", "nowhere"]
)
def test_no_english_is_left_before_sign_in(new_page: NewPage, language: str, path: str) -> None:
    chat = new_page(person=None, locale=language)
    chat.page.goto(f"{chat.url}/{path}")
    assert english(chat.page) == []


def test_numbers_and_plural_forms_are_the_languages_own(new_page: NewPage) -> None:
    forms = """async (counts) => {
      const { plural } = await import("#js/models/i18n.js")
      return counts.map((count) => plural("{count} token", "{count} tokens", count))
    }"""
    arabic = new_page(locale="ar").open().page.evaluate(forms, [0, 1, 2, 3, 11, 100])
    assert arabic == ["0 رمز", "رمز واحد", "رمزان", "3 رموز", "11 رمزًا", "100 رمز"]
    hindi = new_page(locale="hi").open().page.evaluate(forms, [1, 250_000])
    assert hindi == ["1 टोकन", "2,50,000 टोकन"]


@pytest.mark.parametrize("language", ["ar", "hi"])
@pytest.mark.parametrize("size", [None, PHONE])
def test_what_the_server_tells_of_models_is_in_the_readers_words(
    new_page: NewPage, language: str, size: dict[str, object] | None
) -> None:
    chat = new_page(locale=language, timezone_id="Asia/Kolkata", **(size or {}))
    log = ScriptedLog(chat.page)
    chat.open()
    chat.send("?")
    expect(chat.page.locator("#action")).to_have_attribute("data-mode", "stop")
    log.start()
    names = {"model": "Small (8B)", "instead_of": "Large (70B)"}
    log.notice("queued", position=3, eta_s=18)
    log.notice("other_model", **names)
    log.notice("smaller_model", **names, back_at="2030-01-05T13:00:00Z")
    strip = chat.page.locator("#strip")
    expect(strip).to_contain_text("6:30")
    said = strip.inner_text()
    assert [said.count(name) for name in names.values()] == [2, 3]
    assert not LATIN.search(re.sub(r"Small|Large|pm", "", said)), said
    assert chat.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    SHOTS.mkdir(exist_ok=True)
    chat.page.screenshot(path=SHOTS / f"notice-{language}-{'phone' if size else 'desktop'}.png")


def test_the_api_answers_programs_in_english(new_page: NewPage) -> None:
    chat = new_page(locale="ar").open()
    told = chat.page.evaluate(
        """async () => (await (await fetch("/v1/conversations/c_nowhere")).json()).error.message"""
    )
    assert LATIN.search(told)


@pytest.mark.parametrize("size", [None, PHONE])
def test_nothing_hangs_over_the_side_from_right_to_left(
    new_page: NewPage, size: dict[str, object] | None
) -> None:
    chat = new_page(locale="ar", **(size or {})).open()
    page = chat.page
    chat.send(say("مرحبا"))
    expect(page.locator(".reply [data-act=regenerate]")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = page.locator("#action").bounding_box()
    field = page.locator("#message").bounding_box()
    assert box
    assert field
    assert box["x"] < field["x"]
    if size:
        page.click("#open-sidebar")
        expect(page.locator("#close-sidebar")).to_be_focused()
        sheet = page.locator("#sidebar")
        expect(sheet).to_be_in_viewport(ratio=0.9)
