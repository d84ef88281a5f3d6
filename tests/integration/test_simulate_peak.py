"""`manage.py simulate_peak`: the product's own queue and admission in simulated time."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from redis import Redis

from generation.simulation.real_queue import Order, RealQueue
from generation.simulation.report import percentile_ms
from generation.simulation.scenarios import SCENARIOS, Scenario
from generation.simulation.world import World

PEAK = Scenario("peak", "a third more than there is, all the time", {0.0: 1.3, 1.0: 1.3})


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis.from_url(settings.REDIS_URL) as client:
        yield client


def world_of(redis: Redis, order: Order, scenario: Scenario = PEAK, minutes: float = 0.5) -> World:
    queue = RealQueue(redis, order)
    try:
        world = World(scenario, queue, minutes=minutes, seed=7)
        world.run()
    finally:
        queue.close()
    return world


def p95_s(world: World, plan: str) -> float:
    return percentile_ms(world.tallies[plan].ttft_ms, 95) / 1_000


def test_who_pays_notices_nothing_and_the_others_wait(redis: Redis) -> None:
    fair, fifo = world_of(redis, "fair"), world_of(redis, "fifo")
    for plan in ("plus", "pro"):
        assert p95_s(fair, plan) < 0.5
        assert p95_s(fifo, plan) > 2 * p95_s(fair, plan)
        assert fair.tallies[plan].smaller == fair.tallies[plan].refused == 0
    free = fair.tallies["free"]
    assert free.smaller > 0, "some have a smaller model"
    assert free.tokens > 0.5 * sum(tally.tokens for tally in fair.tallies.values()), "they go on"


def test_all_that_was_accepted_is_answered_and_no_slot_stays_taken(redis: Redis) -> None:
    world = world_of(redis, "fair", next(one for one in SCENARIOS if one.name == "loss"))
    for tally in world.tallies.values():
        assert tally.sends == tally.refused + tally.left + len(tally.ttft_ms)
    assert not any(one.at_work for pool in world.replicas.values() for one in pool)


def test_nothing_is_left_in_redis_and_nothing_else_is_touched(redis: Redis) -> None:
    redis.set("{pool:sim}:built", "somebody's")
    before = _keys(redis)
    out = io.StringIO()
    call_command(
        "simulate_peak",
        scenario=["evening"],
        order=["fair", "strict"],
        minutes=0.1,
        charts=True,
        stdout=out,
        stderr=io.StringIO(),
    )
    assert _keys(redis) == before
    assert redis.get("{pool:sim}:built") == b"somebody's"
    told = out.getvalue()
    assert "| fair | free |" in told
    assert "| strict | pro |" in told
    assert "xychart-beta" in told
    redis.delete("{pool:sim}:built")


def _keys(redis: Redis) -> set[bytes]:
    return set(redis.scan_iter("*"))


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("simulate_peak", "--scenario", "apocalypse")
