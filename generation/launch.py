"""From a saved run to a waiting one: a log opened under epoch 0, a place in the queue, a ticket."""

from __future__ import annotations

from accounts.ids import external_id
from generation.events import Event, encode_data
from generation.models import Run
from generation.payloads import start_data
from generation.redis_clients import token_log
from generation.runs import continued_text
from generation.scheduler import QueueEntry, scheduler_sync


def launch(run: Run) -> None:
    """Open the log, then queue the run. May be repeated. Redis' errors pass through.

    The log first: whoever claims the run finds what epoch 0 had to say.
    """
    open_log(run)
    entry = queue_entry(run)
    scheduler_sync().enqueue(
        entry.run, pool=run.pool_id, user=entry.user, cost_tokens=entry.cost_tokens
    )


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


def queue_entry(run: Run) -> QueueEntry:
    """The run as the queue knows it."""
    return QueueEntry(run.external_id, external_id("u", run.owner_id), run.answer_tokens)
