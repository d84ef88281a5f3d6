"""Runs whose owner is gone: known by their lease, and taken over with the text that they had.

Sync functions; workers and the reaper call them in database threads.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from django.db.models.functions import Now

from generation import checkpoints, runs
from generation.checkpoints import Written
from generation.models import Run
from generation.redis_clients import reaping_paused, token_log
from generation.runs import Claim
from generation.scheduler import scheduler_sync
from generation.token_log import Assembled, LogState, assemble

DEAD_AFTER: Final = timedelta(seconds=6)
"""A claim gets so long to open its log; as long as a lease lasts (token_log.limits.LEASE_MS)."""

PAGES: Final = 200


def states_of(rows: Sequence[Run]) -> list[LogState | None]:
    """Where the runs' logs stand, in one pipeline. Redis' errors pass through."""
    return token_log().states([row.external_id for row in rows])


def has_no_owner(state: LogState | None) -> bool:
    """Whether nobody holds the lease. Of a run that was claimed less than DEAD_AFTER ago this says
    nothing: its owner may be about to open the log."""
    return state is None or not (state.leased or state.status == "ended")


def claim_orphan(run_id: uuid.UUID, replica: str, *, pool: str) -> Claim | None:
    """Mint the next epoch of a running run whose owner is gone, to go on with its text.

    None where it has an owner, has ended, waits elsewhere, or somebody was faster; and where its
    log is lost too, and its owner had not let go of it: the reaper ends such a run. Redis' errors
    pass through.
    """
    row = Run.objects.filter(id=run_id, status="running", pool=pool).first()
    if row is None or not _may_be_taken(row):
        return None
    # Before the epoch is minted: what fails here must not leave the run with an owner that is none.
    written = best_text(row)
    claim = runs.take_over(row.id, row.epoch, replica, pool=pool)
    return with_text(claim, written) if claim is not None else None


def _may_be_taken(row: Run) -> bool:
    (state,) = states_of([row])
    if not has_no_owner(state):
        return False
    if reaping_paused() or not scheduler_sync().is_built(row.pool_id):
        return False  # Redis was lost: owners must open their logs again first
    if state is None:
        return checkpoints.let_go_at(row.id, row.epoch) is not None
    # An owner that had opened its log has let go of it. Otherwise it may be just about to.
    return state.epoch == row.epoch or _was_claimed_long_ago(row)


def _was_claimed_long_ago(row: Run) -> bool:
    same = Run.objects.filter(id=row.id, epoch=row.epoch)
    return same.filter(claimed_at__lt=Now() - DEAD_AFTER).exists()


def with_text(claim: Claim, written: Written | None) -> Claim:
    """The claim with what was written; with the continued reply's text where nothing was."""
    if written is None:
        return claim
    return replace(claim, partial=written.text, spent_tokens=written.output_tokens)


def best_text(row: Run) -> Written | None:
    """The log's, or a checkpoint's where that is newer (Redis had refused to write, or was put
    back to an older state) or the log is gone; None where there is neither."""
    known = (written_in_log(row.external_id), checkpoints.latest(row.id, row.owner_id))
    found = [written for written in known if written is not None]
    return max(found, key=lambda written: (written.epoch, written.seq), default=None)


def written_in_log(run: str) -> Written | None:
    """What the log holds; None where it is gone, or begins in the middle."""
    (state,) = token_log().states([run])
    found = read_log(run)
    if state is None or found is None:
        return None
    return Written(found.text, state.output_tokens, state.epoch, found.last_seq)


def read_log(run: str) -> Assembled | None:
    """What the log holds; None where it is gone, or begins in the middle."""
    found = Assembled("", 0, whole=True)
    for _ in range(PAGES):
        page = token_log().read(run, found.last_seq)
        if page is None:
            return None
        if not page.events:
            break
        found = assemble(page.events, text=found.text, after=found.last_seq, whole=found.whole)
    return found if found.whole else None
