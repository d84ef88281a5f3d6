"""Writing the usage ledger, and what it says of one user."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from django.db import connection
from django.utils import timezone

from accounts import sql
from accounts.ids import new_id
from quotas.limits import age_of_ms

CHARGES_MAX: Final = 5_000
"""The newest entries that a minute's limits are built from: no limit is near so many."""

# By hand: it stands in the transaction in which every answer ends.
_RECORD = """
INSERT INTO quotas_usageentry
    (id, user_id, run_id, model, prompt_tokens, cached_tokens, output_tokens, cost, created)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def record(
    *,
    user_id: uuid.UUID,
    run_id: uuid.UUID,
    model: str,
    prompt_tokens: int,
    cached_tokens: int,
    output_tokens: int,
    cost: Decimal | None,
) -> None:
    """Add the one entry of this run. Call it inside the transaction that ends the run.

    Raises IntegrityError if the run has an entry already: a run is charged once.
    """
    used = (prompt_tokens, cached_tokens, output_tokens, cost)
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, [new_id(), user_id, run_id, model, *used, timezone.now()])


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Charge:
    """What one ended run was charged. `age_ms`: since its id was allotted, at its send."""

    run_id: uuid.UUID
    model: str
    age_ms: int
    tokens: int
    is_answered: bool


_CHARGES = """
SELECT run_id, model, prompt_tokens + output_tokens, output_tokens > 0
FROM quotas_usageentry
WHERE user_id = %(user)s AND created > now() - make_interval(secs => %(since_s)s::float8)
ORDER BY created DESC LIMIT %(most)s
"""


def charges_since(user_id: uuid.UUID, since_s: int) -> list[Charge]:
    """The user's runs that ended in so many seconds before now; the newest CHARGES_MAX of them. For
    a minute's limits; of a window see `messages_since`."""
    values = {"user": user_id, "since_s": since_s, "most": CHARGES_MAX}
    now_ms = int(timezone.now().timestamp() * 1_000)
    return [
        Charge(run_id, model, age_of_ms(run_id, now_ms), tokens, is_answered)
        for run_id, model, tokens, is_answered in sql.rows(_CHARGES, values)
    ]


# For each model its newest messages, as many as its limit: more of them change nothing.
_MESSAGES = """
SELECT entry.run_id, limited.model, entry.tokens
FROM unnest(%(models)s::text[], %(limits)s::int[]) AS limited (model, most)
CROSS JOIN LATERAL (
    SELECT run_id, prompt_tokens + output_tokens AS tokens FROM quotas_usageentry
    WHERE user_id = %(user)s AND model = limited.model AND output_tokens > 0
        AND created > now() - make_interval(secs => %(since_s)s::float8)
    ORDER BY id DESC LIMIT limited.most
) entry
"""


def messages_since(
    user_id: uuid.UUID, since_s: int, limits: Mapping[str, int | None]
) -> list[Charge]:
    """The user's answered messages to each model that has a limit, the newest ones of a window."""
    limited = {model: most for model, most in limits.items() if most is not None}
    values = {
        "user": user_id,
        "since_s": since_s,
        "models": list(limited),
        "limits": list(limited.values()),
    }
    now_ms = int(timezone.now().timestamp() * 1_000)
    return [
        Charge(run_id, model, age_of_ms(run_id, now_ms), tokens, is_answered=True)
        for run_id, model, tokens in sql.rows(_MESSAGES, values)
    ]


@dataclass(frozen=True, slots=True)
class Used:
    """What somebody has used of one model. `cost` is None where no price was ever known."""

    model: str
    messages: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: Decimal | None


_USED = """
SELECT model, count(*), sum(prompt_tokens), sum(cached_tokens), sum(output_tokens), sum(cost)
FROM quotas_usageentry
WHERE user_id = %(user)s AND created > now() - make_interval(secs => %(since_s)s::float8)
    AND output_tokens > 0
GROUP BY model ORDER BY model
"""


def used_since(user_id: uuid.UUID, since_s: int) -> list[Used]:
    """By model; what ended without an answer was not charged, and is not in it."""
    found = sql.rows(_USED, {"user": user_id, "since_s": since_s})
    return [
        Used(model, messages, int(prompt), int(cached), int(output), cost)
        for model, messages, prompt, cached, output, cost in found
    ]


_ENDED = """
SELECT run_id, prompt_tokens + output_tokens, output_tokens > 0
FROM quotas_usageentry WHERE run_id = ANY(%(runs)s::uuid[])
"""


def charged(run_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, tuple[int, bool]]:
    """Of those that have ended: prompt and output tokens, and whether there is an answer."""
    found = sql.rows(_ENDED, {"runs": sql.uuid_array(run_ids)})
    return {run_id: (tokens, is_answered) for run_id, tokens, is_answered in found}
