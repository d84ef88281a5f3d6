"""Accounts, settings and errors; and some of all in Arabic."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.state_table import ARABIC_MODES, state
from tests.browser.state_world import Scene

# --- accounts and errors --------------------------------------------------------------------------


def _page(name: str, path: str, *, person: str | None = "dina", forced: bool = False) -> None:
    """A page that is there as soon as it is loaded."""

    @state(name, person=person, forced=forced)
    def make(scene: Scene) -> None:
        scene.visit(path)
        expect(scene.page.get_by_role("heading", level=1)).to_be_visible()


_page("sign in", "/accounts/sign-in/", person=None, forced=True)
_page("sign up", "/accounts/sign-up/", person=None)
_page("reset password", "/accounts/reset-password/", person=None)
_page("reset password sent", "/accounts/reset-password/sent/", person=None)
_page("reset password done", "/accounts/reset-password/changed/", person=None)
_page("account inactive", "/accounts/inactive/", person=None)
_page("address to be confirmed", "/accounts/confirm-email/", person=None)
_page("sign in elsewhere cancelled", "/accounts/connections/cancelled/", person=None)
_page("account", "/accounts/")
_page("account e-mail", "/accounts/email/")
_page("account password", "/accounts/change-password/")
_page("account tokens", "/accounts/tokens/")
_page("account sessions", "/accounts/sessions/")
_page("account security", "/accounts/security/")
_page("account passkeys", "/accounts/security/webauthn/")
_page("account authenticator app", "/accounts/security/totp/activate/")
_page("account look", "/accounts/look/")
_page("account usage", "/accounts/usage/", person="cleo", forced=True)
_page("account connections", "/accounts/connections/")
_page("error 404", "/no-such-page/")
_page("offline page", "/offline")


@state("sign in refused", person=None)
def _(scene: Scene) -> None:
    scene.visit("/accounts/sign-in/")
    scene.page.fill("[name=username]", "nobody@example.org")
    scene.page.fill("[name=password]", "not the password")
    scene.page.get_by_role("button", name="Sign in", exact=True).click()
    expect(scene.page.get_by_role("alert")).to_be_visible()


@state("token made")
def _(scene: Scene) -> None:
    scene.visit("/accounts/tokens/")
    scene.page.fill("[name=name]", "laptop")
    scene.page.get_by_role("button", name="Make the token").click()
    expect(scene.page.locator("#secret")).to_be_visible()


@state("error 403", person=None)
def _(scene: Scene) -> None:
    scene.visit("/accounts/sign-in/")
    scene.context.clear_cookies()  # the form's token fits nothing any more
    scene.page.locator("form").first.evaluate("one => one.requestSubmit ? one.submit() : 0")
    expect(scene.page.get_by_role("heading", name="This is not open to you")).to_be_visible()


@state("error 429", person=None)
def _(scene: Scene) -> None:
    scene.visit("/accounts/reset-password/")
    for _number in range(5):
        _ask_for_reset(scene)
        scene.page.go_back()
    _ask_for_reset(scene)
    expect(scene.page.get_by_role("heading", name="Too many tries")).to_be_visible()
    expect(scene.page.get_by_text(re.compile(r"Try again in \d+ minutes?\."))).to_be_visible()


def _ask_for_reset(scene: Scene) -> None:
    scene.page.fill("[name=email]", "nobody@example.org")
    with scene.page.expect_navigation():
        scene.page.locator("form button[type=submit]").first.click()


@state("error 500")
def _(scene: Scene) -> None:
    body = scene.world.broken_page
    scene.page.route(
        "**/broken", lambda route: route.fulfill(status=500, content_type="text/html", body=body)
    )
    scene.visit("/broken")
    expect(scene.page.get_by_role("heading", name="Something broke")).to_be_visible()


# --- in Arabic, as the server writes it -----------------------------------------------------------


def _in_arabic(scene: Scene) -> None:
    scene.context.set_extra_http_headers({"Accept-Language": "ar"})
    scene.direction = "rtl"


def _arabic_page(name: str, path: str, *, person: str | None = "dina") -> None:
    @state(name, person=person, modes=ARABIC_MODES)
    def make(scene: Scene) -> None:
        _in_arabic(scene)
        scene.visit(path)
        expect(scene.page.locator("html")).to_have_attribute("lang", "ar")


_arabic_page("arabic, empty", "/")
_arabic_page("arabic, account", "/accounts/")
_arabic_page("arabic, tokens", "/accounts/tokens/")
_arabic_page("arabic, usage", "/accounts/usage/", person="cleo")
_arabic_page("arabic, sign in", "/accounts/sign-in/", person=None)


@state("arabic, conversation", modes=ARABIC_MODES)
def _(scene: Scene) -> None:
    _in_arabic(scene)
    scene.open("arabic")
    expect(scene.page.locator("html")).to_have_attribute("lang", "ar")
    scene.chat.expect_reply("rainbow")


@state("arabic, answered", modes=ARABIC_MODES)
def _(scene: Scene) -> None:
    _in_arabic(scene)
    scene.open()
    scene.ask(
        "كيف يتكون قوس قزح؟", text="ينكسر ضوء الشمس في قطرات المطر ثم ينعكس ويتحلل إلى ألوانه."
    )
