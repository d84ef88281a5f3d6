"""Moves queued runs that nobody will claim to where their model, or its fallback, is served.

By the sweep, in many processes at once. The row is moved first, by a guarded update; then the
queues. A claim asks for the pool too, so whatever a crash or a slow launch leaves in the old queue
is passed over; and what is not yet in the new one is found there by the sweep.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Final

from django.db.models import QuerySet
from django.db.models.functions import Now

from generation import runs
from generation.catalogue import Choice, lately_served_pools, route, served_among
from generation.exceptions import UnknownModel
from generation.guarded import guarded
from generation.launch import launch, open_log
from generation.models import Model, Run
from generation.payloads import other_model_notice
from generation.redis_clients import token_log
from generation.run_state import ENDED
from generation.scheduler import scheduler_sync
from generation.stopping import repair_end

log = logging.getLogger(__name__)

SETTLED: Final = timedelta(seconds=2)
"""A run saved more recently may still be on its way into the queue where it was sent."""

BATCH: Final = 200
"""In one sweep, of one model; the next one comes two seconds later."""


def move_stranded_runs() -> int:
    """Move runs that wait in pools which have had no replica for some seconds; how many.

    One that makes trouble does not stop the others. Errors of Redis pass through.
    """
    stranded = Run.objects.filter(status="queued", queued_at__lt=Now() - SETTLED)
    stranded = stranded.exclude(pool__in=lately_served_pools())
    kinds = stranded.order_by().values_list("model_asked", "pool").distinct()
    return sum(guarded(partial(_move_kind, stranded), kind) for kind in list(kinds))


def _move_kind(stranded: QuerySet[Run], kind: tuple[str, str]) -> int:
    """Those that asked for the same model and wait in the same pool."""
    asked, pool = kind
    choice = _way_out(asked, pool)
    if choice is None:
        return 0
    waiting = stranded.filter(model_asked=asked, pool=pool).order_by("id")
    return sum(guarded(partial(move, to=choice), row) for row in waiting[:BATCH])


def _way_out(asked: str, pool: str) -> Choice | None:
    """Where runs that asked for this model may go from `pool`; None: they wait there."""
    model = Model.objects.filter(slug=asked).first()
    try:
        choice = route(model) if model else None
    except UnknownModel:
        return None
    if choice is None or choice.pool.slug == pool or not served_among([choice.pool.slug]):
        return None
    return choice


def move(row: Run, to: Choice) -> bool:
    """Whether it was this call that moved the run."""
    notice = None
    if to.model.slug != row.model_used:
        before = Model.objects.filter(slug=row.model_used).first() or to.instead_of or to.model
        notice = other_model_notice(to.model, before, asked=row.model_asked)
    if not runs.move_queued(row, to.model, to.pool.slug, notice):
        return False
    left = row.pool_id
    row.refresh_from_db()
    if row.status == "queued":
        # The log first, with the notice: whoever claims the run from there goes on behind it.
        launch(row)
    elif row.status in ENDED:
        _tell_end(row)
    scheduler_sync().remove(row.external_id, left)
    log.warning(
        "%s moved from pool %s to %s: no replica there",
        row.external_id,
        left,
        row.pool_id,
        extra={"action": "run_moved", "run": row.external_id, "pool": row.pool_id},
    )
    return True


def _tell_end(row: Run) -> None:
    """A stop came between the row and its log: its `done` had no notice there to stand behind."""
    (state,) = token_log().states([row.external_id])
    if state is not None and state.status != "ended":
        open_log(row)
        repair_end(row)
