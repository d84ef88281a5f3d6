"""The figures of all queues as Prometheus has them; docs/operations.md says what each means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from django.conf import settings
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from generation.queue_counts import NANO
from generation.queue_figures import PoolStand, Stand
from generation.scheduler import PoolFigures

PREFIX: Final = "hearth"

Labels = tuple[str, ...]
Samples = Iterable[tuple[Labels, float | int | None]]


def families(stand: Stand) -> Iterator[Metric]:
    """What cannot be known is left out: a gap says more than a 0."""
    pools = stand.pools
    yield from _queues(pools)
    yield from _pools(pools)
    yield from _replicas(pools)
    yield from _counts(pools)


def up(name: str, words: str, *, is_up: bool) -> Metric:
    """`hearth_<name>_up`."""
    return _gauge(f"{name}_up", words, (), [((), int(is_up))])


def seconds(name: str, words: str, value_s: float) -> Metric:
    return _gauge(f"{name}_seconds", words, (), [((), value_s)])


def _gauge(name: str, words: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", words, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, number)
    return family


def _counter(name: str, words: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", words, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, number)
    return family


def _queues(pools: Sequence[PoolStand]) -> Iterator[Metric]:
    known = [
        ((pool.slug, plan.plan), plan) for pool in pools if pool.figures for plan in pool.plans
    ]
    chores = [(pool.slug, pool.figures.chores) for pool in pools if pool.figures]
    by_plan = ("pool", "plan")
    yield _gauge(
        "queue_waiting_runs", "Runs that wait", by_plan, ((key, one.waiting) for key, one in known)
    )
    yield _gauge(
        "queue_waiting_chores",
        "Chores that wait",
        ("pool",),
        (((slug,), one.depth if one else 0) for slug, one in chores),
    )
    yield _gauge(
        "queue_predicted_wait_seconds",
        "What one more user of the plan would wait until a run begins",
        by_plan,
        ((key, None if one.wait_ms is None else one.wait_ms / 1000) for key, one in known),
    )


def _pools(pools: Sequence[PoolStand]) -> Iterator[Metric]:
    def told(name: str, words: str, value: Callable[[PoolStand], float | int | None]) -> Metric:
        return _gauge(f"pool_{name}", words, ("pool",), (((p.slug,), value(p)) for p in pools))

    def known(name: str, words: str, value: Callable[[PoolFigures], int]) -> Metric:
        return told(name, words, lambda pool: value(pool.figures) if pool.figures else None)

    yield told("paused", "1 while no run is begun", lambda pool: int(pool.is_paused))
    yield known("chores_paused", "1 while chores wait", lambda one: int(one.chores_paused))
    yield known("built", "1 while its queue can be used", lambda one: int(one.built))
    yield known("slots", "Slots of its replicas", lambda one: one.slots)
    yield known("paid_burst", "Slots for paid runs alone", lambda one: one.paid_burst)
    yield known("running_runs", "Runs at work", lambda one: one.at_work)
    served = "Served in the last minute"
    yield told("tokens_per_second", served, lambda pool: pool.tokens_per_s)
    most = "Served while no slot is idle"
    yield told("tokens_per_second_max", most, lambda pool: pool.most_tokens_per_s)


def _replicas(pools: Sequence[PoolStand]) -> Iterator[Metric]:
    known = [((pool.slug, one.name), one) for pool in pools for one in pool.replicas]
    of = ("pool", "replica")
    healthy = ((key, int(one.healthy and one.is_fresh)) for key, one in known)
    yield _gauge("replica_healthy", "1 while healthy and heard of lately", of, healthy)
    draining = ((key, int(one.is_draining)) for key, one in known)
    yield _gauge("replica_draining", "1 while told to begin no run", of, draining)
    yield _gauge("replica_slots", "Slots", of, ((key, one.slots) for key, one in known))
    yield _gauge("replica_running_runs", "Runs at work", of, ((k, one.running) for k, one in known))
    age = ((key, one.heartbeat_age_s) for key, one in known)
    yield _gauge("replica_heartbeat_age_seconds", "Since it was last heard of", of, age)


def _counts(pools: Sequence[PoolStand]) -> Iterator[Metric]:
    def counted(name: str, labels: int) -> Iterator[tuple[Labels, int]]:
        for pool in pools:
            for values, number in sorted(pool.counts.of(name).items()):
                # Two series of the same labels would spoil the whole scrape.
                if len(values) == labels:
                    yield (pool.slug, *values), number

    steps, reasons = ("pool", "plan", "step"), ("pool", "plan", "reason")
    yield _counter("admissions", "By step of the ladder", steps, counted("admitted", 2))
    yield _counter("refusals", "By reason", reasons, counted("refused", 2))
    of_run = ("pool", "plan", "model")
    yield _counter("runs_ended", "By how they ended", (*of_run, "finish"), counted("ended", 3))
    yield _counter("prompt_tokens", "Of ended runs, cached ones too", of_run, counted("prompt", 2))
    yield _counter("cached_tokens", "Those from a prefix cache", of_run, counted("cached", 2))
    yield _counter("output_tokens", "Of ended runs", of_run, counted("output", 2))
    cost = (((*key, settings.CURRENCY), nano / NANO) for key, nano in counted("cost_nano", 2))
    yield _counter("cost", "Of ended runs", (*of_run, "currency"), cost)
