"""The API's page: offline, under the strict policy; its calls work by the reader's session."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from tests.browser.conftest import NewPage
from tests.phone import PATIENT
from tests.stack import Stack


def test_a_person_reads_the_api_and_tries_a_call(stack: Stack, new_page: NewPage) -> None:
    """`new_page` fails where the page breaks its policy or asks a foreign host."""
    device = new_page()
    page = device.page
    page.goto(f"{stack.webs[0].url}/api")
    expect(page.get_by_role("heading", name="Hearth API")).to_be_visible()
    for path in ("/v1/conversations", "/v1/runs/{run}/stream", "/v1/schema"):
        expect(page.locator(f'.opblock [data-path="{path}"]').first).to_be_visible()
    page.locator("#operations-models-listModels .opblock-summary-control").click()
    page.get_by_role("button", name="Execute").click()
    answer = page.locator("#operations-models-listModels .live-responses-table")
    expect(answer.locator(".response-col_status").nth(1)).to_contain_text("200")
    expect(answer).to_contain_text('"object": "list"')
    # A call that changes something carries the CSRF token.
    page.locator("#operations-conversations-createConversation .opblock-summary-control").click()
    made = page.locator("#operations-conversations-createConversation")
    made.locator("textarea").fill('{"title": "from the page", "temporary": true}')
    made.get_by_role("button", name="Execute").click()
    expect(made.locator(".live-responses-table")).to_contain_text("from the page")
    expect(made.locator(".live-responses-table .response-col_status").nth(1)).to_contain_text("201")
    assert device.violations == []


def test_only_people_who_are_signed_in_see_it(stack: Stack) -> None:
    answer = httpx.get(f"{stack.webs[0].url}/api", **PATIENT)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith("/accounts/")


def test_its_policy_is_the_strict_one_and_images_in_its_stylesheet(
    stack: Stack, new_page: NewPage
) -> None:
    page = new_page().page
    with page.expect_response("**/api") as seen:
        page.goto(f"{stack.webs[0].url}/api")
    policy = seen.value.headers["content-security-policy"]
    with page.expect_response("**/") as home:
        page.goto(f"{stack.webs[0].url}/")
    assert "img-src 'self' data:" in policy
    assert "unsafe" not in policy
    assert "data:" not in home.value.headers["content-security-policy"]
