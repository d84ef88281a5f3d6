"""How a live run is stopped, whoever asks: recorded in PostgreSQL first, then told."""

from __future__ import annotations

import logging

from django.db import transaction
from django.utils import timezone
from redis.exceptions import RedisError

from generation import runs
from generation.events import Event, encode_data
from generation.models import Run
from generation.owner_signal import tell_owner
from generation.payloads import done_payload, error_payload
from generation.redis_clients import token_log
from generation.run_state import LIVE, Finish
from generation.scheduler import scheduler_sync
from generation.settling import settle_as
from generation.token_log.commands import Batch, Code

log = logging.getLogger(__name__)


def stop_run(row: Run) -> None:
    """Stop the run, with the partial answer kept. Stopping twice, or an ended run, changes nothing.

    A queued run is ended here. For a running one its owner is told: by the flag that every append
    returns, and directly on its channel.
    """
    record_stop(row)
    if not _end_if_queued(row):
        _tell_owner(row)


def record_stop(row: Run) -> bool:
    """Write down that the run shall stop; False where it has ended or was asked before.

    For those who must write more in the same transaction: `stop_run` comes after its commit.
    """
    asked = Run.objects.filter(id=row.id, status__in=LIVE, stop_requested_at__isnull=True)
    return asked.update(stop_requested_at=timezone.now()) == 1


def _end_if_queued(row: Run) -> bool:
    return end_queued(row, "user_stopped")


def end_queued(row: Run, finish: Finish, error_code: str = "") -> bool:
    """End a run that nobody has claimed; False where somebody has, or it has ended."""
    ended = _end_queued(row, finish, error_code)
    if ended is None:
        return False
    pool, events, outcome = ended
    try:
        scheduler_sync().remove(row.external_id, pool)
        _append_end(row.external_id, events)
    except RedisError:
        # The end is in PostgreSQL: gateways look there, and a claim finds nothing to claim.
        log.warning("end of %s not told", row, extra={"action": "stop_not_told"})
    settle_as(row.owner_id, row.id, outcome)
    return True


@transaction.atomic
def _end_queued(
    row: Run, finish: Finish, error_code: str
) -> tuple[str, list[Event], runs.Outcome] | None:
    """Where it waited, its last events, and how it ended; None where it waits no more."""
    fresh = runs.lock_queued(row.id)
    if fresh is None:
        return None
    events = []
    if error_code:
        data = encode_data(error_payload(error_code))
        events.append(Event(fresh.opening_seq + 1, "error", data))
    last_seq = fresh.opening_seq + 1 + len(events)
    text = runs.continued_text(fresh)
    outcome = runs.Outcome(finish, text, last_seq, error_code=error_code)
    done = runs.end_queued(row.id, outcome)
    if done is None:
        return None
    return fresh.pool_id, [*events, Event(last_seq, "done", encode_data(done))], outcome


def _append_end(run: str, events: list[Event]) -> None:
    log_ = token_log()
    reply = log_.append(Batch(run, epoch=0, expected_seq=events[0].seq - 1, events=events))
    log_.tell(reply.watchers, run, reply.last_seq, events)


def repair_end(row: Run) -> bool:
    """Give the log of an ended run the `done` that it lacks. Redis' errors pass through."""
    done = Event(row.last_seq or 0, "done", encode_data(done_payload(row)))
    batch = Batch(row.external_id, row.epoch, expected_seq=done.seq - 1, events=[done])
    reply = token_log().append(batch)
    if reply.code is Code.OK:
        token_log().tell(reply.watchers, row.external_id, reply.last_seq, [done])
    else:
        # It ends elsewhere, or belongs to nobody: gateways answer from PostgreSQL.
        token_log().delete(row.external_id, epoch=row.epoch)
    return True


def _tell_owner(row: Run) -> None:
    try:
        tell_owner(row.external_id)
    except RedisError:
        log.warning("stop of %s not told", row, extra={"action": "stop_not_told"})
