"""A region with idle slots takes over runs that would wait longer at home than the trip takes.

By the worker of an idle replica whose own queue has nobody. The other pool's queue says who should
go (borrowable.lua: paid plans first, pinned runs never), the guarded update of the row decides, and
the queues come after it, as for every move (generation.fallback). So of two borrowers one wins; and
whatever dies on the way, the row says where the run waits: the sweep there queues it, and the one
at home drops what is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from accounts.ids import parse_id
from generation.catalogue import Choice
from generation.fallback import home_region_of, move
from generation.guarded import guarded
from generation.models import Pool, Run
from generation.regions import warm_pool
from generation.scheduler import scheduler_sync
from generation.scheduler.entries import Loan

SPARE: Final = 8
"""Asked for beyond the idle slots: some are gone by then, or their owners are at their cap here."""


@dataclass(frozen=True, slots=True)
class Borrower:
    """A pool that may take runs over, and the pools of its model in other regions."""

    pool: Pool
    lenders: tuple[str, ...]


def borrower(pool: str) -> Borrower | None:
    """None where there is nobody to borrow from, or the pool is paused. Two queries at most."""
    own = Pool.objects.select_related("model").filter(slug=pool, is_paused=False).first()
    if own is None:
        return None
    others = Pool.objects.filter(model=own.model_id).exclude(region=own.region)
    lenders = tuple(others.order_by("slug").values_list("slug", flat=True))
    return Borrower(own, lenders) if lenders else None


def borrow(by: Borrower, most: int) -> int:
    """Take over at most so many runs; how many. Errors of Redis and PostgreSQL pass through."""
    loans = _loans(by, most + SPARE)
    if not loans:
        return 0
    rows = _rows([loan.entry.run for _, loan in loans])
    users = list({loan.entry.user for _, loan in loans})
    here = Counter(dict(zip(users, scheduler_sync().at_work_of(users, by.pool.slug), strict=True)))
    taken = 0
    for lender, loan in loans:
        row, user = rows.get(loan.entry.run), loan.entry.user
        # At their cap here they would wait for a run of their own, with slots idle.
        if row is None or row.pool_id != lender or here[user] >= loan.entry.cap:
            continue
        if taken == most:
            break
        if guarded(partial(_take, by), row):
            here[user] += 1
            taken += 1
    return taken


def _take(by: Borrower, row: Run) -> bool:
    # Where it was borrowed to before, and is warm, it stays: else it would go to and fro.
    if warm_pool(row.owner_id, row.conversation_id, home_region_of(row)) == row.pool_id:
        return False
    return move(
        row, Choice(by.pool.model, (by.pool,)), why="it would wait longer there than the trip"
    )


def _loans(by: Borrower, most: int) -> list[tuple[str, Loan]]:
    """With the pool that each waits in. Paid ones first, and of the pool with the longest wait."""
    found = scheduler_sync().borrowable(by.lenders, most=most, trip_ms=by.pool.round_trip_ms)
    lending = [(pool, loans) for pool, loans in zip(by.lenders, found, strict=True) if loans]
    lending.sort(key=lambda one: -one[1][0].wait_ms)
    all_ = [(pool, loan) for pool, loans in lending for loan in loans]
    return sorted(all_, key=lambda one: not one[1].entry.is_paid)


def _rows(names: Sequence[str]) -> dict[str, Run]:
    """Those that still wait and that nobody has begun."""
    ids = [parse_id("g", name) for name in names]
    waiting = Run.objects.filter(id__in=ids, status="queued", epoch=0)
    return {row.external_id: row for row in waiting.select_related("pool", "owner__organisation")}
