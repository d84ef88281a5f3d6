"""What a queue tells people who look on, its counts and its samples, on a real Valkey."""

from __future__ import annotations

import asyncio

import pytest
from django.conf import settings
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from generation.scheduler import Asker, Observer, Scheduler, SchedulerSync
from generation.scheduler.entries import pool_keys
from generation.scheduler.figures import (
    SAMPLES,
    PlanFigures,
    ReplicaFigures,
    counts_key,
    history_key,
    sampled_key,
)
from tests.integration.queue_room import (  # noqa: F401  # fixtures
    LIMITS,
    POOL,
    clear,
    entry_of,
    redis_fixture,
    scheduler_fixture,
    tickets_fixture,
)


@pytest.fixture
def observer(redis: Redis, scheduler: SchedulerSync) -> Observer:
    redis.delete(counts_key(POOL), history_key(POOL), sampled_key(POOL))
    return Observer(redis)


def test_the_keys_are_in_the_pools_slot() -> None:
    tag = pool_keys("a").built.partition("}")[0]
    for key in (counts_key("a"), history_key("a"), sampled_key("a")):
        assert key.startswith(tag + "}:")
        assert key not in pool_keys("a").all()


def test_an_empty_pool_has_figures(observer: Observer) -> None:
    (look,) = observer.look([POOL], [("free", 1, False)])
    assert look is not None
    assert (look.figures.built, look.figures.depth, look.figures.replicas) == (True, 0, ())
    assert look.figures.plans == (PlanFigures("free", 1, False, 0, None),)
    assert (look.figures.tokens_per_s, look.figures.chores) == (None, None)
    assert (look.counts.totals, look.samples) == ({}, [])


def test_depth_wait_and_room_by_plan(scheduler: SchedulerSync, observer: Observer) -> None:
    scheduler.beat(POOL, "r1", at_work=0, slots=1, paid_burst=1)
    scheduler.enqueue(entry_of(1, 1, plan="free"), pool=POOL)
    scheduler.pop(POOL, "r1", slots=1)
    scheduler.enqueue(entry_of(2, 2, plan="free"), pool=POOL)
    scheduler.enqueue(entry_of(3, 3, kind="chore"), pool=POOL)
    (look,) = observer.look([POOL], [("pro", 8, True), ("free", 1, False)])
    assert look is not None
    figures = look.figures
    assert figures.depth == 2
    # The burst has room for who pays; nobody has measured how long the others wait.
    assert figures.plans == (
        PlanFigures("free", 1, False, 1, None),
        PlanFigures("pro", 8, True, 0, 0),
    )
    assert figures.chores is not None
    assert (figures.chores.depth, figures.at_work, figures.slots) == (1, 1, 1)
    (replica,) = figures.replicas
    assert (replica.name, replica.at_work, replica.paid_burst) == ("r1", 1, 1)
    assert isinstance(replica, ReplicaFigures)
    assert replica.age_ms < 15_000


def test_looking_changes_nothing(
    scheduler: SchedulerSync, observer: Observer, redis: Redis
) -> None:
    scheduler.enqueue(entry_of(1, 1, plan="free"), pool=POOL)
    keys = [key for key in pool_keys(POOL).all() if redis.exists(key)]
    before = [redis.dump(key) for key in keys]
    observer.look([POOL], [("pro", 8, True), ("free", 5, True)])
    assert [redis.dump(key) for key in keys] == before


@pytest.mark.parametrize("paid", [False, True])
def test_the_wait_is_what_a_newcomer_of_the_plan_is_told(
    scheduler: SchedulerSync, observer: Observer, redis: Redis, paid: bool
) -> None:
    scheduler.beat(POOL, "r1", at_work=0, slots=2, paid_burst=0)
    redis.hset(pool_keys(POOL).tags, mapping={"charged": "100", "spent": "80", "took_ms": "2000"})
    for number in range(1, 5):
        scheduler.enqueue(entry_of(number, number, plan="free"), pool=POOL)
    (outlook,) = scheduler.outlook([POOL], Asker("u_new", "pro", 8, paid))
    (look,) = observer.look([POOL], [("pro", 8, paid)])
    assert look is not None
    (pro,) = (one for one in look.figures.plans if one.plan == "pro")
    assert pro.wait_ms == outlook.predicted_wait_ms
    assert look.figures.tokens_per_s == outlook.tokens_per_s == 80


def test_nobody_is_told_a_wait_in_a_paused_pool(
    scheduler: SchedulerSync, observer: Observer
) -> None:
    scheduler.beat(POOL, "r1", at_work=0, slots=1, paid_burst=0)
    scheduler.configure(POOL, paused=True, chores_paused=True)
    (look,) = observer.look([POOL], [("free", 1, False)])
    scheduler.configure(POOL, paused=False, chores_paused=False)
    assert look is not None
    assert (look.figures.is_paused, look.figures.chores_paused) == (True, True)
    assert look.figures.plans[0].wait_ms is None


def test_a_pool_whose_keys_hold_something_else_does_not_hide_the_others(
    observer: Observer, redis: Redis
) -> None:
    redis.set(counts_key("odd"), b"no hash")
    try:
        odd, look = observer.look(["odd", POOL])
    finally:
        redis.delete(counts_key("odd"))
    assert odd is None
    assert look is not None


def test_scripts_that_redis_has_forgotten_are_sent_again(
    observer: Observer, redis: Redis, scheduler: SchedulerSync
) -> None:
    redis.script_flush()
    assert all(observer.look([POOL, "other"]))
    redis.script_flush()
    scheduler.weigh([POOL, "other"], "free", 2)


# --- counts ---------------------------------------------------------------------------------------


def test_counts_add_up_and_the_last_step_is_known(
    scheduler: SchedulerSync, observer: Observer, redis: Redis
) -> None:
    async def by_the_loop() -> None:
        client = AsyncRedis.from_url(settings.REDIS_URL)
        await Scheduler(client, LIMITS).count(POOL, {"admitted.free.smaller": 2})
        await client.aclose()

    scheduler.count(POOL, {"admitted.free.home": 1, "refused.free.busy": 1, "cost_nano.pro.m": 7})
    asyncio.run(by_the_loop())
    scheduler.count(POOL, {"admitted.pro.home": 1, "cost_nano.pro.m": 2**40})
    (look,) = observer.look([POOL])
    assert look is not None
    counts = look.counts
    assert counts.of("admitted") == {
        ("free", "home"): 1,
        ("free", "smaller"): 2,
        ("pro", "home"): 1,
    }
    assert counts.of("cost_nano") == {("pro", "m"): 7 + 2**40}
    assert counts.sum("refused") == 1
    assert counts.last["free"][:2] == ("admitted", "smaller")
    assert counts.last["pro"][:2] == ("admitted", "home")
    assert scheduler.rebuild(POOL, list)
    assert redis.exists(counts_key(POOL))


@pytest.mark.parametrize(
    "field", ["", "admitted", "admitted.free", "last.free", "Ab.x", "a.b c", "a.b.c.d.e", "a.b\n"]
)
def test_what_is_no_count_is_refused(
    scheduler: SchedulerSync, redis: Redis, observer: Observer, field: str
) -> None:
    with pytest.raises(ValueError, match="not a count"):
        scheduler.count(POOL, {"ended.free.m.stop": 1, field: 1})
    assert not redis.exists(counts_key(POOL))


def test_a_count_only_rises(scheduler: SchedulerSync) -> None:
    with pytest.raises(ValueError, match="only rises"):
        scheduler.count(POOL, {"ended.free.m.stop": -1})


# --- samples --------------------------------------------------------------------------------------


def test_of_many_who_ask_one_takes_the_sample(observer: Observer, redis: Redis) -> None:
    taken = [pool for _ in range(5) for pool in observer.take_sample_turns([POOL])]
    # Between two of these calls a new ten seconds may begin.
    assert len(taken) in (1, 2)
    assert 0 < int(str(redis.pttl(sampled_key(POOL)))) <= 10_000


def test_only_the_newest_samples_are_kept(observer: Observer, redis: Redis) -> None:
    redis.lpush(history_key(POOL), *(str(number) for number in range(SAMPLES)))
    observer.keep_sample(POOL, b"new")
    (kept,) = observer.samples([POOL])
    assert (len(kept), kept[0], kept[-1]) == (SAMPLES, b"new", b"1")
    (look,) = observer.look([POOL], newest=2)
    assert look is not None
    assert look.samples == [b"new", str(SAMPLES - 1).encode()]


# --- weights --------------------------------------------------------------------------------------


def test_another_weight_holds_for_those_that_wait(scheduler: SchedulerSync) -> None:
    """Two plans of the same weight take turns; with eight to one, one of them has nearly all."""
    for number in range(1, 10):
        scheduler.enqueue(entry_of(number, number, plan="a"), pool=POOL)
        scheduler.enqueue(entry_of(100 + number, 100 + number, plan="b"), pool=POOL)
    scheduler.weigh([POOL, "elsewhere"], "b", 8)
    scheduler.weigh([POOL], "unknown", 5)
    served = [scheduler.pop(POOL, "r1", slots=99).entry for _ in range(9)]
    plans = [entry.plan for entry in served if entry]
    assert plans.count("b") == 8


@given(weight=st.integers(1, 1_000_000), depth=st.integers(0, 4))
@hypothesis_settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_weight_is_told_as_it_was_given(redis: Redis, weight: int, depth: int) -> None:
    clear(redis)
    scheduler = SchedulerSync(redis, LIMITS)
    for number in range(1, depth + 1):
        redis.set(pool_keys(POOL).built, "x")
        scheduler.enqueue(entry_of(number, number, plan="a"), pool=POOL)
    scheduler.weigh([POOL], "a", weight)
    (look,) = Observer(redis).look([POOL], [("a", 3, False)])
    assert look is not None
    (plan,) = look.figures.plans
    assert (plan.weight, plan.depth) == (weight if depth else 3, depth)


@pytest.mark.parametrize("weight", [0, -1, 1_000_001])
def test_a_weight_out_of_bounds_is_refused(scheduler: SchedulerSync, weight: int) -> None:
    with pytest.raises(ValueError, match="weight"):
        scheduler.weigh([POOL], "a", weight)
