"""Positions, predicted waits, and what a run would meet that is not queued yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from generation.scheduler import Asker, Limits, Place, Room, SchedulerSync
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

FREE: dict[str, Any] = {"plan": "free", "weight": 1, "is_paid": False}
PRO = {"plan": "pro", "weight": 8, "is_paid": True}
SLOTS = 4
TOOK_MS = 10_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(redis: Redis, tickets: list[object], clock: Clock) -> Iterator[SchedulerSync]:
    made = SchedulerSync(redis, Limits(per_pool=8, per_user=3), clock)
    assert made.rebuild(POOL, list)
    yield made
    clear(redis)


def put(queue: SchedulerSync, run: int, user: int, **more: object) -> None:
    assert queue.enqueue(entry_of(run, user, **more), pool=POOL).added


def measure(queue: SchedulerSync, clock: Clock) -> None:
    """A run that was charged 1,000 tokens, used 500 and took TOOK_MS; then SLOTS are announced."""
    put(queue, 900, 900, cost_tokens=1_000)
    assert queue.pop(POOL, "r").entry is not None
    clock.ms += TOOK_MS
    assert queue.ended(run_of(900), POOL, 500)
    queue.beat(POOL, "r", at_work=0, slots=SLOTS, paid_burst=2)


def fill_slots(queue: SchedulerSync, count: int = SLOTS, **more: Any) -> None:
    for number in range(count):
        put(queue, 800 + number, 800 + number, cost_tokens=1_000, **more)
        assert queue.pop(POOL, "r", at_work=number, slots=count).entry is not None


def asker(user: int, *, paid: bool = False) -> Asker:
    return Asker(user_of(user), "pro" if paid else "free", 8 if paid else 1, paid)


def positions(queue: SchedulerSync, *runs: int) -> list[int | None]:
    return queue.positions([(POOL, run_of(run)) for run in runs])


def test_positions_are_exact_where_everybody_has_one_run(queue: SchedulerSync) -> None:
    for number in range(6):
        put(queue, number, number, **FREE)
    assert positions(queue, *range(6), 77) == [1, 2, 3, 4, 5, 6, None]
    assert queue.pop(POOL, "r").entry is not None
    assert positions(queue, *range(6)) == [None, 1, 2, 3, 4, 5]


def test_positions_of_one_users_runs_leave_room_for_the_others_turns(queue: SchedulerSync) -> None:
    for number in range(3):
        put(queue, number, 1, **FREE)
    put(queue, 10, 2, **FREE)
    assert positions(queue, 0, 10, 1, 2) == [1, 2, 3, 4]
    order = [queue.pop(POOL, "r", slots=9).entry for _ in range(4)]
    assert [entry and entry.run for entry in order] == [run_of(0), run_of(10), run_of(1), run_of(2)]


def test_positions_count_what_other_plans_get_meanwhile(queue: SchedulerSync) -> None:
    for number in range(4):
        put(queue, number, number, cost_tokens=800, **FREE)
    for number in range(10, 13):
        put(queue, number, number, cost_tokens=800, **PRO)
    # In the time of one free run pro has eight.
    predicted = positions(queue, 10, 11, 12, 0, 1, 2, 3)
    assert predicted[:3] == [1, 3, 4], "one free run goes first, or about then"
    assert predicted[3:] == [2, 5, 6, 7]
    order = [queue.pop(POOL, "r", slots=9).entry for _ in range(7)]
    assert [entry and entry.plan for entry in order] == ["pro", "free", *["pro"] * 2, *["free"] * 3]


def test_nothing_is_predicted_before_anything_was_measured(queue: SchedulerSync) -> None:
    put(queue, 1, 1, **FREE)
    assert queue.places([(POOL, run_of(1))]) == [Place(1, None)]
    (outlook,) = queue.outlook([POOL], asker(2))
    assert (outlook.predicted_wait_ms, outlook.tokens_per_s, outlook.replicas) == (None, None, 0)
    assert (outlook.depth, outlook.runs_before, outlook.tokens_before) == (1, 1, 100)


def test_an_idle_pool_is_waited_for_by_nobody(queue: SchedulerSync) -> None:
    queue.beat(POOL, "r", at_work=0, slots=SLOTS, paid_burst=2)
    free, paid = (queue.outlook([POOL], asker(1, paid=paid))[0] for paid in (False, True))
    assert (free.predicted_wait_ms, free.free_room, free.slots) == (0, SLOTS, SLOTS)
    assert (paid.predicted_wait_ms, paid.free_room) == (0, SLOTS + 2)


def test_a_full_pool_is_waited_for_by_what_goes_first(queue: SchedulerSync, clock: Clock) -> None:
    measure(queue, clock)
    fill_slots(queue, SLOTS, **FREE)
    (outlook,) = queue.outlook([POOL], asker(1))
    assert outlook.free_room == 0
    # Four runs of ten seconds each: the next of them ends in about two.
    assert outlook.predicted_wait_ms == TOOK_MS / (SLOTS + 1)
    assert outlook.tokens_per_s == 500 / 10 * SLOTS
    for number in range(6):
        put(queue, number, number, cost_tokens=1_000, **FREE)
    (outlook,) = queue.outlook([POOL], asker(50))
    # Half of what they are charged, as those did that have ended.
    assert (outlook.runs_before, outlook.tokens_before) == (6, 3_000)
    assert outlook.predicted_wait_ms == 6 * TOOK_MS / SLOTS + TOOK_MS / (SLOTS + 1)
    (place,) = queue.places([(POOL, run_of(5))])
    assert place == Place(6, int(5 * TOOK_MS / SLOTS + TOOK_MS / (SLOTS + 1)))
    # The burst has room for a paid one now.
    assert queue.outlook([POOL], asker(50, paid=True))[0].predicted_wait_ms == 0


def test_slots_of_those_who_never_wait_are_not_counted(queue: SchedulerSync, clock: Clock) -> None:
    measure(queue, clock)
    paid = {"plan": "pro", "weight": 8, "is_paid": True}
    for number in range(SLOTS):
        whose: dict[str, object] = paid if number < 2 else FREE
        put(queue, 800 + number, 800 + number, cost_tokens=1_000, **whose)
        assert queue.pop(POOL, "r", at_work=number, slots=SLOTS).entry is not None
    for number in range(6):
        put(queue, number, number, cost_tokens=1_000, **FREE)
    (outlook,) = queue.outlook([POOL], asker(50))
    assert outlook.predicted_wait_ms == 6 * TOOK_MS / 2 + TOOK_MS / (SLOTS + 1)


def test_a_plan_has_its_share_of_the_slots_whoever_holds_them(
    queue: SchedulerSync, clock: Clock
) -> None:
    measure(queue, clock)
    fill_slots(queue, plan="pro", weight=3, is_paid=True)
    put(queue, 1, 1, cost_tokens=1_000, **FREE)
    (outlook,) = queue.outlook([POOL], asker(50))
    assert outlook.predicted_wait_ms == TOOK_MS / (SLOTS / 4) + TOOK_MS / (SLOTS + 1)


def test_a_script_waits_for_itself_and_the_prediction_says_so(
    queue: SchedulerSync, clock: Clock
) -> None:
    measure(queue, clock)
    for number in range(3):
        put(queue, number, 1, cap=1, **FREE)
    assert queue.pop(POOL, "r", slots=SLOTS).entry is not None
    places = queue.places([(POOL, run_of(1)), (POOL, run_of(2))])
    assert [place and place.predicted_wait_ms for place in places] == [TOOK_MS, 2 * TOOK_MS]
    # For another there is room.
    assert queue.outlook([POOL], asker(2))[0].predicted_wait_ms == 0


def test_a_paused_pool_predicts_nothing(queue: SchedulerSync, clock: Clock) -> None:
    measure(queue, clock)
    put(queue, 1, 1, **FREE)
    queue.configure(POOL, paused=True)
    (outlook,) = queue.outlook([POOL], asker(2))
    assert (outlook.is_paused, outlook.predicted_wait_ms) == (True, None)
    assert queue.places([(POOL, run_of(1))]) == [Place(1, None)]


def test_the_outlook_says_whether_there_is_room_in_the_queue(
    queue: SchedulerSync, redis: Redis
) -> None:
    for number in range(3):
        put(queue, number, 1, **FREE)
    assert [one.room for one in queue.outlook([POOL], asker(1))] == [Room.USER_FULL]
    assert queue.outlook([POOL], asker(1))[0].user_waiting == 3
    assert [one.room for one in queue.outlook([POOL], asker(2))] == [Room.FREE]
    for number in range(10, 15):
        put(queue, number, number, **FREE)
    assert [one.room for one in queue.outlook([POOL], asker(2))] == [Room.POOL_FULL]
    redis.delete(f"{{pool:{POOL}}}:built")
    found = queue.outlook([POOL, POOL], asker(2))
    assert [(one.room, one.built) for one in found] == [(Room.NOT_BUILT, False)] * 2


def test_several_pools_are_asked_in_one_round_trip_also_where_redis_knows_no_scripts(
    queue: SchedulerSync, redis: Redis
) -> None:
    put(queue, 1, 1, **FREE)
    redis.script_flush()
    assert [one.depth for one in queue.outlook([POOL, "elsewhere", POOL], asker(2))] == [1, 0, 1]
    assert positions(queue, 1) == [1]
    redis.delete("{pool:elsewhere}:tags")


@pytest.mark.parametrize(
    ("wait_ms", "eta_s"),
    [(None, None), (0, 0), (1, 1), (9_001, 10), (10_001, 15), (59_000, 60), (61_000, 90)],
)
def test_an_eta_is_told_in_steps_that_grow(wait_ms: int | None, eta_s: int | None) -> None:
    assert Place(1, wait_ms).eta_s == eta_s
