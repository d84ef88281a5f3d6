"""The queue's scripts on a real Valkey, against a plain Python model and one by one."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
from django.conf import settings
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from generation.scheduler import Limits, QueueEntry, Room, Scheduler, SchedulerSync
from generation.scheduler import queue as queue_module
from generation.scheduler.entries import pool_keys

POOL = "queue-test"
LIMITS = Limits(per_pool=5, per_user=2)


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pools that tickets were published for (publishing itself has tests of its own)."""
    published: list[str] = []
    monkeypatch.setattr(queue_module, "publish_ticket", published.append)
    return published


@pytest.fixture
def redis() -> Iterator[Redis]:
    client = Redis.from_url(settings.REDIS_URL)
    _clear(client)
    yield client
    _clear(client)
    client.close()


@pytest.fixture
def scheduler(redis: Redis, tickets: list[str]) -> SchedulerSync:
    made = SchedulerSync(redis, LIMITS)
    assert made.rebuild(POOL, list)
    return made


@pytest.fixture
async def async_redis(redis: Redis) -> AsyncIterator[AsyncRedis]:
    client = AsyncRedis.from_url(settings.REDIS_URL)
    yield client
    await client.aclose()


def _clear(client: Redis) -> None:
    keys = pool_keys(POOL)
    client.delete(*(getattr(keys, name) for name in keys.__slots__))


def run_of(number: int) -> str:
    return f"g_{number:032x}"


def user_of(number: int) -> str:
    return f"u_{number:032x}"


def entry_of(run: int, user: int) -> QueueEntry:
    return QueueEntry(run_of(run), user_of(user), cost_tokens=run, preferred_replica=f"r{user}")


class PlainQueue:
    """What the scripts do, in a list."""

    def __init__(self) -> None:
        self.waiting: list[QueueEntry] = []

    def put(self, entry: QueueEntry, *, front: bool) -> tuple[bool, int]:
        runs = [waiting.run for waiting in self.waiting]
        if entry.run in runs:
            return False, runs.index(entry.run) + 1
        self.waiting.insert(0 if front else len(self.waiting), entry)
        return True, 1 if front else len(self.waiting)

    def pop(self) -> QueueEntry | None:
        return self.waiting.pop(0) if self.waiting else None

    def remove(self, run: str) -> bool:
        before = len(self.waiting)
        self.waiting = [waiting for waiting in self.waiting if waiting.run != run]
        return len(self.waiting) < before

    def by_user(self) -> dict[str, int]:
        return dict(Counter(waiting.user for waiting in self.waiting))


_run = st.integers(0, 7)
_user = st.integers(0, 2)
_step = st.one_of(
    st.tuples(st.just("enqueue"), _run, _user),
    st.tuples(st.just("front"), _run, _user),
    st.tuples(st.just("pop"), st.just(0), st.just(0)),
    st.tuples(st.just("remove"), _run, st.just(0)),
)


@hypothesis_settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(_step, max_size=40))
def test_the_queue_does_what_a_list_would(
    scheduler: SchedulerSync, steps: list[tuple[str, int, int]]
) -> None:
    assert scheduler.rebuild(POOL, list)
    model = PlainQueue()
    for verb, run, user in steps:
        _compare_step(scheduler, model, verb, entry_of(run, user))
    every_run = [run_of(number) for number in range(8)]
    places = {waiting.run: place for place, waiting in enumerate(model.waiting, 1)}
    assert scheduler.positions([(POOL, run) for run in every_run]) == [
        places.get(run) for run in every_run
    ]
    assert scheduler.depth(POOL) == len(model.waiting)
    assert scheduler.length_by_user(POOL) == model.by_user()
    assert [scheduler.pop(POOL, "r").entry for _ in model.waiting] == model.waiting
    assert scheduler.pop(POOL, "r").entry is None
    assert scheduler.length_by_user(POOL) == {}


def _compare_step(
    scheduler: SchedulerSync, model: PlainQueue, verb: str, entry: QueueEntry
) -> None:
    match verb:
        case "enqueue":
            result = scheduler.enqueue(
                entry.run,
                pool=POOL,
                user=entry.user,
                cost_tokens=entry.cost_tokens,
                preferred_replica=entry.preferred_replica,
            )
            assert (result.added, result.position) == model.put(entry, front=False)
        case "front":
            result = scheduler.requeue_front(entry, pool=POOL)
            assert (result.added, result.position) == model.put(entry, front=True)
        case "pop":
            assert scheduler.pop(POOL, "r").entry == model.pop()
        case _:
            assert scheduler.remove(entry.run, POOL) == model.remove(entry.run)


def test_nothing_is_left_in_redis_of_an_emptied_queue(
    scheduler: SchedulerSync, redis: Redis
) -> None:
    for number in range(3):
        scheduler.requeue_front(entry_of(number, number), pool=POOL)
    scheduler.remove(run_of(1), POOL)
    scheduler.pop(POOL, "r")
    scheduler.pop(POOL, "r")
    keys = pool_keys(POOL)
    assert redis.exists(keys.queue, keys.entries, keys.users) == 0


def test_a_ticket_is_published_for_what_was_added_and_only_then(
    scheduler: SchedulerSync, tickets: list[str]
) -> None:
    scheduler.enqueue(run_of(1), pool=POOL, user=user_of(1), cost_tokens=1)
    assert tickets == [POOL]
    scheduler.enqueue(run_of(1), pool=POOL, user=user_of(1), cost_tokens=1)
    assert tickets == [POOL]
    scheduler.requeue_front(entry_of(2, 1), pool=POOL)
    assert tickets == [POOL, POOL]


def test_a_queue_that_is_not_built_refuses_and_publishes_nothing(
    scheduler: SchedulerSync, redis: Redis, tickets: list[str]
) -> None:
    scheduler.enqueue(run_of(1), pool=POOL, user=user_of(1), cost_tokens=1)
    tickets.clear()
    redis.delete(pool_keys(POOL).built)

    result = scheduler.enqueue(run_of(2), pool=POOL, user=user_of(1), cost_tokens=1)
    assert (result.built, result.added, result.position) == (False, False, 0)
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


def test_room_counts_the_pool_and_the_user(scheduler: SchedulerSync) -> None:
    for number in range(4):
        user = user_of(number // 2)
        assert scheduler.room(POOL, user) is Room.FREE
        scheduler.enqueue(run_of(number), pool=POOL, user=user, cost_tokens=1)
    assert scheduler.room(POOL, user_of(0)) is Room.USER_FULL
    assert scheduler.room(POOL, user_of(2)) is Room.FREE
    scheduler.enqueue(run_of(4), pool=POOL, user=user_of(2), cost_tokens=1)
    assert scheduler.room(POOL, user_of(3)) is Room.POOL_FULL
    scheduler.pop(POOL, "r")
    assert scheduler.room(POOL, user_of(0)) is Room.FREE


def test_a_rebuild_keeps_the_order_it_was_given_and_drops_what_was_there(
    scheduler: SchedulerSync,
) -> None:
    scheduler.enqueue(run_of(9_999), pool=POOL, user=user_of(9), cost_tokens=1)
    entries = [entry_of(number, number % 7) for number in range(1_234)]
    assert scheduler.rebuild(POOL, lambda: [*entries, entries[3]])
    assert scheduler.depth(POOL) == len(entries)
    assert scheduler.position(run_of(9_999), POOL) is None
    assert scheduler.positions([(POOL, run_of(0)), (POOL, run_of(1_233))]) == [1, 1_234]
    assert sum(scheduler.length_by_user(POOL).values()) == len(entries)
    # Whoever comes now stands behind, and whoever comes back stands in front.
    after = scheduler.enqueue(run_of(5_000), pool=POOL, user=user_of(1), cost_tokens=1)
    assert (after.added, after.position) == (True, len(entries) + 1)
    assert scheduler.requeue_front(entry_of(6_000, 1), pool=POOL).position == 1


def test_nobody_meets_a_queue_that_is_half_full(scheduler: SchedulerSync) -> None:
    def read() -> Iterator[QueueEntry]:
        for number in range(600):
            yield entry_of(number, 1)
        # The first part is in; another process asks now.
        assert scheduler.depth(POOL) == 500
        assert not scheduler.pop(POOL, "r").built
        assert not scheduler.enqueue(run_of(7_000), pool=POOL, user=user_of(1), cost_tokens=1).built

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
    scheduler.enqueue(run_of(1), pool=POOL, user=user_of(1), cost_tokens=1)
    redis.script_flush()
    popped = scheduler.pop(POOL, "r")
    assert popped.entry == QueueEntry(run_of(1), user_of(1), 1)


def test_no_positions_are_asked_for_nobody(scheduler: SchedulerSync) -> None:
    assert scheduler.positions([]) == []


async def test_the_async_scheduler_speaks_to_the_same_queue(
    scheduler: SchedulerSync, async_redis: AsyncRedis, tickets: list[str]
) -> None:
    twin = Scheduler(async_redis, LIMITS)

    async def read() -> list[QueueEntry]:
        return [entry_of(1, 1)]

    assert await twin.rebuild(POOL, read)
    assert await twin.is_built(POOL)
    result = await twin.enqueue(run_of(2), pool=POOL, user=user_of(2), cost_tokens=7)
    assert (result.built, result.added, result.position) == (True, True, 2)
    assert (await twin.requeue_front(entry_of(3, 1), pool=POOL)).position == 1
    assert tickets == [POOL, POOL]
    assert await twin.position(run_of(2), POOL) == 3
    assert await twin.positions([(POOL, run_of(1)), (POOL, run_of(5))]) == [2, None]
    assert await twin.depth(POOL) == 3
    assert await twin.length_by_user(POOL) == {user_of(1): 2, user_of(2): 1}
    assert await twin.room(POOL, user_of(1)) is Room.USER_FULL
    assert await twin.remove(run_of(1), POOL)
    assert not await twin.remove(run_of(1), POOL)
    assert (await twin.pop(POOL, "r")).entry == entry_of(3, 1)
    assert scheduler.pop(POOL, "r").entry == QueueEntry(run_of(2), user_of(2), 7)
    assert (await twin.pop(POOL, "r")).entry is None


async def test_the_async_rebuild_is_locked_too(
    scheduler: SchedulerSync, async_redis: AsyncRedis, redis: Redis
) -> None:
    twin = Scheduler(async_redis, LIMITS)

    async def read() -> list[QueueEntry]:
        assert not scheduler.rebuild(POOL, list)
        redis.delete(pool_keys(POOL).lock)
        return [entry_of(1, 1)]

    assert not await twin.rebuild(POOL, read)
    assert scheduler.depth(POOL) == 0


def test_the_twins_have_the_same_verbs() -> None:
    def verbs(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert verbs(Scheduler) == verbs(SchedulerSync)
