"""The plans that a new installation begins with; administrators change them as they like."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps as global_apps
from django.apps.registry import Apps
from django.db import DEFAULT_DB_ALIAS

from quotas.models import AtLimit, Plan

# Weights and deadlines: paid 2.5 s to the first token, free 5 s; pro 8 : plus 4 : free 1.
_PAID: Final = {"is_paid": True, "ttft_deadline_ms": 2_500, "at_limit": AtLimit.REFUSE}

SEEDS: Final[dict[str, dict[str, Any]]] = {
    "free": {
        "title": "Free",
        "is_default": True,
        "weight": 1,
        "messages": 40,
        "tokens_per_minute": 20_000,
        "requests_per_minute": 20,
        "concurrent_runs": 2,
        "context_tokens": 4_096,
        "answer_tokens": 1_024,
        "at_limit": AtLimit.REFUSE,
    },
    "plus": {
        **_PAID,
        "title": "Plus",
        "weight": 4,
        "messages": 200,
        "tokens_per_minute": 100_000,
        "requests_per_minute": 60,
        "concurrent_runs": 4,
        "context_tokens": 16_384,
        "answer_tokens": 4_096,
    },
    "pro": {
        **_PAID,
        "title": "Pro",
        "weight": 8,
        "tokens_per_minute": 400_000,
        "requests_per_minute": 120,
        "concurrent_runs": 8,
        "context_tokens": 32_768,
        "answer_tokens": 8_192,
    },
    "api": {
        **_PAID,
        "title": "API",
        "weight": 4,
        "tokens_per_minute": 1_000_000,
        "requests_per_minute": 600,
        "concurrent_runs": 32,
        "context_tokens": 32_768,
        "answer_tokens": 8_192,
    },
    "staff": {
        **_PAID,
        "title": "Staff",
        "is_staff_default": True,
        "weight": 4,
        "concurrent_runs": 8,
        "context_tokens": 32_768,
        "answer_tokens": 8_192,
    },
}
"""By slug. A limit that is not named here is no limit."""


def seed(*, using: str = DEFAULT_DB_ALIAS, apps: Apps = global_apps, **_: object) -> None:
    """Make them where there is no plan at all. After each migrate, and after a test's flush.

    `apps` is as the migrations have left it: in the middle of them a plan has other columns.
    """
    if using != DEFAULT_DB_ALIAS or not _is_whole(apps):
        return
    plans = apps.get_model("quotas", "Plan")._default_manager
    if not plans.exists():
        rows = [plans.model(slug=slug, **fields) for slug, fields in SEEDS.items()]
        plans.bulk_create(rows, ignore_conflicts=True)


def _is_whole(apps: Apps) -> bool:
    try:
        there = apps.get_model("quotas", "Plan")._meta.get_fields()
    except LookupError:
        return False
    return {field.name for field in Plan._meta.concrete_fields} <= {field.name for field in there}
