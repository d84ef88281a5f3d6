"""The queue's scripts one by one on a real Valkey; test_scheduler_fair.py has the algorithm."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.conf import settings
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from generation.scheduler import (
    Asker,
    Place,
    QueueEntry,
    Room,
    Scheduler,
    SchedulerSync,
)
from generation.scheduler.calls import Limits
from generation.scheduler.entries import pool_keys
from tests.integration.queue_room import (  # noqa: F401  # fixtures
    LIMITS,
    POOL,
    Clock,
    entry_of,
    redis_fixture,
    run_of,
    scheduler_fixture,
    tickets_fixture,
    user_of,
)

Tickets = list[tuple[str, str | None]]


@pytest.fixture
async def async_redis(redis: Redis) -> AsyncIterator[AsyncRedis]:
    client = AsyncRedis.from_url(settings.REDIS_URL)
    yield client
    await client.aclose()


def test_a_ticket_is_published_for_what_was_added_and_only_then(
    scheduler: SchedulerSync, tickets: Tickets
) -> None:
    scheduler.enqueue(QueueEntry(run_of(1), user_of(1), 1), pool=POOL)
    assert tickets == [(POOL, None)]
    scheduler.enqueue(QueueEntry(run_of(1), user_of(1), 1), pool=POOL)
    assert tickets == [(POOL, None)]
    scheduler.requeue_front(entry_of(2, 1), pool=POOL)
    assert tickets == [(POOL, None), (POOL, None)]


def test_a_queue_that_is_not_built_refuses_and_publishes_nothing(
    scheduler: SchedulerSync, redis: Redis, tickets: Tickets
) -> None:
    scheduler.enqueue(QueueEntry(run_of(1), user_of(1), 1), pool=POOL)
    tickets.clear()
    redis.delete(pool_keys(POOL).built)

    result = scheduler.enqueue(QueueEntry(run_of(2), user_of(1), 1), pool=POOL)
    assert (result.built, result.added) == (False, False)
    assert not scheduler.requeue_front(entry_of(3, 1), pool=POOL).built
    popped = scheduler.pop(POOL, "r")
    assert (popped.built, popped.entry) == (False, None)
    assert scheduler.room(POOL, user_of(1)) is Room.NOT_BUILT
    assert not scheduler.is_built(POOL)
    assert tickets == []
    # It changed nothing, and a stop still takes its run out.
    assert scheduler.depth(POOL) == 1
    assert scheduler.remove(run_of(1), POOL)


def test_a_marker_of_another_server_is_worth_nothing(
    scheduler: SchedulerSync, redis: Redis
) -> None:
    assert scheduler.is_built(POOL)
    redis.set(pool_keys(POOL).built, "0" * 40)
    assert not scheduler.is_built(POOL)
    assert not scheduler.pop(POOL, "r").built


def test_a_queue_of_another_version_is_filled_anew(scheduler: SchedulerSync, redis: Redis) -> None:
    """Its entries look otherwise; those who wait would be taken for queued, and never be served."""
    redis.hset(pool_keys(POOL).entries, run_of(1), "u_1|7|")
    server: Any = redis.info("server")
    redis.set(pool_keys(POOL).built, str(server["run_id"]))
    assert not scheduler.is_built(POOL)
    assert scheduler.rebuild(POOL, lambda: [entry_of(1, 1)])
    assert scheduler.is_built(POOL)
    assert scheduler.pop(POOL, "r").entry == entry_of(1, 1)


def fill(scheduler: SchedulerSync, user: str) -> int:
    """As many runs as this user may have waiting; how many."""
    count = 0
    while scheduler.room(POOL, user) is Room.FREE:
        number = scheduler.depth(POOL)
        scheduler.enqueue(QueueEntry(run_of(number), user, 1), pool=POOL)
        count += 1
    return count


def test_room_counts_the_pool_and_the_user(scheduler: SchedulerSync, redis: Redis) -> None:
    roomy = SchedulerSync(redis, Limits(per_pool=1_000, per_user=3), publish=lambda *_: True)
    assert fill(roomy, user_of(0)) == 3
    assert roomy.room(POOL, user_of(0)) is Room.USER_FULL
    assert roomy.room(POOL, user_of(1)) is Room.FREE
    roomy.pop(POOL, "r")
    assert roomy.room(POOL, user_of(0)) is Room.FREE
    tight = SchedulerSync(redis, Limits(per_pool=2, per_user=3), publish=lambda *_: True)
    assert tight.room(POOL, user_of(1)) is Room.POOL_FULL


def test_a_few_who_fill_a_queue_leave_room_for_whoever_comes(
    scheduler: SchedulerSync, redis: Redis
) -> None:
    made = SchedulerSync(redis, Limits(per_pool=200, per_user=100), publish=lambda *_: True)
    taken = [fill(made, user_of(number)) for number in range(20)]
    assert taken[0] == 36, "a fifth of what free plans may fill"
    assert taken == sorted(taken, reverse=True)
    assert made.room(POOL, user_of(50)) is Room.FREE
    # Hundreds of accounts fill it all the same, but not what is kept for those who pay.
    for number in range(100, 200):
        fill(made, user_of(number))
    assert made.depth(POOL) == 180
    assert made.room(POOL, user_of(50)) is Room.POOL_FULL
    free, paid = (Asker(user_of(50), "plan", 1, is_paid) for is_paid in (False, True))
    assert made.outlook([POOL], free)[0].room is Room.POOL_FULL
    assert made.outlook([POOL], paid)[0].room is Room.FREE


def test_a_rebuild_keeps_the_order_it_was_given_and_drops_what_was_there(
    scheduler: SchedulerSync,
) -> None:
    scheduler.enqueue(QueueEntry(run_of(9_999), user_of(9), 1), pool=POOL)
    entries = [entry_of(number, number) for number in range(1_234)]
    assert scheduler.rebuild(POOL, lambda: [*entries, entries[3]])
    assert scheduler.depth(POOL) == len(entries)
    assert scheduler.position(run_of(9_999), POOL) is None
    assert scheduler.positions([(POOL, run_of(0)), (POOL, run_of(1_233))]) == [1, 1_234]
    assert sum(scheduler.length_by_user(POOL).values()) == len(entries)
    # Whoever comes now stands behind, and whoever comes back stands in front.
    assert scheduler.enqueue(entry_of(5_000, 5_000), pool=POOL).added
    assert scheduler.position(run_of(5_000), POOL) == len(entries) + 1
    assert scheduler.requeue_front(entry_of(6_000, 6_000), pool=POOL).added
    assert scheduler.position(run_of(6_000), POOL) == 1


def test_nobody_meets_a_queue_that_is_half_full(scheduler: SchedulerSync) -> None:
    def read() -> Iterator[QueueEntry]:
        for number in range(600):
            yield entry_of(number, 1)
        # The first parts are in; another process asks now.
        assert scheduler.depth(POOL) == 500
        assert not scheduler.pop(POOL, "r").built
        assert not scheduler.enqueue(QueueEntry(run_of(7_000), user_of(1), 1), pool=POOL).built

    assert scheduler.rebuild(POOL, read)
    assert scheduler.depth(POOL) == 600


def test_one_rebuilds_at_a_time(scheduler: SchedulerSync) -> None:
    second: list[bool] = []

    def read() -> list[QueueEntry]:
        second.append(scheduler.rebuild(POOL, lambda: [entry_of(2, 2)]))
        return [entry_of(1, 1)]

    assert scheduler.rebuild(POOL, read)
    assert second == [False]
    assert scheduler.position(run_of(1), POOL) == 1
    # The lock is free again.
    assert scheduler.rebuild(POOL, list)


def test_a_rebuild_of_what_is_lost_lets_be_what_another_has_built(
    scheduler: SchedulerSync, redis: Redis
) -> None:
    def never() -> list[QueueEntry]:
        raise AssertionError("it is built")

    assert scheduler.enqueue(entry_of(1, 1), pool=POOL).added
    assert not scheduler.rebuild(POOL, never, if_lost=True)
    assert scheduler.position(run_of(1), POOL) == 1
    # The lock is free again.
    redis.delete(pool_keys(POOL).built)
    assert scheduler.rebuild(POOL, lambda: [entry_of(2, 2)], if_lost=True)
    assert scheduler.position(run_of(2), POOL) == 1
    assert scheduler.position(run_of(1), POOL) is None


def test_a_rebuild_that_lost_its_lock_builds_nothing(
    scheduler: SchedulerSync, redis: Redis
) -> None:
    """The first one reads for so long that its lock expires; the second one builds; the first
    comes back with old rows and must not touch the queue."""

    def read() -> list[QueueEntry]:
        redis.delete(pool_keys(POOL).lock)
        assert scheduler.rebuild(POOL, lambda: [entry_of(2, 2)])
        return [entry_of(1, 1)]

    assert not scheduler.rebuild(POOL, read)
    assert scheduler.is_built(POOL)
    assert scheduler.position(run_of(1), POOL) is None
    assert scheduler.position(run_of(2), POOL) == 1


def test_a_script_flush_goes_unnoticed(scheduler: SchedulerSync, redis: Redis) -> None:
    scheduler.enqueue(QueueEntry(run_of(1), user_of(1), 1), pool=POOL)
    redis.script_flush()
    popped = scheduler.pop(POOL, "r")
    assert popped.entry == QueueEntry(run_of(1), user_of(1), 1)


def test_no_positions_are_asked_for_nobody(scheduler: SchedulerSync) -> None:
    assert scheduler.positions([]) == []


async def test_the_async_scheduler_speaks_to_the_same_queue(
    scheduler: SchedulerSync, async_redis: AsyncRedis, tickets: Tickets
) -> None:
    twin = Scheduler(async_redis, LIMITS)

    async def read() -> list[QueueEntry]:
        return [entry_of(1, 1)]

    assert await twin.rebuild(POOL, read)
    assert await twin.is_built(POOL)
    result = await twin.enqueue(QueueEntry(run_of(2), user_of(2), 7), pool=POOL)
    assert (result.built, result.added) == (True, True)
    assert (await twin.requeue_front(entry_of(3, 1), pool=POOL)).added
    assert tickets == [(POOL, None), (POOL, None)]
    assert await twin.position(run_of(2), POOL) == 2
    assert await twin.positions([(POOL, run_of(1)), (POOL, run_of(5))]) == [3, None]
    assert await twin.places([(POOL, run_of(2))]) == [Place(2, None)]
    asked = [Asker(user_of(2), "", 1, False)] * 2
    assert [await twin.outlook([POOL, POOL], one) for one in asked] == [
        scheduler.outlook([POOL, POOL], asked[0])
    ] * 2
    assert await twin.depth(POOL) == 3
    assert await twin.length_by_user(POOL) == {user_of(1): 2, user_of(2): 1}
    assert await twin.room(POOL, user_of(1)) is Room.USER_FULL
    assert await twin.remove(run_of(1), POOL)
    assert not await twin.remove(run_of(1), POOL)
    await twin.configure(POOL, paused=True)
    assert (await twin.pop(POOL, "r")).entry is None
    await twin.configure(POOL, paused=False)
    assert (await twin.pop(POOL, "r")).entry == entry_of(3, 1)
    assert scheduler.pop(POOL, "r").entry == QueueEntry(run_of(2), user_of(2), 7)
    assert (await twin.pop(POOL, "r")).entry is None
    assert await twin.lost([run_of(2), run_of(5)], POOL) == [run_of(5)]
    found = [record.run async for part in twin.records(POOL) for record in part]
    assert sorted(found) == [run_of(2), run_of(3)]
    assert await twin.ended(run_of(2), POOL, 3)
    assert not await twin.ended(run_of(2), POOL, 3)
    beat = await twin.beat(POOL, "r", at_work=1, slots=2, paid_burst=0)
    assert (beat.built, beat.waiting, beat.lost) == (True, 0, ())
    # Tickets: where room is, and a full one passes them on.
    await twin.leave(POOL, "r")
    tickets.clear()
    assert (await twin.enqueue(entry_of(6, 1), pool=POOL)).replica is None
    await twin.beat(POOL, "r", at_work=1, slots=3, paid_burst=0)
    assert (await twin.pop(POOL, "other", at_work=1)).passed_to == "r"
    assert (await twin.requeue_front(entry_of(7, 2), pool=POOL, replica="r")).replica is None
    assert (await twin.requeue_front(entry_of(8, 2), pool=POOL)).replica == "r"
    assert tickets == [(POOL, None), (POOL, "r"), (POOL, None), (POOL, "r")]
    await twin.leave(POOL, "r")
    assert scheduler.outlook([POOL], asked[0])[0].replicas == 0


async def test_the_async_rebuild_is_locked_too(
    scheduler: SchedulerSync, async_redis: AsyncRedis, redis: Redis
) -> None:
    twin = Scheduler(async_redis, LIMITS)

    async def read() -> list[QueueEntry]:
        assert not scheduler.rebuild(POOL, list)
        redis.delete(pool_keys(POOL).lock)
        return [entry_of(1, 1)]

    assert not await twin.rebuild(POOL, read)
    redis.delete(pool_keys(POOL).lock)
    assert not await twin.rebuild(POOL, read, if_lost=True), "it is built"
    assert scheduler.rebuild(POOL, list), "the lock is free again"
    assert scheduler.depth(POOL) == 0


def test_the_twins_have_the_same_verbs() -> None:
    def verbs(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert verbs(Scheduler) == verbs(SchedulerSync)
