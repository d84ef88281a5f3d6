"""The page of all queues, and its figures as JSON. Ids and numbers: never anybody's text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from accounts import sql
from accounts.ids import external_id
from accounts.models import User
from generation import queue_figures
from generation.queue_counts import NANO
from generation.queue_figures import PoolStand, Stand
from generation.scheduler import scheduler_sync

RUNS: Final = 50
"""Of each pool's waiting runs and of those at work, the longest first."""

POOLS_WITH_RUNS: Final = 20
"""So many pools' runs are told in one answer."""

VIEW: Final = "generation.view_pool"
CHANGES: Final = {
    "pool": "generation.change_pool",
    "replica": "generation.change_replica",
    "run": "generation.change_run",
    "plan": "quotas.change_plan",
}


def refuse_unless(request: HttpRequest, permission: str) -> None:
    """Raise PermissionDenied; the site notes it."""
    if not cast("User", request.user).has_perm(permission):
        raise PermissionDenied


@require_safe
def queues(request: HttpRequest) -> HttpResponse:
    """The page; its script asks for the figures."""
    refuse_unless(request, VIEW)
    context = {**admin.site.each_context(request), "title": "Queues", "is_fullwidth": "1"}
    return TemplateResponse(request, "admin/generation/queues.html", context)


@require_safe
@never_cache
def figures(request: HttpRequest) -> HttpResponse:
    """Everything the page shows. `?history=1`: with the last hour; `?runs=<pool>` (repeated): with
    the runs of these pools."""
    refuse_unless(request, VIEW)
    stand = queue_figures.read()
    known = {pool.slug for pool in stand.pools}
    wanted = [slug for slug in request.GET.getlist("runs")[:POOLS_WITH_RUNS] if slug in known]
    runs = _runs(wanted) if wanted else {}
    hours = _hours(stand) if request.GET.get("history") == "1" else {}
    may = {kind: cast("User", request.user).has_perm(name) for kind, name in CHANGES.items()}
    pools = [
        {**_pool(pool), "runs": runs.get(pool.slug), "history": hours.get(pool.slug)}
        for pool in stand.pools
    ]
    return JsonResponse(
        {
            "at_ms": stand.at_ms,
            "redis": stand.has_redis,
            "currency": settings.CURRENCY,
            "may": may,
            "pools": pools,
        }
    )


def _hours(stand: Stand) -> dict[str, Any]:
    slugs = [pool.slug for pool in stand.pools]
    try:
        found = queue_figures.histories(slugs)
    except (RedisError, OSError):
        return {}
    return {slug: asdict(history) for slug, history in zip(slugs, found, strict=True)}


def _pool(pool: PoolStand) -> dict[str, Any]:
    figures = pool.figures
    chores = figures.chores if figures else None
    told: dict[str, Any] = {
        "slug": pool.slug,
        "model": pool.model,
        "region": pool.region,
        "is_paused": pool.is_paused,
        "queue": None,
        "plans": [asdict(plan) for plan in pool.plans],
        "replicas": [asdict(replica) for replica in pool.replicas],
        "totals": _totals(pool),
    }
    if figures is not None:
        told["queue"] = {
            "built": figures.built,
            "is_paused": figures.is_paused,
            "chores_paused": figures.chores_paused,
            "waiting": figures.depth,
            "chores_waiting": chores.depth if chores else 0,
            "slots": figures.slots,
            "paid_burst": figures.paid_burst,
            "at_work": figures.at_work,
            "tokens_per_s": pool.tokens_per_s,
            "most_tokens_per_s": pool.most_tokens_per_s,
        }
    return told


def _totals(pool: PoolStand) -> dict[str, Any]:
    """Since Redis last began to count."""
    counts = pool.counts
    return {
        "ended": counts.sum("ended"),
        "admitted": counts.sum("admitted"),
        "refused": counts.sum("refused"),
        "prompt_tokens": counts.sum("prompt"),
        "output_tokens": counts.sum("output"),
        "cost": f"{counts.sum('cost_nano') / NANO:.6f}",
    }


# --- runs -----------------------------------------------------------------------------------------


_RUNS = """
SELECT pool.slug, run.id, run.plan, run.replica, extract(epoch FROM now() - run.since)::float8
FROM generation_pool pool
CROSS JOIN LATERAL (
    SELECT id, plan, replica, {since} AS since FROM generation_run
    WHERE pool_id = pool.slug AND status IN ('queued', 'running') AND status = '{status}'
    ORDER BY id LIMIT {most}
) run
WHERE pool.slug = ANY(%(pools)s::text[])
ORDER BY pool.slug, run.id
"""
_WAITING = _RUNS.format(since="queued_at", status="queued", most=RUNS)
_RUNNING = _RUNS.format(since="coalesce(claimed_at, queued_at)", status="running", most=RUNS)


def _runs(pools: Collection[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By pool: those that wait and those at work, at most RUNS of each."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        slug: {"waiting": [], "running": []} for slug in pools
    }
    for kind, statement in (("waiting", _WAITING), ("running", _RUNNING)):
        for pool, run_id, plan, replica, age_s in sql.rows(statement, {"pools": list(pools)}):
            one = {"id": external_id("g", run_id), "plan": plan, "age_s": round(age_s, 1)}
            more = {"replica": replica} if kind == "running" else {}
            found[pool][kind].append({**one, **more})
    _add_places(found)
    return found


def _add_places(found: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> None:
    """Where those that wait stand; nowhere while Redis is away."""
    asked = [(pool, run["id"]) for pool, runs in found.items() for run in runs["waiting"]]
    try:
        places = iter(scheduler_sync().places(asked)) if asked else iter(())
    except (RedisError, OSError):
        places = iter([None] * len(asked))
    for runs in found.values():
        for run in runs["waiting"]:
            place = next(places)
            run["position"] = place.position if place else None
            run["wait_ms"] = place.predicted_wait_ms if place else None
        # Of those that have waited longest, the next one first; who has no place yet comes last.
        runs["waiting"].sort(key=lambda run: (run["position"] is None, run["position"] or 0))
