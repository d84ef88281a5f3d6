"""Charging what a run has cost in place of what was held for it.

The usage entry is the truth, written where the run ends; this is its projection to the counters.
Whoever ends a run settles it, after its `done`; what they have no time for, the sweep does.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from django.utils import timezone
from redis.exceptions import RedisError

from generation.models import Run
from generation.run_state import LIVE
from generation.runs import Outcome
from quotas import ledger
from quotas.counters import counters
from quotas.limits import age_of_ms
from quotas.reservations import LiveRun

log = logging.getLogger(__name__)

LOOK_AFTER_MS: Final = 10_000
"""How often the open reservations of a user are looked at."""

LOST_AFTER_MS: Final = 30_000
"""A reservation so old without a row is that of a send that failed or whose process died: locks are
waited for 5 s, and a transaction that stands still is closed after 30."""

BATCH: Final = 200
"""Users in one sweep. Each worker sweeps every two seconds."""


def settle_as(owner_id: uuid.UUID, run_id: uuid.UUID, outcome: Outcome) -> None:
    """Charge what the usage entry of this outcome says, prompt and output; nothing where there is
    no answer. Once: what is settled holds nothing more. Redis' errors are logged, for the sweep
    comes after."""
    tokens, is_answered = outcome.prompt_tokens + outcome.output_tokens, outcome.output_tokens > 0
    try:
        counters().settle(owner_id, run_id, tokens=tokens, is_answered=is_answered)
    except RedisError:
        log.warning("run %s not settled yet", run_id, extra={"action": "not_settled"})


def live_of(owner_id: uuid.UUID) -> Callable[[], Sequence[LiveRun]]:
    """What counters that are built again must know of the user's live runs."""

    def read() -> list[LiveRun]:
        now_ms = int(timezone.now().timestamp() * 1_000)
        rows = Run.objects.filter(owner_id=owner_id, status__in=LIVE)
        found = rows.values_list("id", "model_used", "reserved_tokens")
        return [LiveRun(run, model, age_of_ms(run, now_ms), held) for run, model, held in found]

    return read


def sweep() -> int:
    """Settle ended runs and release what has no run; how many. Redis' errors pass through.

    Live runs stay. Who holds nothing any more is not looked at again.
    """
    store = counters()
    due = store.due(LOOK_AFTER_MS, BATCH)
    if not due:
        return 0
    open_runs = store.open_runs([user_id for user_id, _ in due])
    held = [
        (user_id, run_id)
        for (user_id, _), runs in zip(due, open_runs, strict=True)
        for run_id in runs
    ]
    store.forget(user for user, runs in zip(due, open_runs, strict=True) if not runs)
    # Rows first: a run that ends in between is live there, and looked at again.
    ids = [run_id for _, run_id in held]
    known = set(Run.objects.filter(id__in=ids).values_list("id", flat=True))
    ended = ledger.charged(ids)
    done = 0
    for user_id, run_id in held:
        if run_id in ended:
            tokens, is_answered = ended[run_id]
            done += store.settle(user_id, run_id, tokens=tokens, is_answered=is_answered)
        elif run_id not in known:
            done += store.release(user_id, run_id, LOST_AFTER_MS)
    return done
