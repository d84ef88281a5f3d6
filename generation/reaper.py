"""Finds what was lost: queues Redis forgot, runs saved but never queued, runs without an owner.

Run every few seconds by the workers; many at once do no harm, for each step is a guarded update,
an idempotent script, or under a lock.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from django.db import OperationalError
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.ids import parse_id
from generation import checkpoints, orphans, queue_figures, runs, settling
from generation.catalogue import FRESH
from generation.events import Event, encode_data, takeover_seq
from generation.fallback import drop_strays, move_stranded_runs
from generation.guarded import guarded
from generation.ladder import chores_pause
from generation.launch import launch, queue_entries, queue_entry
from generation.models import Pool, Replica, Run
from generation.orphans import DEAD_AFTER
from generation.owner_signal import tell_owner
from generation.payloads import error_payload
from generation.redis_clients import (
    pause_reaping,
    reaping_paused,
    takes_turn,
    takes_writes,
    token_log,
)
from generation.run_state import ENDED, EPOCHS_MAX, LIVE
from generation.runs import served_tokens
from generation.scheduler import Asker, AtWork, QueueEntry, scheduler_sync
from generation.settling import settle_as
from generation.stopping import repair_end, stop_run
from generation.token_log import Batch, LogState
from quotas.plans import Terms, terms_of_each

log = logging.getLogger(__name__)

LOST_AFTER: Final = timedelta(seconds=2)
"""A run saved so long ago without a place in the queue was lost on its way there."""

CONFIRM_S: Final = 2.0
"""An owner renews its lease every second: twice as long and it is not only late."""

REPAIRED_WITHIN: Final = timedelta(minutes=2)
"""How long after its end a run's log is looked at; an ended log lives a minute."""

WAIT_FOR_REPLICA: Final = timedelta(minutes=10)
"""How long a run without an owner waits for an engine: a large model takes minutes to load."""

WAIT_FOR_NOBODY: Final = timedelta(minutes=1)
"""And where not even a worker is there."""

BATCH: Final = 200


def sweep(*, in_turn: bool = False) -> None:
    """One round over everything. A pool or a run that makes trouble does not stop the others.

    `in_turn`: pass over the pools that another process has begun to look at a moment ago. It reads
    all that waits and is at work there: by every worker, that would grow with the square of a
    pool's size. Redis' and PostgreSQL's errors pass through: then nothing can be done at all.
    """
    for pool in Pool.objects.all():
        if not in_turn or takes_turn(pool.slug):
            guarded(_sweep_pool, pool)
    move_stranded_runs()
    checkpoints.drop_ended()
    stop_deleted()
    tell_stops()
    repair_ends()
    mend_dead_runs()
    settling.sweep()
    guarded(lambda _: queue_figures.sample(), "samples")


def _sweep_pool(row: Pool) -> None:
    pool = row.slug
    # First: a queue must not be built before it is paused.
    tell_pause(pool)
    if not scheduler_sync().is_built(pool):
        rebuild(pool, if_lost=True)
    queue_lost_runs(pool)
    free_places(pool)
    drop_strays(pool)
    tell_chores(pool)


NOBODY: Final = Asker("u_nobody", plan="", weight=1, is_paid=False)
"""Whoever comes next and does not pay."""


def tell_chores(pool: str) -> None:
    """Let chores stand back while somebody would wait, and go on when nobody does."""
    (outlook,) = scheduler_sync().outlook([pool], NOBODY)
    paused = scheduler_sync().are_chores_paused(pool)
    now = chores_pause(outlook.predicted_wait_ms or 0, paused=paused)
    if now != paused:
        scheduler_sync().configure(pool, chores_paused=now)


def tell_pause(pool: str) -> None:
    """Tell the queue whether the pool is paused, as PostgreSQL has it afterwards too: a pause that
    was saved and told meanwhile would else be undone until the next sweep."""
    told: bool | None = None
    while (now := _is_paused(pool)) is not None and now != told:
        scheduler_sync().configure(pool, paused=now)
        told = now


def _is_paused(pool: str) -> bool | None:
    """None where the pool is there no more."""
    return Pool.objects.filter(slug=pool).values_list("is_paused", flat=True).first()


def rebuild(pool: str, *, if_lost: bool = False) -> bool:
    """Fill a queue that Redis has lost from PostgreSQL; False where another process does it.

    `if_lost`: nor where another one was faster, and has let go of the lock.
    """
    # Owners need a moment to open their logs again: until then every lease looks dead.
    pause_reaping()
    built = scheduler_sync().rebuild(
        pool, lambda: [*_running(pool), *_waiting(pool)], if_lost=if_lost
    )
    if built:
        log.warning("queue of %s rebuilt", pool, extra={"action": "queue_rebuilt", "pool": pool})
    return built


def _running(pool: str) -> list[AtWork]:
    """Those at work, so that their users' caps and their replicas' room are known again."""
    rows = list(Run.objects.filter(pool=pool, status="running").exclude(replica=""))
    return [
        AtWork(entry, row.replica, int((row.claimed_at or row.queued_at).timestamp() * 1000))
        for row, entry in zip(rows, queue_entries(rows), strict=True)
    ]


def _waiting(pool: str) -> list[QueueEntry]:
    queued = Run.objects.filter(pool=pool, status="queued").order_by("id")
    return queue_entries(list(queued))


def queue_lost_runs(pool: str) -> int:
    """Launch runs that were saved but have no place in the queue; how many there were.

    A run that was popped a moment ago has none either, and its claim may be about to commit.
    """
    queued = Run.objects.filter(pool=pool, status="queued", queued_at__lt=Now() - LOST_AFTER)
    launched = 0
    for batch in _batches(queued):
        lost = set(scheduler_sync().lost([run.external_id for run in batch], pool))
        missing = [run for run in batch if run.external_id in lost]
        terms = terms_of_each({run.owner_id for run in missing}) if missing else {}
        # One that cannot be launched must not keep the pool's others waiting.
        launched += sum(guarded(partial(_launch, terms), run) for run in missing)
    return launched


def _launch(terms: Mapping[uuid.UUID, Terms], run: Run) -> int:
    launch(run, terms[run.owner_id])
    return 1


def free_places(pool: str) -> int:
    """Tell the queue of runs that it has at work and that have ended; how many there were. Whoever
    ends a run does that, unless it dies first."""
    freed = 0
    for part in scheduler_sync().records(pool):
        ids = {parse_id("g", record.run): record.run for record in part}
        here = Run.objects.filter(id__in=ids, status__in=LIVE, pool=pool)
        gone = ids.keys() - set(here.values_list("id", flat=True))
        for row in Run.objects.filter(id__in=gone):
            spent = served_tokens(row.prompt_tokens, row.cached_tokens, row.output_tokens)
            freed += scheduler_sync().ended(ids.pop(row.id), pool, spent)
        # Purged by now, or another database's.
        freed += sum(scheduler_sync().ended(ids[run], pool, 0) for run in gone & ids.keys())
    return freed


def stop_deleted() -> int:
    """Stop the runs of deleted conversations that a delete had no time to stop; how many.

    A delete stops them after its commit, and the process may die between the two.
    """
    missed = Run.objects.filter(
        status__in=LIVE,
        stop_requested_at__isnull=True,
        conversation__deleted_at__lt=Now() - LOST_AFTER,
    )
    return sum(guarded(_stop, row) for batch in _batches(missed) for row in batch)


def _stop(row: Run) -> bool:
    stop_run(row)
    return True


def tell_stops() -> int:
    """Tell running runs' owners again what PostgreSQL knows: that they were asked to stop.

    The flag may have been lost with its log, or the one who set it could not reach Redis.
    """
    asked = Run.objects.filter(status="running", stop_requested_at__lt=Now() - LOST_AFTER)
    told = 0
    for batch in _batches(asked):
        for row in batch:
            tell_owner(row.external_id)
            told += 1
    return told


def repair_ends() -> int:
    """Append the `done` that a crash between the finish and the log has kept back."""
    ended = Run.objects.filter(
        status__in=ENDED,
        finished_at__gt=Now() - REPAIRED_WITHIN,
        finished_at__lt=Now() - DEAD_AFTER,
    )
    repaired = 0
    for batch in _batches(ended.only("id")):
        states = token_log().states([row.external_id for row in batch])
        # Nearly all have ended there too, so only ids have been read so far.
        unended = [
            row.id
            for row, state in zip(batch, states, strict=True)
            if state is not None and state.status != "ended"
        ]
        if unended:
            repaired += sum(guarded(repair_end, row) for row in ended.filter(id__in=unended))
    return repaired


def mend_dead_runs() -> int:
    """Give running runs whose owner is gone to another, or end them; how many.

    Each is looked at twice, CONFIRM_S apart: when Redis thaws after some seconds it may answer us
    before it has taken the owners' renewals, and every lease looks dead for a moment.
    """
    if reaping_paused():
        return 0
    running = Run.objects.filter(status="running", claimed_at__lt=Now() - DEAD_AFTER)
    suspects = [row for batch in _batches(running) for row in _in_need(_dead_among(batch))]
    if not suspects or not takes_writes():
        return 0
    time.sleep(CONFIRM_S)
    parts = [suspects[at : at + BATCH] for at in range(0, len(suspects), BATCH)]
    dead = [pair for part in parts for pair in _dead_among(part)]
    # Asked last: a Redis that was lost in between knows no lease, and has no marker either.
    if reaping_paused() or not _all_built():
        return 0
    # The oldest last: each goes to the head of its queue.
    return sum(guarded(_mend, pair) for pair in reversed(dead))


def _dead_among(rows: Sequence[Run]) -> list[tuple[Run, LogState | None]]:
    states = orphans.states_of(rows)
    return [pair for pair in zip(rows, states, strict=True) if orphans.has_no_owner(pair[1])]


def _in_need(dead: Sequence[tuple[Run, LogState | None]]) -> list[Run]:
    """Those for which something is to be done: not what waits in its queue already, and may."""
    places = scheduler_sync().positions([(row.pool_id, row.external_id) for row, _ in dead])
    return [
        row
        for (row, state), place in zip(dead, places, strict=True)
        if place is None or not _can_go_on(row, state)
    ]


def _all_built() -> bool:
    return all(
        scheduler_sync().is_built(pool) for pool in Pool.objects.values_list("slug", flat=True)
    )


def _batches(rows: QuerySet[Run]) -> Iterator[list[Run]]:
    """All of them, oldest first, without holding them all."""
    rows, last = rows.order_by("id"), None
    while batch := list((rows.filter(id__gt=last) if last else rows)[:BATCH]):
        last = batch[-1].id
        yield batch


def _mend(pair: tuple[Run, LogState | None]) -> bool:
    row, state = pair
    return _put_back(row, state) if _can_go_on(row, state) else _end_dead(row)


def _can_go_on(row: Run, state: LogState | None) -> bool:
    """Whether another owner may still finish it."""
    if row.stop_requested_at is not None or row.epoch >= EPOCHS_MAX:
        return False
    unowned = _unowned_for(row, state)
    if unowned is None:
        return False
    # The lease is the send's where an owner died before it opened the log.
    waited = min(unowned, timezone.now() - (row.claimed_at or row.queued_at))
    patience = WAIT_FOR_REPLICA if _is_announced(row.pool_id) else WAIT_FOR_NOBODY
    return waited < patience


def _unowned_for(row: Run, state: LogState | None) -> timedelta | None:
    """None where owner and log are both lost, and with them some of the text."""
    if state is not None:
        return timedelta(milliseconds=state.now_ms - state.lease_until_ms)
    let_go = checkpoints.let_go_at(row.id, row.epoch)
    return timezone.now() - let_go if let_go is not None else None


def _is_announced(pool: str) -> bool:
    """Whether a worker is there, whatever becomes of its engine."""
    return Replica.objects.filter(pool=pool, heartbeat__gt=Now() - FRESH).exists()


def _put_back(row: Run, state: LogState | None) -> bool:
    """To the head of its queue, with a ticket; False where it waits there already, or its log is
    no help any more (the next sweep ends it)."""
    entry = queue_entry(row)
    if scheduler_sync().position(entry.run, row.pool_id) is not None:
        return False
    if state is not None and not _keep_text(row, state):
        return _end_dead(row)
    if not Run.objects.filter(id=row.id, status="running", epoch=row.epoch).exists():
        return False  # another reaper was faster, and its next owner too
    # What another replica has popped since is at work there, and stays so.
    added = scheduler_sync().requeue_front(entry, pool=row.pool_id, replica=row.replica).added
    if added:
        log.warning(
            "%s lost its owner and waits for another",
            entry.run,
            extra={"action": "run_put_back", "run": entry.run, "pool": row.pool_id},
        )
    return added


def _keep_text(row: Run, state: LogState) -> bool:
    """What the log holds, while nobody owns the run: nobody else would keep it. False where it
    cannot be read."""
    if orphans.written_in_log(row.external_id) is None:
        return False
    written = orphans.best_text(row)
    if written is None:
        return False
    with suppress(OperationalError):  # the keys may be away
        # Under the epoch that the row has: its owner may have died before it opened the log.
        kept = replace(written, epoch=row.epoch, seq=state.last_seq, is_whole=True)
        checkpoints.save(row.id, row.owner_id, kept)
    return True


def _end_dead(row: Run) -> bool:
    """Take the run over and end it as an owner does: PostgreSQL first, the log second."""
    found = orphans.read_log(row.external_id)
    written = orphans.best_text(row)
    claim = runs.take_over(row.id, row.epoch, "reaper")
    if claim is None:
        return False
    scheduler_sync().remove(claim.run, row.pool_id)  # where it was put back, and nobody came
    scheduler_sync().ended(claim.run, row.pool_id)
    claim = orphans.with_text(claim, written)
    stopped = claim.stop_requested
    events = _last_events(claim.epoch, claim.partial, stopped=stopped) if found else []
    outcome = runs.Outcome(
        finish="user_stopped" if stopped else "interrupted",
        text=claim.partial,
        output_tokens=claim.spent_tokens,
        last_seq=events[-1].seq + 1 if events else takeover_seq(claim.epoch),
        error_code="" if stopped else "interrupted",
    )
    done = runs.finish(claim, outcome)
    if done is not None:
        _append_end(claim, events, Event(outcome.last_seq, "done", encode_data(done)))
        settle_as(row.owner_id, row.id, outcome)
        log.warning(
            "%s ended: its owner is gone",
            claim.run,
            extra={"action": "run_reaped", "run": claim.run},
        )
    return done is not None


def _last_events(epoch: int, text: str, *, stopped: bool) -> list[Event]:
    """What stands before `done`."""
    first = takeover_seq(epoch)
    events = [Event(first, "snapshot", encode_data({"text": text}))]
    if not stopped:
        events.append(Event(first + 1, "error", encode_data(error_payload("interrupted"))))
    return events


def _append_end(claim: runs.Claim, events: list[Event], done: Event) -> None:
    tokens = token_log()
    try:
        if not events:
            tokens.delete(claim.run, epoch=claim.epoch)
            return
        first, rest = events[0], [*events[1:], done]
        tokens.open(claim.run, epoch=claim.epoch, events=[first], base_seq=first.seq - 1)
        batch = Batch(claim.run, claim.epoch, expected_seq=first.seq, events=rest)
        reply = tokens.append(batch)
        tokens.tell(reply.watchers, claim.run, reply.last_seq, [first, *rest])
    except RedisError:
        # The end is in PostgreSQL: gateways look there.
        log.warning("end of %s not told", claim.run, extra={"action": "end_not_told"})
