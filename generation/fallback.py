"""Moves queued runs that nobody will claim to where their model, or its fallback, is served.

And those that wait in a region which their organisation does not allow (any more). Never into one.

By the sweep, in many processes at once. The row is moved first, by a guarded update; then the
queues. A claim asks for the pool too, so whatever a crash or a slow launch leaves in the old queue
is passed over; and what is not yet in the new one is found there by the sweep.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, Now

from accounts.ids import parse_id
from generation import runs
from generation.catalogue import Choice, lately_served_pools, route, served_among
from generation.exceptions import UnknownModel
from generation.guarded import guarded
from generation.launch import launch, open_log
from generation.models import Model, Pool, Run
from generation.payloads import SMALLER, other_model_notice, other_region_notice
from generation.redis_clients import token_log
from generation.regions import Residence, home_of
from generation.run_state import ENDED, LIVE
from generation.scheduler import scheduler_sync
from generation.stopping import end_queued, repair_end

log = logging.getLogger(__name__)

SETTLED: Final = timedelta(seconds=2)
"""A run saved more recently may still be on its way into the queue where it was sent."""

BATCH: Final = 200
"""In one sweep, of one model; the next one comes two seconds later."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Runs that want the same model, wait in the same pool, and may go to the same ones.

    `wants`: the model that was asked for; the smaller one where the plan or the queues have put it
    in that one's place, for the reason has not gone with a replica.
    """

    wants: str
    pool: str
    region: str
    residency: str
    home_region: str

    @property
    def residence(self) -> Residence:
        return Residence(self.residency, home_of(self.residency, self.home_region))


_KIND: Final = ("wants", "pool", "pool__region", "residency", "owner__home_region")


def move_stranded_runs() -> int:
    """Move runs that wait in pools which have had no replica for some seconds, or where they may
    not be; how many.

    One that makes trouble does not stop the others. Errors of Redis pass through.
    """
    waiting = Run.objects.filter(status="queued", queued_at__lt=Now() - SETTLED)
    is_smaller = When(notices__contains=[{"code": SMALLER}], then="model_used")
    waiting = waiting.annotate(
        residency=Coalesce("owner__organisation__residency", Value("")),
        wants=Case(is_smaller, default="model_asked"),
    )
    astray = ~Q(residency="") & ~Q(residency=F("pool__region"))
    stranded = waiting.filter(~Q(pool__in=lately_served_pools()) | astray)
    kinds = [_Kind(*kind) for kind in stranded.order_by().values_list(*_KIND).distinct()]
    return sum(guarded(partial(_move_kind, stranded), kind) for kind in kinds)


def _move_kind(stranded: QuerySet[Run], kind: _Kind) -> int:
    choice = _way_out(kind)
    if choice is None and kind.residence.allows(kind.region):
        return 0  # they wait where they are
    same = dict(zip(_KIND, (kind.wants, kind.pool, kind.region), strict=False))
    same |= {"residency": kind.residency, "owner__home_region": kind.home_region}
    waiting = stranded.filter(**same).order_by("id")
    act = partial(move, to=choice) if choice is not None else end_unserved
    return sum(guarded(act, row) for row in waiting[:BATCH])


def end_unserved(row: Run) -> bool:
    """End a queued run that no region may answer which serves its model."""
    ended = end_queued(row, "error", "not_in_region")
    if ended:
        log.warning("%s has no region", row.external_id, extra={"action": "run_without_region"})
    return ended


def _way_out(kind: _Kind) -> Choice | None:
    """Where these may go; None: nowhere, or they wait where they are."""
    model = Model.objects.filter(slug=kind.wants).first()
    try:
        choice = route(model, None, kind.residence) if model else None
    except UnknownModel:
        return None
    if choice is None or choice.pool.slug == kind.pool:
        return None
    may_stay = kind.residence.allows(kind.region)
    return None if may_stay and not served_among([choice.pool.slug]) else choice


def move(row: Run, to: Choice, *, why: str = "no replica there") -> bool:
    """Whether it was this call that moved the run. `why` is for the log."""
    left = row.pool_id
    if not move_row(row, to):
        return False
    follow_move(row, left, why)
    return True


def move_row(row: Run, to: Choice) -> bool:
    """`move` of the row alone, for those who must write more in the same transaction: `follow_move`
    comes after its commit."""
    return runs.move_queued(row, to.model, to.pool.slug, _notice(row, to))


def follow_move(row: Run, left: str, why: str) -> None:
    """Put the moved run into its new queue, and take it out of the one that it left. Redis' errors
    pass through: then the sweep does it."""
    row.refresh_from_db()
    if row.status == "queued":
        # The log first, with the notice: whoever claims the run from there goes on behind it.
        launch(row)
    elif row.status in ENDED:
        _tell_end(row)
    scheduler_sync().remove(row.external_id, left)
    log.warning(
        "%s moved from pool %s to %s: %s",
        row.external_id,
        left,
        row.pool_id,
        why,
        extra={"action": "run_moved", "run": row.external_id, "pool": row.pool_id},
    )


def home_region_of(row: Run) -> str:
    """The region that counts as the home of the run's owner."""
    residency = row.owner.organisation.residency if row.owner.organisation else ""
    model = Model.objects.filter(slug=row.model_used).first()
    home = home_of(residency, row.owner.home_region)
    return home or (_first_region(model) if model is not None else "")


def _notice(row: Run, to: Choice) -> dict[str, object] | None:
    if to.model.slug != row.model_used:
        before = Model.objects.filter(slug=row.model_used).first() or to.instead_of or to.model
        return other_model_notice(to.model, before, asked=row.model_asked)
    if to.pool.region == row.pool.region:
        return None
    is_home = to.pool.region == home_region_of(row)
    return other_region_notice(to.pool.region, is_home=is_home)


def _first_region(model: Model) -> str:
    regions = Pool.objects.filter(model=model).order_by("slug").values_list("region", flat=True)
    return regions.first() or ""


def drop_strays(pool: str) -> int:
    """Take out of a pool's queue what does not wait there by its row; how many. A move that died
    between the queues leaves the run in both; a claim passes over it, but may be long in coming."""
    dropped = 0
    for part in scheduler_sync().waiting(pool):
        ids = {parse_id("g", run): run for run in part}
        here = Run.objects.filter(id__in=ids, status__in=LIVE, pool=pool)
        gone = ids.keys() - set(here.values_list("id", flat=True))
        dropped += sum(scheduler_sync().remove(ids[run_id], pool) for run_id in gone)
    return dropped


def _tell_end(row: Run) -> None:
    """A stop came between the row and its log: its `done` had no notice there to stand behind."""
    (state,) = token_log().states([row.external_id])
    if state is not None and state.status != "ended":
        open_log(row)
        repair_end(row)
