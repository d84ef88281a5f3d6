"""Which plan somebody has, and what it lets them do."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from accounts import sql
from accounts.models import User
from quotas.models import AtLimit, Plan


@dataclass(frozen=True, slots=True)
class Terms:
    """A plan as one request meets it: read once, and the same to the request's end.

    `messages`: the models that the plan has, by slug, each with its messages in the window (None:
    as many as they like); None in place of the whole: every model, each with `messages_each`.
    """

    plan: str
    title: str
    weight: int
    is_paid: bool
    window_s: int
    messages_each: int | None
    tokens_per_minute: int | None
    requests_per_minute: int | None
    concurrent_runs: int
    context_tokens: int
    answer_tokens: int
    ttft_deadline_ms: int
    at_limit: str
    smaller_model: str
    messages: Mapping[str, int | None] | None = field(default=None)
    # Where their organisation's text may be, whatever the plan; empty: anywhere.
    residency: str = ""

    def allows(self, model: str) -> bool:
        return self.messages is None or model in self.messages

    def messages_of(self, model: str) -> int | None:
        """How many messages to this model in `window_s`; None: as many as they like."""
        own = self.messages.get(model) if self.messages is not None else None
        return self.messages_each if own is None else own

    @property
    def counts_messages(self) -> bool:
        """Whether the messages to any model are limited."""
        own = (self.messages or {}).values()
        return self.messages_each is not None or any(most is not None for most in own)

    @property
    def smaller(self) -> str | None:
        """The model that answers where this plan is at a limit; None: it refuses."""
        return self.smaller_model or None if self.at_limit == AtLimit.SMALLER_MODEL else None


NO_PLAN: Final = Terms(
    plan="",
    title="No plan",
    weight=1,
    is_paid=False,
    window_s=3 * 60 * 60,
    messages_each=None,
    tokens_per_minute=None,
    requests_per_minute=None,
    concurrent_runs=2,
    context_tokens=4_096,
    answer_tokens=1_024,
    ttft_deadline_ms=5_000,
    at_limit=AtLimit.REFUSE,
    smaller_model="",
    messages={},
)
"""Where there is neither a subscription nor a default plan: no model may be used."""

# The subscription's, else the staff's for staff, else the default one.
_CHOSEN = """
    SELECT plan.* FROM quotas_plan plan
    LEFT JOIN quotas_subscription own ON own.plan_id = plan.slug AND own.user_id = {user}
    WHERE own.id IS NOT NULL OR plan.is_default OR (plan.is_staff_default AND {is_staff})
    ORDER BY own.id IS NULL, NOT (plan.is_staff_default AND {is_staff}) LIMIT 1
"""
_COLUMNS = """
    chosen.slug, chosen.title, chosen.weight, chosen.is_paid, chosen.window_s, chosen.messages,
    chosen.tokens_per_minute, chosen.requests_per_minute, chosen.concurrent_runs,
    chosen.context_tokens, chosen.answer_tokens, chosen.ttft_deadline_ms, chosen.at_limit,
    chosen.smaller_model,
    (SELECT json_object_agg(one.model, one.messages) FROM quotas_planmodel one
     WHERE one.plan_id = chosen.slug)
"""
_RESIDENCY = """COALESCE((
    SELECT organisation.residency FROM accounts_user member
    JOIN accounts_organisation organisation ON organisation.id = member.organisation_id
    WHERE member.id = {user}
), '')"""
_TERMS = f"""
SELECT {_COLUMNS}, {_RESIDENCY.format(user="%(user)s")}
FROM ({_CHOSEN.format(user="%(user)s", is_staff="%(is_staff)s::boolean")}) chosen
"""  # noqa: S608 — constants of our own

_TERMS_OF_EACH = f"""
SELECT who.id, {_COLUMNS}, {_RESIDENCY.format(user="who.id")}
FROM accounts_user who
CROSS JOIN LATERAL ({_CHOSEN.format(user="who.id", is_staff="who.is_staff")}) chosen
WHERE who.id = ANY(%(users)s::uuid[])
"""  # noqa: S608 — constants of our own


def terms_of(user: User) -> Terms:
    """What this user's plan is now; NO_PLAN where they have none. One query."""
    return terms_later(user)()


def terms_later(user: User) -> Callable[[], Terms]:
    """`terms_of` in a pipeline (accounts.sql)."""
    asked = sql.later(_TERMS, {"user": user.id, "is_staff": user.is_staff})

    def terms() -> Terms:
        found = asked()
        return Terms(*found[0]) if found else NO_PLAN

    return terms


def terms_of_each(user_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Terms]:
    """`terms_of` for many users at once; all of them are in it. One query."""
    found = sql.rows(_TERMS_OF_EACH, {"users": sql.uuid_array(user_ids)})
    return {**dict.fromkeys(user_ids, NO_PLAN), **{row[0]: Terms(*row[1:]) for row in found}}


def terms_of_plan(plan: Plan) -> Terms:
    """As for a user of this plan."""
    own = {one.model: one.messages for one in plan.models.all()}
    return Terms(
        plan=plan.slug,
        title=plan.title,
        weight=plan.weight,
        is_paid=plan.is_paid,
        window_s=plan.window_s,
        messages_each=plan.messages,
        tokens_per_minute=plan.tokens_per_minute,
        requests_per_minute=plan.requests_per_minute,
        concurrent_runs=plan.concurrent_runs,
        context_tokens=plan.context_tokens,
        answer_tokens=plan.answer_tokens,
        ttft_deadline_ms=plan.ttft_deadline_ms,
        at_limit=plan.at_limit,
        smaller_model=plan.smaller_model,
        messages=own or None,
    )


def room_in(plan: str, context_tokens: int, answer_tokens: int) -> tuple[int, int]:
    """What the plan of this slug leaves of a model's context and answer room; where it is gone,
    all of it."""
    found = Plan.objects.filter(slug=plan).first()
    if found is None:
        return context_tokens, answer_tokens
    return min(context_tokens, found.context_tokens), min(answer_tokens, found.answer_tokens)


def is_paid_sql(user: str) -> str:
    """For statements written by hand: whether the plan of the user in this column is a paid one."""
    staff = f"(SELECT who.is_staff FROM accounts_user who WHERE who.id = {user})"  # noqa: S608 — a column of ours
    chosen = _CHOSEN.format(user=user, is_staff=staff)
    return f"COALESCE((SELECT chosen.is_paid FROM ({chosen}) chosen), FALSE)"  # noqa: S608 — a column of ours
