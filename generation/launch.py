"""From a saved run to a waiting one: a log opened under epoch 0, a place in the queue, a ticket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.conf import settings

from accounts.ids import external_id
from generation.events import Event, encode_data
from generation.models import Run
from generation.payloads import start_data
from generation.redis_clients import token_log
from generation.runs import continued_text
from generation.scheduler import QueueEntry, scheduler_sync
from generation.scheduler.entries import CAP_MAX
from quotas.plans import Terms, terms_of, terms_of_each

FIFO: Final = "fifo"
"""settings.SCHEDULER_ORDER of benches that show what a plain queue does."""


def launch(run: Run, terms: Terms | None = None) -> None:
    """Open the log, then queue the run. May be repeated. Redis' errors pass through.

    `terms` are those of the run's owner, where the caller has read them. The log first: whoever
    claims the run finds what epoch 0 had to say.
    """
    open_log(run)
    scheduler_sync().enqueue(queue_entry(run, terms), pool=run.pool_id)


def open_log(run: Run) -> None:
    """Give the log what epoch 0 says and it lacks. Redis' errors pass through."""
    opening = opening_events(run)
    reply = token_log().open(run.external_id, epoch=0, events=opening, status="queued")
    token_log().tell(reply.watchers, run.external_id, reply.last_seq, opening)


def opening_events(run: Run) -> list[Event]:
    """What epoch 0 says: a launch can be repeated, for the row only ever adds a notice.

    An answer that continues another shows that text at once, in the queue too.
    """
    events = [Event(1, "start", start_data(run))]
    if run.continues_id is not None:
        events.append(Event(2, "snapshot", encode_data({"text": continued_text(run)})))
    # Last: each move in the queue may add one.
    for seq, notice in enumerate(run.notices, len(events) + 1):
        events.append(Event(seq, "notice", encode_data(notice)))
    return events


def queue_entry(run: Run, terms: Terms | None = None) -> QueueEntry:
    """The run as the queue knows it, on the terms that its owner has now."""
    if settings.SCHEDULER_ORDER == FIFO:
        # All of one plan, and of one user: so they go in the order in which they came.
        return QueueEntry(run.external_id, "everyone", _cost_tokens(run), is_paid=True)
    terms = terms if terms is not None else terms_of(run.owner)
    return QueueEntry(
        run.external_id,
        external_id("u", run.owner_id),
        _cost_tokens(run),
        plan=terms.plan,
        weight=min(max(1, terms.weight), CAP_MAX),
        is_paid=terms.is_paid,
        cap=min(max(1, terms.concurrent_runs), CAP_MAX),
        conversation=external_id("c", run.conversation_id),
        is_pinned=bool(terms.residency),
    )


def queue_entries(runs: Sequence[Run]) -> list[QueueEntry]:
    """`queue_entry` for many at once, in one query."""
    if not runs:
        return []
    terms = terms_of_each({run.owner_id for run in runs})
    return [queue_entry(run, terms[run.owner_id]) for run in runs]


def _cost_tokens(run: Run) -> int:
    return run.reserved_tokens or run.answer_tokens
