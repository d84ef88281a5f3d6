"""Whom a pool's queue would let another region take over, on a real Valkey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from generation.scheduler import Limits, Loan, SchedulerSync
from generation.scheduler.entries import pool_keys
from tests.integration.queue_room import (  # noqa: F401  # fixtures
    POOL,
    Clock,
    clear,
    entry_of,
    redis_fixture,
    run_of,
    tickets_fixture,
    user_of,
)

SLOTS = 4
TOOK_MS = 10_000
TRIP_MS = 80
PRO = {"plan": "pro", "weight": 8, "is_paid": True}
FREE = {"plan": "free"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(redis: Redis, tickets: list[object], clock: Clock) -> Iterator[SchedulerSync]:
    made = SchedulerSync(redis, Limits(per_pool=1_000, per_user=100), clock)
    assert made.rebuild(POOL, list)
    yield made
    clear(redis)


def put(queue: SchedulerSync, run: int, user: int, **more: object) -> None:
    assert queue.enqueue(entry_of(run, user, **{**FREE, **more}), pool=POOL).added


def fill(queue: SchedulerSync, clock: Clock, *, measured: bool = True) -> None:
    """All slots at work, in a pool whose runs take TOOK_MS."""
    if measured:
        put(queue, 900, 900)
        assert queue.pop(POOL, "r").entry is not None
        clock.ms += TOOK_MS
        assert queue.ended(run_of(900), POOL, 100)
    queue.beat(POOL, "r", at_work=0, slots=SLOTS, paid_burst=0)
    for number in range(SLOTS):
        put(queue, 800 + number, 800 + number)
        assert queue.pop(POOL, "r", at_work=number, slots=SLOTS).entry is not None


def loans(queue: SchedulerSync, most: int = 8, trip_ms: int = TRIP_MS) -> list[Loan]:
    (found,) = queue.borrowable([POOL], most=most, trip_ms=trip_ms)
    return found


def lent(queue: SchedulerSync, most: int = 8, trip_ms: int = TRIP_MS) -> list[int]:
    return [int(loan.entry.run.removeprefix("g_"), 16) for loan in loans(queue, most, trip_ms)]


def test_a_full_queue_names_who_comes_next_and_keeps_them(
    queue: SchedulerSync, clock: Clock
) -> None:
    fill(queue, clock)
    for number in range(1, 5):
        put(queue, number, number)
    assert lent(queue, most=2) == [1, 2]
    assert lent(queue) == [1, 2, 3, 4]
    assert queue.position(run_of(1), POOL) == 1, "it waits there until its row has moved"
    assert queue.depth(POOL) == 4


def test_the_wait_must_be_longer_than_the_trip(queue: SchedulerSync, clock: Clock) -> None:
    fill(queue, clock)
    put(queue, 1, 1)
    (loan,) = loans(queue)
    assert loan.wait_ms > TRIP_MS
    assert lent(queue, trip_ms=loan.wait_ms - 1) == [1]
    assert lent(queue, trip_ms=loan.wait_ms) == []


def test_what_a_free_slot_at_home_will_take_stays(queue: SchedulerSync, clock: Clock) -> None:
    fill(queue, clock)
    for number in range(1, 4):
        put(queue, number, number)
    assert queue.ended(run_of(800), POOL, 100)
    assert lent(queue) == [2, 3]


def test_paid_plans_go_first_and_users_take_turns(queue: SchedulerSync, clock: Clock) -> None:
    fill(queue, clock)
    for number in (1, 2, 3):
        put(queue, number, 1)
    put(queue, 4, 2)
    put(queue, 5, 3, **PRO)
    assert lent(queue) == [5, 1, 4, 2, 3]


def test_pinned_runs_stay_and_keep_nobody_back(queue: SchedulerSync, clock: Clock) -> None:
    fill(queue, clock)
    put(queue, 1, 1, is_pinned=True)
    put(queue, 2, 1, is_pinned=True)
    put(queue, 3, 2)
    (loan,) = loans(queue)
    assert loan.entry == entry_of(3, 2, **FREE)
    assert queue.pop(POOL, "r", slots=SLOTS).entry == entry_of(1, 1, is_pinned=True, **FREE)


def test_a_user_gets_no_more_than_the_cap_leaves(queue: SchedulerSync, clock: Clock) -> None:
    fill(queue, clock)
    for number in range(1, 6):
        put(queue, number, 800, cap=3)  # one of theirs is at work
    assert lent(queue) == [1, 2]
    for number in range(6, 9):
        put(queue, number, 801, cap=1)
    assert lent(queue) == [1, 2], "who is at their cap waits for themselves"


def test_what_an_owner_gave_back_stays_with_what_is_behind_it(
    queue: SchedulerSync, clock: Clock
) -> None:
    fill(queue, clock)
    assert queue.requeue_front(entry_of(800, 800, **FREE), pool=POOL, replica="r").added
    put(queue, 1, 800)
    put(queue, 2, 2)
    # Its slot is free again: of the two that wait for one, it is the first.
    assert lent(queue) == [2]


def test_a_pause_and_a_lost_queue_lend_nothing(
    queue: SchedulerSync, clock: Clock, redis: Redis
) -> None:
    fill(queue, clock)
    put(queue, 1, 1)
    queue.configure(POOL, paused=True)
    assert lent(queue) == []
    queue.configure(POOL, paused=False)
    assert lent(queue) == [1]
    redis.delete(f"{{pool:{POOL}}}:built")
    assert lent(queue) == []


def test_where_nobody_knows_the_wait_it_is_what_they_waited(
    queue: SchedulerSync, clock: Clock
) -> None:
    fill(queue, clock, measured=False)
    put(queue, 1, 1)
    clock.ms += TRIP_MS
    assert lent(queue) == []
    clock.ms += 1
    assert loans(queue) == [Loan(entry_of(1, 1, **FREE), TRIP_MS + 1)]
    clock.ms += 60_000  # nor is anybody there any more
    assert lent(queue) == [1]


def test_chores_stay(queue: SchedulerSync, clock: Clock) -> None:
    fill(queue, clock)
    put(queue, 1, 1, kind="chore")
    assert lent(queue) == []


def test_it_knows_who_is_at_work(queue: SchedulerSync, clock: Clock) -> None:
    fill(queue, clock)
    assert queue.at_work_of([user_of(800), user_of(1)], POOL) == [1, 0]
    assert queue.at_work_of([], POOL) == []


def test_it_names_all_that_wait(queue: SchedulerSync, clock: Clock) -> None:
    fill(queue, clock)
    for number in range(500):
        put(queue, number, number)
    found = {run for part in queue.waiting(POOL) for run in part}
    assert found == {run_of(number) for number in range(500)}


def contents(client: Redis) -> list[object]:
    keys = pool_keys(POOL)
    hashes = [keys.entries, keys.lines, keys.plans, keys.tags, keys.users, keys.running, keys.busy]
    lists = [client.zrange(key, 0, -1) for key in (keys.jobs, keys.turns)]
    return [*(client.hgetall(key) for key in hashes), *lists]


_ASKED = st.tuples(
    st.integers(0, 5),  # user
    st.booleans(),  # paid
    st.booleans(),  # pinned
    st.integers(1, 400),  # cost
)


@given(asked=st.lists(_ASKED, max_size=14), most=st.integers(1, 6))
def test_any_queue_lends_without_a_change(
    asked: list[tuple[int, bool, bool, int]], most: int
) -> None:
    """At most so many, none twice, none pinned, none of a user before an earlier one of theirs; and
    the queue is as it was."""
    client = Redis.from_url(settings.REDIS_URL)
    clock = Clock()
    queue = SchedulerSync(client, Limits(per_pool=1_000, per_user=100), clock)
    try:
        clear(client)
        assert queue.rebuild(POOL, list)
        fill(queue, clock)
        owners: dict[str, tuple[str, int]] = {}
        for number, (user, paid, pinned, cost) in enumerate(asked):
            plan = PRO if paid else FREE
            put(queue, number, user, **plan, is_pinned=pinned, cost_tokens=cost)
            owners[run_of(number)] = (user_of(user) + str(paid), number)
        before = contents(client)
        found = loans(queue, most)
        assert contents(client) == before
        runs = [loan.entry.run for loan in found]
        assert len(runs) <= most
        assert len(set(runs)) == len(runs)
        assert not any(loan.entry.is_pinned for loan in found)
        assert [loan.entry.is_paid for loan in found] == sorted(
            (loan.entry.is_paid for loan in found), reverse=True
        )
        for run in runs:
            earlier = [one for one in owners if owners[one][0] == owners[run][0] and one < run]
            assert set(earlier) <= set(runs)
    finally:
        clear(client)
        client.close()
