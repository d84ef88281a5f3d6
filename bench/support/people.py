"""People who talk: users with an API token each, and models for the profiles of the environment."""

from __future__ import annotations

import os
from typing import Any, Final

PLAN: Final = "bench"
TOKENS_MAX: Final = 1_000_000


def make_people(count: int, plan: str = PLAN, **terms: Any) -> list[str]:
    """So many users; their API tokens. Django must be set up; the queues are built afterwards.

    On a plan without limits that is made where it is missing: no bench measures a quota. `terms`:
    what is otherwise in it.
    """
    from django.core.management import call_command

    from accounts import tokens
    from accounts.models import User
    from generation import reaper
    from quotas.models import Plan, Subscription

    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 — not a file
        call_command("ensure_demo", stdout=nowhere)
    reaper.sweep()  # as a worker does when it starts
    open_ = {"concurrent_runs": 1_000, "context_tokens": TOKENS_MAX, "answer_tokens": 100_000}
    Plan.objects.get_or_create(slug=plan, defaults={"title": plan, **open_, **terms})
    before = User.objects.count()
    people = [
        User.objects.create_user(f"bench-{number}@example.org", None, name="Bench")
        for number in range(before, before + count)
    ]
    Subscription.objects.bulk_create(Subscription(user=user, plan_id=plan) for user in people)
    return [tokens.create(user, "bench")[1] for user in people]
