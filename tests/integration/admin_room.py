"""What the tests of the admin share: a row of each kind, and the forms that make and change one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import Group
from django.db.models import Model as Row
from django.test import Client

from accounts import audit
from accounts.ids import new_id
from accounts.models import AuditEntry, Organisation, User
from conversations import services
from conversations.content import text_content
from conversations.models import Conversation, Feedback, Message
from generation.models import Model, Pool, Replica, Run
from quotas.models import Plan, PlanModel, Subscription, UsageEntry
from tests.people import PASSWORD, make_person

_numbers = itertools.count(1)

PLANTED = "xylographic"
"""A word that stands in every text; no page, message or audit entry may hold it."""


def make_conversation(owner: User) -> Conversation:
    conversation = services.create_conversation(owner)
    services.rename(conversation, f"{PLANTED} title")
    services.add_user_message(conversation, None, text_content(f"{PLANTED} question"))
    return conversation


def make_message(owner: User) -> Message:
    return Message.objects.get(conversation=make_conversation(owner))


def make_pool() -> Pool:
    number = next(_numbers)
    model = Model.objects.create(slug=f"model-{number}", title="Model")
    return Pool.objects.create(slug=f"pool-{number}", model=model, profile="nowhere")


def make_run(owner: User) -> Run:
    message, pool = make_message(owner), make_pool()
    return Run.objects.create(
        owner=owner,
        conversation=message.conversation,
        parent=message,
        model_asked=pool.model_id,
        model_used=pool.model_id,
        pool=pool,
    )


def make_feedback(owner: User) -> Feedback:
    message = make_message(owner)
    return services.set_feedback(message, owner, "down", f"{PLANTED} reason")


def make_usage(owner: User) -> UsageEntry:
    return UsageEntry.objects.create(user=owner, run_id=new_id(), model="m", output_tokens=3)


def make_plan() -> Plan:
    plan = Plan.objects.create(slug=f"plan-{next(_numbers)}", title="Plan", smaller_model="small")
    PlanModel.objects.create(plan=plan, model="large", messages=40)
    return plan


def make_entry(owner: User) -> AuditEntry:
    return audit.record_of(
        owner, "192.0.2.1", "signed_in", audit.type_of(owner), audit.name_of(owner)
    )


ROWS: dict[str, Callable[[], Row]] = {
    "accounts.user": lambda: make_person("row").user,
    "accounts.organisation": lambda: Organisation.objects.create(name="Acme"),
    "accounts.apitoken": lambda: make_person("row").token,
    "accounts.auditentry": lambda: make_entry(make_person("row").user),
    "auth.group": lambda: Group.objects.create(name=f"group-{next(_numbers)}"),
    "conversations.conversation": lambda: make_conversation(make_person("row").user),
    "conversations.message": lambda: make_message(make_person("row").user),
    "conversations.feedback": lambda: make_feedback(make_person("row").user),
    "generation.model": lambda: make_pool().model,
    "generation.pool": make_pool,
    "generation.replica": lambda: Replica.objects.create(
        name=f"replica-{next(_numbers)}", pool=make_pool()
    ),
    "generation.run": lambda: make_run(make_person("row").user),
    "quotas.plan": make_plan,
    "quotas.subscription": lambda: Subscription.objects.create(
        user=make_person("row").user, plan=make_plan()
    ),
    "quotas.usageentry": lambda: make_usage(make_person("row").user),
}
"""A row of each registered kind. A new admin needs one here: the tests walk over all of them."""

_PLAN = {
    "title": "New plan",
    "weight": "4",
    "window_s": "3600",
    "tokens_per_minute": "1000",
    "requests_per_minute": "",
    "concurrent_runs": "2",
    "at_limit": "refuse",
    "smaller_model": "",
    "context_tokens": "4096",
    "answer_tokens": "512",
    "ttft_deadline_ms": "2500",
}
_MODEL = {
    "title": "New model",
    "enabled": "on",
    "context_tokens": "4096",
    "answer_tokens": "512",
    "price_input": "0.15",
    "price_cached": "0.05",
    "price_cache_write": "0.2",
    "price_output": "0.6",
}


def _inline(*rows: dict[str, str], initial: int = 0) -> dict[str, str]:
    form = {"models-TOTAL_FORMS": str(len(rows)), "models-INITIAL_FORMS": str(initial)}
    for number, row in enumerate(rows):
        form |= {f"models-{number}-{name}": value for name, value in row.items()}
    return form


def _change_plan(plan: Any) -> dict[str, Any]:
    row = plan.models.get()
    old = {"id": str(row.pk), "plan": plan.pk, "model": "large", "messages": "50"}
    new = {"id": "", "plan": plan.pk, "model": "small", "messages": ""}
    return {**_PLAN, **_inline(old, new, initial=1)}


ADD: dict[str, Callable[[], dict[str, Any]]] = {
    "accounts.user": lambda: {
        "email": "new@example.org",
        "name": "",
        "organisation": "",
        "usable_password": "true",
        "password1": PASSWORD,
        "password2": PASSWORD,
    },
    "accounts.organisation": lambda: {"name": "New", "residency": "eu", "retention_days": "30"},
    "accounts.apitoken": lambda: {
        "user": str(make_person("row").user.pk),
        "name": "new",
        "expires_0": "",
        "expires_1": "",
        "scopes": ["read"],
    },
    "auth.group": lambda: {"name": "New group"},
    "generation.model": lambda: {"slug": "new", **_MODEL, "fallback": make_pool().slug},
    "generation.pool": lambda: {
        "slug": "new",
        "model": make_pool().model_id,
        "region": "eu",
        "profile": "sim",
        "silence_s": "30",
        "round_trip_ms": "0",
    },
    "quotas.plan": lambda: {"slug": "new", **_PLAN, **_inline({"model": "m", "messages": "3"})},
    "quotas.subscription": lambda: {
        "user": str(make_person("row").user.pk),
        "plan": make_plan().pk,
    },
}

CHANGE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "accounts.user": lambda user: {
        "email": "changed@example.org",
        "name": user.name,
        "preferences": "{}",
        "is_active": "on",
    },
    "accounts.organisation": lambda row: {"name": "Acme", "residency": "", "retention_days": "7"},
    "accounts.apitoken": lambda token: {"name": "renamed", "scopes": ["read"]},
    "auth.group": lambda row: {"name": "Renamed"},
    "generation.model": lambda row: _MODEL,
    "generation.pool": lambda pool: {
        "model": pool.model_id,
        "region": "eu",
        "profile": "sim",
        "silence_s": "12",
        "round_trip_ms": "80",
    },
    "quotas.plan": _change_plan,
    "quotas.subscription": lambda row: {"user": str(row.user_id), "plan": make_plan().pk},
}


def _disabled(row: Any) -> None:
    User.objects.filter(pk=row.pk).update(is_active=False)


def _signed_in(row: Any) -> None:
    client = Client()
    client.force_login(row)
    client.get("/accounts/sessions/")


BEFORE_ACTION: dict[tuple[str, str], Callable[[Any], None]] = {
    ("accounts.user", "end_sessions"): _signed_in,
    ("accounts.user", "enable"): _disabled,
}
"""What makes an action have something to do with a fresh row."""

ACTION_FIELDS: dict[tuple[str, str], Callable[[], dict[str, str]]] = {
    ("generation.replica", "move"): lambda: {"pool": make_pool().slug},
}
"""What an action is asked beside the rows."""


def let_go(label: str, row: Any) -> None:
    """Nothing holds the row any more."""
    if label == "generation.model":
        Pool.objects.filter(model=row).delete()


def url_of(row: Any, page: str) -> str:
    meta = row._meta
    return f"/admin/{meta.app_label}/{meta.model_name}/{row.pk}/{page}/"


def list_url(label: str) -> str:
    return f"/admin/{label.replace('.', '/')}/"
