"""Passkeys in a real Chromium with a virtual authenticator, and the account pages' manners."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.chat_page import _WATCH
from tests.browser.conftest import PATIENCE_MS
from tests.stack import PASSWORD, Stack

EMAIL = "eve@example.org"
_MAKE = f"""
from accounts.models import User
User.objects.create_user({EMAIL!r}, {PASSWORD!r}, name="Eve")
"""
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
NewTab = Callable[..., Page]


@pytest.fixture(scope="module")
def eve(stack: Stack) -> str:
    """Somebody of this file alone: a second factor would stop the other files' sign-ins."""
    stack.manage("shell", "--verbosity", "0", "-c", _MAKE)
    return EMAIL


@pytest.fixture
def new_tab(browser: Browser, stack: Stack, eve: str) -> Iterator[NewTab]:
    """Tabs at `localhost`: passkeys belong to names, and 127.0.0.1 is none."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []
    tabs: list[Page] = []

    def make(**options: Any) -> Page:
        base = stack.webs[0].url.replace("127.0.0.1", "localhost")
        context = browser.new_context(base_url=base, **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(_WATCH)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console",
            lambda message: faults.append(message.text) if message.type == "error" else None,
        )
        tabs.append(page)
        return page

    yield make
    for context in contexts:
        context.close()
    assert not [fault for fault in faults if "Failed to load resource" not in fault], faults


def sign_in(page: Page, *, path: str = "/accounts/") -> None:
    page.goto(f"/accounts/sign-in/?next={path}")
    page.fill("[name=username]", EMAIL)
    page.fill("[name=password]", PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def sign_out(page: Page) -> None:
    page.goto("/accounts/")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/accounts/sign-in/")


def give_authenticator(page: Page) -> tuple[Any, str]:
    cdp = page.context.new_cdp_session(page)
    cdp.send("WebAuthn.enable", {"enableUI": False})
    added = cdp.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    return cdp, added["authenticatorId"]


def violations(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.__violations")
    return found


def add_passkey(page: Page, name: str) -> None:
    page.goto("/accounts/security/webauthn/add/")
    expect(page.get_by_role("heading", name="Is it you?")).to_be_visible()
    page.fill("[name=password]", PASSWORD)
    page.get_by_role("button", name="Go on").click()
    page.fill("[name=name]", name)
    page.get_by_role("button", name="Add it").click()
    page.wait_for_url("**/recovery-codes/")
    assert not violations(page)


def test_a_passkey_from_its_making_to_its_end(stack: Stack, new_tab: NewTab) -> None:
    page = new_tab()
    cdp, authenticator = give_authenticator(page)
    sign_in(page)
    page.wait_for_url("**/accounts/")
    add_passkey(page, "Laptop")
    assert len(page.locator(".codes li").all()) == 10

    # It signs in alone, with what `next` asked for …
    sign_out(page)
    page.goto("/accounts/sign-in/?next=/accounts/sessions/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url("**/accounts/sessions/")
    expect(page.get_by_text("This browser")).to_be_visible()
    assert not violations(page)

    # … is the second step after a password …
    sign_out(page)
    sign_in(page)
    page.wait_for_url("**/security/authenticate/")
    page.get_by_role("button", name="Use a passkey or security key").click()
    page.wait_for_url("**/accounts/")

    # … and nobody gets in who is disabled, or whose finger is another's.
    sign_out(page)
    set_active(stack, False)
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url("**/accounts/inactive/")
    set_active(stack, True)
    page.goto("/accounts/sign-in/")
    cdp.send(
        "WebAuthn.setUserVerified", {"authenticatorId": authenticator, "isUserVerified": False}
    )
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_text("The passkey was not used")).to_be_visible()
    cdp.send("WebAuthn.setUserVerified", {"authenticatorId": authenticator, "isUserVerified": True})

    # Its end asks who it is; then the password is enough again.
    page.goto("/accounts/sign-in/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(stack.webs[0].url.replace("127.0.0.1", "localhost") + "/")
    page.goto("/accounts/security/webauthn/")
    page.get_by_role("link", name="Remove Laptop").click()
    expect(page.get_by_role("heading", name="Is it you?")).to_be_visible()
    page.get_by_role("link", name="a passkey or security key").click()
    page.get_by_role("button", name="Use a passkey or security key").click()
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_text("You have none")).to_be_visible()
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_text("This is not right")).to_be_visible()
    sign_in(page)
    page.wait_for_url("**/accounts/")


def test_made_up_answers_of_a_passkey_are_only_wrong(stack: Stack, new_tab: NewTab) -> None:
    page = new_tab()
    page.goto("/accounts/sign-in/")
    for credential in ("", "{}", "[]", "1", '"x"', "{", json.dumps(MADE_UP), '{"id": 1}'):
        answer = page.evaluate(
            """async (credential) => {
              const form = document.getElementById('passkey-form');
              await fetch(form.action, {headers: {Accept: 'application/json'}});
              const body = new FormData(form);
              body.set('credential', credential);
              return (await fetch(form.action, {method: 'POST', body})).status;
            }""",
            credential,
        )
        assert answer == 200, credential  # back at the sign-in page


MADE_UP = {
    "id": "AAAA",
    "rawId": "AAAA",
    "type": "public-key",
    "response": {
        "clientDataJSON": "AAAA",
        "authenticatorData": "AAAA",
        "signature": "AAAA",
        "userHandle": "AAAA",
    },
    "clientExtensionResults": {},
}


def test_without_scripts_everything_but_passkeys_works(new_tab: NewTab) -> None:
    page = new_tab(java_script_enabled=False)
    page.goto("/accounts/sign-in/")
    expect(page.get_by_role("button", name="Sign in with a passkey")).to_be_disabled()
    sign_in(page, path="/accounts/tokens/")
    page.fill("[name=name]", "laptop")
    page.get_by_role("button", name="Make the token").click()
    expect(page.locator("#secret")).to_have_value(re.compile(r"t_[\w-]{43}"))


def test_pages_keep_their_own_content_policy(new_tab: NewTab) -> None:
    page = new_tab()
    sign_in(page)
    page.wait_for_url("**/accounts/")
    for path in ("tokens/", "sessions/", "security/", "email/"):
        page.goto(f"/accounts/{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert not violations(page)


def set_active(stack: Stack, active: bool) -> None:
    with psycopg.connect(stack.env["DATABASE_URL"]) as connection:
        connection.execute(
            "UPDATE accounts_user SET is_active = %s WHERE email = %s", (active, EMAIL)
        )
