"""The admin's sidebar: what one looks after together stands together."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse

_GROUPS: Final = {
    "People": (
        ("accounts.user", "Users", "person"),
        ("auth.group", "Groups", "group"),
        ("accounts.organisation", "Organisations", "apartment"),
        ("accounts.apitoken", "API tokens", "key"),
    ),
    "Conversations": (
        ("conversations.conversation", "Conversations", "forum"),
        ("generation.run", "Runs", "bolt"),
        ("conversations.message", "Messages", "chat_bubble"),
        ("conversations.feedback", "Feedback", "thumbs_up_down"),
    ),
    "Plans and usage": (
        ("quotas.plan", "Plans", "sell"),
        ("quotas.subscription", "Subscriptions", "badge"),
        ("quotas.usageentry", "Usage", "receipt_long"),
    ),
    "Serving": (
        ("generation.model", "Models", "neurology"),
        ("generation.pool", "Pools", "hub"),
        ("generation.replica", "Replicas", "memory"),
    ),
    "Oversight": (("accounts.auditentry", "Audit", "history"),),
}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """unfold's shape: groups of items, only what this person may open."""
    groups = []
    for title, entries in _GROUPS.items():
        items = [_item(request, *entry) for entry in entries if _may_view(request, entry[0])]
        if title == "Serving" and request.user.has_perm("generation.view_pool"):
            items.insert(0, _link(request, reverse("queues:live"), "Queues", "monitoring"))
        if title == "Serving" and _may_view(request, "generation.pool"):
            page = reverse("admin:generation_engine_profiles")
            items.append(_link(request, page, "Engine profiles", "tune"))
        if items:
            groups.append({"title": title, "items": items})
    return groups


def _may_view(request: HttpRequest, label: str) -> bool:
    app, model = label.split(".")
    user = request.user
    return user.has_perm(f"{app}.view_{model}") or user.has_perm(f"{app}.change_{model}")


def _item(request: HttpRequest, label: str, title: str, icon: str) -> dict[str, Any]:
    return _link(request, reverse(f"admin:{label.replace('.', '_')}_changelist"), title, icon)


def _link(request: HttpRequest, page: str, title: str, icon: str) -> dict[str, Any]:
    # Of the pages under /pool/ the profiles are not the pools'.
    profiles = reverse("admin:generation_engine_profiles")
    here = request.path == page if request.path == profiles else request.path.startswith(page)
    return {"title": title, "icon": icon, "link": page, "active": here}
