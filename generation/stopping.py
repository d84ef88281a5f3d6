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
from generation.payloads import done_payload
from generation.redis_clients import token_log
from generation.run_state import LIVE
from generation.scheduler import scheduler_sync
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
    ended = _end_queued(row)
    if ended is None:
        return False
    pool, done = ended
    try:
        scheduler_sync().remove(row.external_id, pool)
        _append_done(row.external_id, done)
    except RedisError:
        # The end is in PostgreSQL: gateways look there, and a claim finds nothing to claim.
        log.warning("stop of %s not told", row, extra={"action": "stop_not_told"})
    return True


@transaction.atomic
def _end_queued(row: Run) -> tuple[str, Event] | None:
    """Where it waited, and its `done`; None where it waits no more."""
    fresh = runs.lock_queued(row.id)
    if fresh is None:
        return None
    last_seq = fresh.opening_seq + 1
    outcome = runs.Outcome("user_stopped", runs.continued_text(fresh), last_seq)
    done = runs.end_queued(row.id, outcome)
    if done is None:
        return None
    return fresh.pool_id, Event(last_seq, "done", encode_data(done))


def _append_done(run: str, done: Event) -> None:
    log_ = token_log()
    reply = log_.append(Batch(run, epoch=0, expected_seq=done.seq - 1, events=[done]))
    log_.tell(reply.watchers, run, reply.last_seq, [done])


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
