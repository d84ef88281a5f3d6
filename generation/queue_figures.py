"""How every pool stands: for the admin's page, for Prometheus, and kept as samples for an hour.

PostgreSQL says which pools, replicas and plans there are, Redis how they stand at this moment.
Where Redis is away, what PostgreSQL knows is told alone.
"""

from __future__ import annotations

import itertools
import json
import operator
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils import timezone
from redis.exceptions import RedisError

from generation.catalogue import FRESH
from generation.models import Pool, Replica
from generation.scheduler import Counts, PoolFigures, observer
from generation.scheduler.figures import NO_COUNTS, SAMPLE_MS, SAMPLES
from generation.scheduler.observer import Look
from quotas.models import Plan

RATE_SAMPLES: Final = 7
"""The speed is that of the last minute: an answer is counted when it ends, all at once."""

GAP_S: Final = 4 * SAMPLE_MS / 1000
"""Where samples lie further apart nobody took any: nothing is said of the time between them."""


@dataclass(frozen=True, slots=True)
class PlanStand:
    """One plan in one pool. `last` is the newest step of the ladder that somebody of the plan got
    (or "refused"), `last_age_s` how long ago; both None where nothing was counted yet."""

    plan: str
    title: str
    weight: int
    is_paid: bool
    waiting: int
    wait_ms: int | None
    admitted: Mapping[str, int]
    refused: Mapping[str, int]
    last: str | None
    last_age_s: float | None


@dataclass(frozen=True, slots=True)
class ReplicaStand:
    """A replica as its row tells, and what the queue has at work there (None: unknown).
    `is_fresh`: heard of lately; else its worker is dead, or cannot reach PostgreSQL."""

    name: str
    healthy: bool
    is_fresh: bool
    is_draining: bool
    wanted_pool: str | None
    detail: str
    slots: int
    paid_burst: int
    running: int
    at_work: int | None
    heartbeat_age_s: float


@dataclass(frozen=True, slots=True)
class PoolStand:
    """One pool. `figures` None: Redis is away; then `plans` have no numbers.

    `tokens_per_s` is what was served in the last minute (prompts read and answers written), None
    where there are no samples yet; `most_tokens_per_s` what its slots serve while none is idle.
    """

    slug: str
    model: str
    region: str
    is_paused: bool
    figures: PoolFigures | None
    counts: Counts
    plans: tuple[PlanStand, ...]
    replicas: tuple[ReplicaStand, ...]
    tokens_per_s: float | None
    most_tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class Stand:
    at_ms: int
    has_redis: bool
    pools: tuple[PoolStand, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """What PostgreSQL knows of it all; three queries."""

    pools: Sequence[Pool]
    plans: Sequence[Plan]
    replicas: Mapping[str, Sequence[Replica]]


def read_rows() -> Rows:
    replicas: dict[str, list[Replica]] = defaultdict(list)
    for replica in Replica.objects.order_by("name"):
        replicas[replica.pool_id].append(replica)
    plans = Plan.objects.only("slug", "title", "weight", "is_paid").order_by("-weight", "slug")
    return Rows(list(Pool.objects.order_by("slug")), list(plans), replicas)


def read(rows: Rows | None = None) -> Stand:
    """Everything, now. Redis may be away; PostgreSQL's errors pass through."""
    rows = rows or read_rows()
    slugs = [pool.slug for pool in rows.pools]
    at_ms = time.time_ns() // 1_000_000
    looks: Sequence[Look | None] = [None] * len(slugs)
    try:
        looks = observer().look(slugs, _asked(rows), newest=RATE_SAMPLES)
        has_redis = True
    except (RedisError, OSError):
        has_redis = False
    pools = zip(rows.pools, looks, strict=True)
    return Stand(at_ms, has_redis, tuple(_pool(pool, rows, look, at_ms) for pool, look in pools))


def _asked(rows: Rows) -> list[tuple[str, int, bool]]:
    return [(plan.slug, plan.weight, plan.is_paid) for plan in rows.plans]


def _pool(pool: Pool, rows: Rows, look: Look | None, at_ms: int) -> PoolStand:
    figures = look.figures if look else None
    counts = look.counts if look else NO_COUNTS
    return PoolStand(
        slug=pool.slug,
        model=pool.model_id,
        region=pool.region,
        is_paused=pool.is_paused,
        figures=figures,
        counts=counts,
        plans=tuple(_plans(rows.plans, figures, counts, at_ms)),
        replicas=tuple(_replicas(rows.replicas.get(pool.slug, ()), figures)),
        tokens_per_s=_speed(look.samples, counts, at_ms) if look else None,
        most_tokens_per_s=figures.tokens_per_s if figures else None,
    )


def _plans(
    rows: Sequence[Plan], figures: PoolFigures | None, counts: Counts, at_ms: int
) -> list[PlanStand]:
    """The plans that there are; others only while somebody of them waits (they were deleted, or a
    run has none)."""
    queued = {one.plan: one for one in figures.plans} if figures else {}
    known = {plan.slug: plan for plan in rows}
    others = sorted(slug for slug in queued.keys() - known.keys() if queued[slug].depth)
    found = []
    for slug in [*known, *others]:
        row, one = known.get(slug), queued.get(slug)
        kind, step, last_ms = counts.last.get(slug, ("", "", 0))
        found.append(
            PlanStand(
                plan=slug,
                title=row.title if row else slug or "no plan",
                weight=row.weight if row else one.weight if one else 1,
                is_paid=row.is_paid if row else bool(one and one.is_paid),
                waiting=one.depth if one else 0,
                wait_ms=one.wait_ms if one else None,
                admitted=_of_plan(counts, "admitted", slug),
                refused=_of_plan(counts, "refused", slug),
                last=None if not kind else step if kind == "admitted" else kind,
                last_age_s=max(0, at_ms - last_ms) / 1000 if kind else None,
            )
        )
    return found


def _of_plan(counts: Counts, name: str, plan: str) -> dict[str, int]:
    return {
        ".".join(labels[1:]): number
        for labels, number in sorted(counts.of(name).items())
        if labels[0] == plan
    }


def _replicas(rows: Sequence[Replica], figures: PoolFigures | None) -> list[ReplicaStand]:
    known = {one.name: one.at_work for one in figures.replicas} if figures else {}
    now = timezone.now()
    return [
        ReplicaStand(
            name=row.name,
            healthy=row.healthy,
            is_fresh=now - row.heartbeat < FRESH,
            is_draining=row.is_draining,
            wanted_pool=row.wanted_pool_id if row.wanted_pool_id != row.pool_id else None,
            detail=row.detail,
            slots=row.slots,
            paid_burst=row.paid_burst,
            running=row.running,
            at_work=known.get(row.name),
            heartbeat_age_s=max(0.0, (now - row.heartbeat).total_seconds()),
        )
        for row in rows
    ]


# --- served tokens --------------------------------------------------------------------------------


def served_tokens(counts: Counts) -> int:
    """Prompts read and answers written by the runs that have ended there; what came from a prefix
    cache is not in it."""
    return counts.sum("prompt") - counts.sum("cached") + counts.sum("output")


def _speed(samples: Sequence[bytes], counts: Counts, at_ms: int) -> float | None:
    """Tokens a second since the oldest of these samples; None where there is no use of them."""
    since = next(iter(reversed(_unpacked(samples))), None)
    if since is None:
        return None
    served, elapsed_s = served_tokens(counts) - since["served"], at_ms / 1000 - since["at_s"]
    too_old = elapsed_s > RATE_SAMPLES * SAMPLE_MS / 1000 + GAP_S
    # Redis was lost since: the counts began again.
    if served < 0 or elapsed_s < 1 or too_old:
        return None
    return float(served / elapsed_s)


# --- samples --------------------------------------------------------------------------------------


def sample() -> int:
    """Keep a sample of each pool whose turn it is; how many. By whoever sweeps, every SAMPLE_MS
    once in all. Redis' and PostgreSQL's errors pass through."""
    slugs = list(Pool.objects.order_by("slug").values_list("slug", flat=True))
    due = observer().take_sample_turns(slugs) if slugs else []
    if not due:
        return 0
    plans = [(plan.slug, plan.weight, plan.is_paid) for plan in Plan.objects.all()]
    at_s, kept = time.time(), 0
    for slug, look in zip(due, observer().look(due, plans), strict=True):
        if look is not None:
            observer().keep_sample(slug, _packed(at_s, look))
            kept += 1
    return kept


def _packed(at_s: float, look: Look) -> bytes:
    figures, counts = look.figures, look.counts
    value = {
        "at_s": round(at_s, 1),
        "depth": figures.depth,
        "at_work": figures.at_work,
        "slots": figures.slots,
        "wait_ms": {one.plan: one.wait_ms for one in figures.plans},
        "served": served_tokens(counts),
        "refused": counts.sum("refused"),
    }
    return json.dumps(value, separators=(",", ":")).encode()


def _unpacked(samples: Sequence[bytes]) -> list[dict[str, Any]]:
    """Those that can be read: another version may have written some."""
    found = []
    for packed in samples:
        try:
            value = json.loads(packed)
            if value.keys() >= {"at_s", "depth", "at_work", "slots", "wait_ms", "served"}:
                found.append(value)
        except (ValueError, AttributeError):
            continue
    return found


Points = list[list[float | None]]
"""[Unix time in seconds, value]; a value of None: a gap."""


@dataclass(frozen=True, slots=True)
class History:
    """The last hour, the oldest first. `wait_s` by plan."""

    waiting: Points
    at_work: Points
    slots: Points
    tokens_per_s: Points
    refused_per_min: Points
    wait_s: Mapping[str, Points]


def histories(pools: Sequence[str]) -> list[History]:
    """Of these pools, in their order. Redis' errors pass through."""
    return [_history(samples) for samples in observer().samples(pools)] if pools else []


def _history(packed: Sequence[bytes]) -> History:
    oldest = time.time() - SAMPLES * SAMPLE_MS / 1000
    found = [one for one in _unpacked(packed) if one["at_s"] >= oldest]
    found.sort(key=operator.itemgetter("at_s"))  # the clocks of two workers may differ
    plans = sorted({plan for one in found for plan in one["wait_ms"]})
    return History(
        waiting=[[one["at_s"], one["depth"]] for one in found],
        at_work=[[one["at_s"], one["at_work"]] for one in found],
        slots=[[one["at_s"], one["slots"]] for one in found],
        tokens_per_s=_rates(found, "served", 1.0),
        refused_per_min=_rates(found, "refused", 60.0),
        wait_s={plan: [_wait_of(plan, one) for one in found] for plan in plans},
    )


def _wait_of(plan: str, sample: Mapping[str, Any]) -> list[float | None]:
    wait_ms = sample["wait_ms"].get(plan)
    return [sample["at_s"], None if wait_ms is None else wait_ms / 1000]


def _rates(samples: Sequence[Mapping[str, Any]], name: str, per_s: float) -> Points:
    """How fast a count rose before each sample but the first, per so many seconds."""
    points: Points = []
    for before, one in itertools.pairwise(samples):
        elapsed_s = one["at_s"] - before["at_s"]
        rose = one.get(name, 0) - before.get(name, 0)
        is_known = 0 < elapsed_s <= GAP_S and rose >= 0
        points.append([one["at_s"], rose / elapsed_s * per_s if is_known else None])
    return points
