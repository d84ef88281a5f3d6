"""Every page of the admin in Chromium: opens, breaks no content policy, and shows nobody's text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser.chat_page import ChatPage
from tests.browser.conftest import PATIENCE_MS, SHOTS, sign_in
from tests.stack import PASSWORD, Person, Stack, directive, wait_for

PLANTED = "xylographic"
"""Stands in a title, in both messages, and in a reason of feedback."""

# A superuser, a plan, somebody's subscription; then every page there is of one row of each kind.
_PREPARE = f"""
import json
from django.contrib import admin
from django.contrib.auth.models import Group
from django.urls import reverse
from accounts import audit
from accounts.admin_base import ReadOnlyAdmin
from accounts.models import Organisation, User
from quotas.models import Plan, PlanModel, Subscription

boss = User.objects.create_superuser("admin-walk@example.org", {PASSWORD!r}, name="Admin")
audit.record_of(boss, "127.0.0.1", "signed_in", audit.type_of(boss), audit.name_of(boss))
Group.objects.get_or_create(name="Helpers")
Organisation.objects.get_or_create(name="Acme")
plan = Plan.objects.create(slug="walk", title="Walk", smaller_model="sim")
PlanModel.objects.create(plan=plan, model="sim", messages=40)
Subscription.objects.create(user=boss, plan=plan)
pages = [reverse("admin:index"), reverse("admin:app_list", args=["quotas"])]
pages += [reverse("admin:generation_engine_profiles"), reverse("queues:live")]
pages += [reverse("queues:" + name, args=["sim"]) for name in ("pause", "resume")]
pages += [reverse("queues:weigh", args=["free"])]
for model, modeladmin in admin.site._registry.items():
    name = f"admin:{{model._meta.app_label}}_{{model._meta.model_name}}"
    row = model._base_manager.first()
    assert row is not None, model
    written_here = not isinstance(modeladmin, ReadOnlyAdmin)
    kinds = ("change", "history", "delete") if written_here else ("change", "history")
    pages += [reverse(f"{{name}}_changelist")]
    pages += [reverse(f"{{name}}_add")] if written_here else []
    pages += [reverse(f"{{name}}_{{kind}}", args=[row.pk]) for kind in kinds]
pages += [reverse("admin:auth_user_password_change", args=[boss.pk])]
print(json.dumps(pages))
"""


@pytest.fixture(scope="module")
def pages(stack: Stack) -> list[str]:
    """The admin's addresses, once there is something of everything."""
    ada = stack.people["ada"]
    with httpx.Client(base_url=stack.webs[0].url, headers=ada.headers, timeout=60) as client:
        ask = {"content": f"{directive(text=f'An {PLANTED} answer')} {PLANTED}?"}
        sent = client.post("/v1/conversations/new/messages", json=ask)
        run = sent.raise_for_status().json()
        conversation, reply = run["conversation"], run["reply_msg"]
        wait_for(
            lambda: client.get(f"/v1/runs/{run['id']}").json()["status"] == "completed", "the end"
        )
        client.patch(f"/v1/conversations/{conversation}", json={"title": f"An {PLANTED} title"})
        reason = {"rating": "up", "reason": f"So {PLANTED}"}
        client.post(f"/v1/messages/{reply}/feedback", json=reason).raise_for_status()
    found: list[str] = json.loads(stack.manage("shell", "--verbosity", "0", "-c", _PREPARE))
    return found


@pytest.fixture(scope="module")
def boss_cookies(stack: Stack, pages: list[str]) -> list[dict[str, Any]]:
    return sign_in(stack.webs[0].url, Person("admin-walk@example.org", ""))


@pytest.fixture
def context(browser: Browser, boss_cookies: list[dict[str, Any]]) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies(boss_cookies)  # type: ignore[arg-type]
    yield context
    context.close()


def opened(context: BrowserContext, stack: Stack) -> ChatPage:
    return ChatPage(context.new_page(), stack.webs[0].url)


@pytest.mark.timeout(600)  # some seventy pages, on a machine that does other things too
def test_every_page_opens_and_shows_nobodys_text(
    stack: Stack, context: BrowserContext, pages: list[str]
) -> None:
    device = opened(context, stack)
    assert len(pages) > 50
    found: dict[str, list[str]] = {}
    for path in pages:
        answer = device.page.goto(device.url + path)
        assert answer is not None
        faults = [*device.violations, *device.faults]
        device.faults.clear()
        if answer.status != 200:
            faults.append(f"status {answer.status}")
        if PLANTED in device.page.content():
            faults.append("text of a conversation")
        if not device.page.evaluate("window.Alpine?.version"):
            faults.append("no Alpine")
        found |= {path: faults} if faults else {}
    assert found == {}


def test_the_menus_and_the_action_bar_work(stack: Stack, context: BrowserContext) -> None:
    device = opened(context, stack)
    page = device.page
    page.goto(f"{device.url}/admin/accounts/user/")
    page.locator("input.action-select").first.check()
    bar = page.locator("#changelist-actions")
    bar.locator("select[name=action]").select_option("enable")
    expect(bar.locator("button[name=index]")).to_be_visible()
    page.get_by_text("Filters").first.click()
    expect(page.locator("#changelist-filter")).to_be_visible()
    assert device.violations == []
    assert device.faults == []


def test_the_theme_is_kept(stack: Stack, context: BrowserContext) -> None:
    device = opened(context, stack)
    page = device.page
    page.goto(f"{device.url}/admin/")
    page.locator("#nav-sidebar-inner [x-data='{ openUserLinks: false }'] > div").click()
    page.get_by_text("Dark", exact=True).click()
    expect(page.locator("html")).to_have_class("dark")
    page.reload()
    expect(page.locator("html")).to_have_class("dark")
    assert device.faults == []


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)],
)
def test_screenshots(
    stack: Stack,
    browser: Browser,
    boss_cookies: list[dict[str, Any]],
    name: str,
    scheme: Any,
    width: int,
) -> None:
    """For people to look at (test-results/admin-*.png); and no page is wider than a phone."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    context.add_cookies(boss_cookies)  # type: ignore[arg-type]
    device = ChatPage(context.new_page(), stack.webs[0].url)
    SHOTS.mkdir(exist_ok=True)
    for page in ("", "generation/run/", "quotas/plan/walk/change/", "accounts/auditentry/"):
        device.page.goto(f"{device.url}/admin/{page}")
        device.page.wait_for_timeout(200)
        shot = f"admin-{name}-{page.strip('/').replace('/', '-') or 'index'}.png"
        device.page.screenshot(path=SHOTS / shot)
        assert device.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page
        assert device.faults == []
    context.close()


def test_who_is_no_administrator_meets_a_wall(stack: Stack, new_page: Any) -> None:
    device = new_page("bob")
    answer = device.page.goto(f"{device.url}/admin/accounts/user/")
    assert answer.status == 403
    assert "bob@example.org" not in device.page.content()
