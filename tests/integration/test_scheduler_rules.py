"""What the fair queue promises, one by one, with the real scripts and a clock of ours."""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Iterator

import pytest
from redis import Redis

from generation.scheduler import AtWork, Limits, QueueEntry, SchedulerSync
from generation.scheduler.entries import pool_keys
from tests.integration.queue_room import (  # noqa: F401  # fixtures
    POOL,
    Clock,
    entry_of,
    redis_fixture,
    run_of,
    tickets_fixture,
    user_of,
)

FREE = {"plan": "free", "weight": 1, "is_paid": False}
PLUS = {"plan": "plus", "weight": 4, "is_paid": True}
PRO = {"plan": "pro", "weight": 8, "is_paid": True}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(redis: Redis, tickets: list[object], clock: Clock) -> SchedulerSync:
    made = SchedulerSync(redis, Limits(per_pool=100_000, per_user=100), clock)
    assert made.rebuild(POOL, list)
    return made


@pytest.fixture
def numbers() -> Iterator[int]:
    return itertools.count(1)


def put(queue: SchedulerSync, entry: QueueEntry) -> QueueEntry:
    assert queue.enqueue(entry, pool=POOL).added
    return entry


def user_number(entry: QueueEntry) -> int:
    return int(entry.user.removeprefix("u_"), 16)


def served(queue: SchedulerSync, times: int, **room: int) -> list[str | None]:
    """The users of the next runs, each of which ends at once and costs what was charged."""
    users = []
    for _ in range(times):
        entry = queue.pop(POOL, "r", **room).entry
        users.append(entry.user if entry else None)
        if entry is not None:
            assert queue.ended(entry.run, POOL, entry.cost_tokens)
    return users


# --- between plans --------------------------------------------------------------------------------


def test_plans_get_their_shares_in_tokens_that_were_used(
    queue: SchedulerSync, numbers: Iterator[int]
) -> None:
    """Eight runs at once; what is charged is one to ten times of what is used in the end."""
    chance = random.Random(7)
    plans = [FREE, PLUS, PRO]
    used: Counter[str] = Counter()
    at_work: deque[QueueEntry] = deque()

    def fill(plan: dict[str, object], user: int) -> None:
        cost = chance.randint(200, 4_000)
        put(queue, entry_of(next(numbers), user, cost_tokens=cost, **plan))

    of_plan = {str(plan["plan"]): index for index, plan in enumerate(plans)}
    for (index, plan), user in itertools.product(enumerate(plans), range(5)):
        for _ in range(3):
            fill(plan, 10 * index + user)
    for _ in range(4_000):
        if len(at_work) == 8:
            ended = at_work.popleft()
            spent = chance.randint(ended.cost_tokens // 10, ended.cost_tokens)
            used[ended.plan] += spent
            assert queue.ended(ended.run, POOL, spent)
        entry = queue.pop(POOL, "r", at_work=len(at_work), slots=8).entry
        assert entry is not None
        at_work.append(entry)
        fill(plans[of_plan[entry.plan]], user_number(entry))
    total = sum(used.values())
    for plan in plans:
        share = used[str(plan["plan"])] / total
        assert share == pytest.approx(int(str(plan["weight"])) / 13, abs=0.02)


def test_a_paid_newcomer_goes_before_a_free_crowd(queue: SchedulerSync) -> None:
    for number in range(100):
        put(queue, entry_of(number, number, cost_tokens=1_000, **FREE))
    assert served(queue, 30) == [user_of(number) for number in range(30)]
    put(queue, entry_of(500, 500, **PRO))
    put(queue, entry_of(501, 501, **PLUS))
    assert served(queue, 3) == [user_of(500), user_of(501), user_of(30)]


def test_what_others_saved_does_not_hold_a_newcomer_up(queue: SchedulerSync) -> None:
    """Runs that end cheaper than charged give their plan something back. That moves the virtual
    time back too, or a paid newcomer would wait until the crowd has come to where it once was."""
    for number in range(100):
        put(queue, entry_of(number, number, cost_tokens=8_000, **FREE))
    popped = [queue.pop(POOL, "r", slots=8).entry for _ in range(8)]
    for entry in popped:
        assert entry is not None
        queue.ended(entry.run, POOL, 10)
    put(queue, entry_of(500, 500, cost_tokens=8_000, **PRO))
    assert served(queue, 1) == [user_of(500)]


def test_nobody_saves_up_while_they_are_away(queue: SchedulerSync, numbers: Iterator[int]) -> None:
    for _ in range(50):
        put(queue, entry_of(next(numbers), 1, cost_tokens=1_000, **PLUS))
    served(queue, 40)
    # Pro has had nothing for all that time, and gets its share from now on, no more.
    for _ in range(50):
        put(queue, entry_of(next(numbers), 2, cost_tokens=1_000, **PRO))
    assert Counter(served(queue, 24))[user_of(2)] == pytest.approx(16, abs=1)


@pytest.mark.parametrize("cost_tokens", [1_000_000, 100_000])
def test_an_old_refund_gives_no_credit_after_an_idle_time(
    queue: SchedulerSync, numbers: Iterator[int], cost_tokens: int
) -> None:
    """Whether the others have gone past what it was charged by then, or not."""
    put(queue, entry_of(next(numbers), 1, cost_tokens=cost_tokens, **PRO))
    expensive = queue.pop(POOL, "r").entry
    assert expensive is not None
    for _ in range(300):
        put(queue, entry_of(next(numbers), 2, cost_tokens=1_000, **PLUS))
    served(queue, 250)
    for _ in range(30):
        put(queue, entry_of(next(numbers), 3, cost_tokens=1_000, **PRO))
    served(queue, 1)
    queue.ended(expensive.run, POOL, 0)
    # With all of the refund pro would be ahead by what plus was served meanwhile.
    assert Counter(served(queue, 24))[user_of(2)] == pytest.approx(8, abs=1)


def test_a_new_weight_counts_from_the_next_run_on(
    queue: SchedulerSync, numbers: Iterator[int]
) -> None:
    for _ in range(40):
        put(queue, entry_of(next(numbers), 1, **FREE))
        put(queue, entry_of(next(numbers), 2, **PLUS))
    put(queue, entry_of(next(numbers), 3, **{**FREE, "weight": 4}))
    counts = Counter(served(queue, 40))
    assert counts[user_of(1)] + counts[user_of(3)] == pytest.approx(counts[user_of(2)], abs=2)


# --- inside a plan --------------------------------------------------------------------------------


def test_fifty_requests_delay_a_neighbour_by_one(queue: SchedulerSync) -> None:
    for number in range(50):
        put(queue, entry_of(number, 1, **FREE))
    assert served(queue, 5) == [user_of(1)] * 5
    put(queue, entry_of(100, 2, **FREE))
    put(queue, entry_of(101, 2, **FREE))
    assert served(queue, 4) == [user_of(1), user_of(2), user_of(1), user_of(2)]


def test_endless_newcomers_starve_nobody(queue: SchedulerSync, numbers: Iterator[int]) -> None:
    """Whoever comes stands behind those who are there, also behind one who was just served."""
    for _ in range(3):
        put(queue, entry_of(next(numbers), 1, **FREE))
    users: list[str | None] = []
    for newcomer in range(100, 140):
        put(queue, entry_of(next(numbers), newcomer, **FREE))
        users += served(queue, 1)
    assert [place for place, user in enumerate(users) if user == user_of(1)] == [0, 2, 5]


def test_one_user_is_one_whatever_the_device(queue: SchedulerSync) -> None:
    for number in range(6):
        put(queue, entry_of(number, 1, conversation=f"c_{number}", **FREE))
    put(queue, entry_of(10, 2, **FREE))
    assert served(queue, 2) == [user_of(1), user_of(2)]


# --- how many at once -----------------------------------------------------------------------------


def test_a_user_at_their_cap_is_passed_over_until_a_run_ends(queue: SchedulerSync) -> None:
    for number in range(5):
        put(queue, entry_of(number, 1, cap=2, **FREE))
    put(queue, entry_of(10, 2, cap=2, **FREE))
    popped = [queue.pop(POOL, "r", slots=9).entry for _ in range(4)]
    assert [entry.run if entry else None for entry in popped] == [
        run_of(0),
        run_of(10),
        run_of(1),
        None,
    ]
    assert queue.ended(run_of(0), POOL, 5)
    assert not queue.ended(run_of(0), POOL, 5), "once"
    entry = queue.pop(POOL, "r", slots=9).entry
    assert entry is not None
    assert entry.run == run_of(2)
    assert queue.pop(POOL, "r", slots=9).entry is None


def test_the_ticket_that_found_a_user_at_their_cap_is_published_again(
    queue: SchedulerSync, tickets: list[tuple[str, str | None]]
) -> None:
    for number in range(3):
        put(queue, entry_of(number, 1, cap=1, **FREE))
    assert queue.pop(POOL, "r", slots=9).entry is not None
    assert queue.pop(POOL, "r", slots=9).entry is None
    tickets.clear()
    queue.ended(run_of(0), POOL, 5, replica="r")
    assert tickets == [(POOL, "r")]
    assert queue.pop(POOL, "r", slots=9).entry is not None
    tickets.clear()
    queue.ended(run_of(1), POOL, 5, replica="r")
    assert tickets == [], "its own ticket has not been spent yet"


def test_a_ticket_that_is_owed_goes_to_others_where_its_replica_begins_none(
    queue: SchedulerSync, tickets: list[tuple[str, str | None]]
) -> None:
    """Nobody would take it from a queue of its own."""
    for number in range(3):
        put(queue, entry_of(number, 1, cap=1, **FREE))
    assert queue.pop(POOL, "r", slots=9).entry is not None
    assert queue.pop(POOL, "r", slots=9).entry is None
    tickets.clear()
    queue.ended(run_of(0), POOL, 5, replica="r", is_open=False)
    assert tickets == [(POOL, None)]


def test_a_cap_counts_runs_of_all_the_users_plans(queue: SchedulerSync) -> None:
    put(queue, entry_of(0, 1, cap=1, **FREE))
    put(queue, entry_of(1, 1, cap=1, **PRO))
    assert queue.pop(POOL, "r", slots=9).entry is not None
    assert queue.pop(POOL, "r", slots=9).entry is None
    queue.ended(run_of(1), POOL, 5)
    assert queue.pop(POOL, "r", slots=9).entry is not None


def test_free_runs_begin_below_the_slots_and_paid_ones_below_the_burst_too(
    queue: SchedulerSync,
) -> None:
    put(queue, entry_of(0, 1, **FREE))
    assert queue.pop(POOL, "r", at_work=2, slots=2, paid_burst=1).entry is None
    put(queue, entry_of(1, 2, **PRO))
    assert queue.pop(POOL, "r", at_work=3, slots=2, paid_burst=1).entry is None
    # The free one stands before it by its tag; that does not close the burst.
    served(queue, 0)
    entry = queue.pop(POOL, "r", at_work=2, slots=2, paid_burst=1).entry
    assert entry is not None
    assert entry.run == run_of(1)
    assert queue.pop(POOL, "r", at_work=2, slots=2, paid_burst=1).entry is None
    assert queue.pop(POOL, "r", at_work=1, slots=2, paid_burst=1).entry is not None


def test_a_free_newcomer_never_closes_the_burst(
    queue: SchedulerSync, numbers: Iterator[int]
) -> None:
    """Paid runs have been served for long; their tag is ahead of a newcomer's by one run."""
    room = {"at_work": 2, "slots": 2, "paid_burst": 1}
    for _ in range(40):
        put(queue, entry_of(next(numbers), 1, cost_tokens=30_000, **PRO))
    assert served(queue, 20, **room) == [user_of(1)] * 20
    put(queue, entry_of(next(numbers), 2, cost_tokens=100, **FREE))
    assert served(queue, 10, **room) == [user_of(1)] * 10


def test_free_runs_move_while_paid_ones_fill_slots_and_burst(
    queue: SchedulerSync, numbers: Iterator[int]
) -> None:
    """Each paid run that ends leaves a place in the burst, where only a paid one may follow:
    without an end to that no slot would ever come free. And free ones get their share, no more."""
    slots, burst = 4, 2
    used: Counter[str] = Counter()
    at_work: deque[QueueEntry] = deque()
    for _ in range(30):
        put(queue, entry_of(next(numbers), 1, cost_tokens=2_000, **PRO))
        put(queue, entry_of(next(numbers), 2, cost_tokens=2_000, **FREE))
    for _ in range(3_000):
        while True:
            entry = queue.pop(POOL, "r", at_work=len(at_work), slots=slots, paid_burst=burst).entry
            if entry is None:
                break
            assert entry.is_paid or len(at_work) < slots
            at_work.append(entry)
            plan = PRO if entry.is_paid else FREE
            put(
                queue, entry_of(next(numbers), 1 if entry.is_paid else 2, cost_tokens=2_000, **plan)
            )
        assert len(at_work) >= slots, "somebody waits, and a slot is idle"
        ended = at_work.popleft()
        used[ended.plan] += 1
        queue.ended(ended.run, POOL, ended.cost_tokens)
    assert used["free"] / 3_000 == pytest.approx(1 / 9, abs=0.02)


# --- chores, pauses -------------------------------------------------------------------------------


def test_chores_come_when_nobody_else_could_be_served(queue: SchedulerSync) -> None:
    put(queue, entry_of(0, 9, kind="chore"))
    put(queue, entry_of(1, 1, cap=1, **FREE))
    put(queue, entry_of(2, 1, cap=1, **FREE))
    assert served(queue, 1) == [user_of(1)]
    popped = queue.pop(POOL, "r", slots=9).entry
    assert popped is not None
    assert popped.run == run_of(2)
    # Nobody who waits could be served; in the burst there is no place for chores.
    put(queue, entry_of(3, 1, cap=1, **FREE))
    assert queue.pop(POOL, "r", at_work=1, slots=1, paid_burst=1).entry is None
    queue.configure(POOL, chores_paused=True)
    assert queue.pop(POOL, "r", slots=9).entry is None
    queue.configure(POOL, chores_paused=False)
    chore = queue.pop(POOL, "r", slots=9).entry
    assert chore is not None
    assert (chore.run, chore.kind) == (run_of(0), "chore")


def test_a_chore_is_none_of_its_users_runs(queue: SchedulerSync) -> None:
    put(queue, entry_of(0, 1, kind="chore", cap=1))
    assert queue.pop(POOL, "r", slots=9).entry is not None
    put(queue, entry_of(1, 1, cap=1, **FREE))
    assert queue.pop(POOL, "r", slots=9).entry is not None
    assert queue.ended(run_of(0), POOL, 5)
    assert queue.ended(run_of(1), POOL, 5)


def test_a_paused_pool_begins_nothing_and_takes_what_comes(queue: SchedulerSync) -> None:
    put(queue, entry_of(0, 1, **FREE))
    queue.configure(POOL, paused=True)
    put(queue, entry_of(1, 2, **PRO))
    assert queue.pop(POOL, "r", slots=9).entry is None
    assert queue.beat(POOL, "r", at_work=0, slots=9, paid_burst=0).waiting == 0
    # Nor after a rebuild, before anybody could have said so again.
    assert queue.rebuild(POOL, lambda: [entry_of(1, 2, **PRO)])
    assert queue.pop(POOL, "r", slots=9).entry is None
    queue.configure(POOL, paused=False)
    assert queue.pop(POOL, "r", slots=9).entry is not None


# --- claims that do not come ----------------------------------------------------------------------


def test_what_was_popped_a_moment_ago_is_not_queued_again(
    queue: SchedulerSync, clock: Clock
) -> None:
    entry = put(queue, entry_of(0, 1, cap=1, **FREE))
    assert queue.lost([run_of(0), run_of(7)], POOL) == [run_of(7)]
    assert queue.pop(POOL, "r-1", slots=9).entry == entry
    assert queue.lost([run_of(0)], POOL) == []
    assert not queue.enqueue(entry, pool=POOL).added
    clock.ms += 10_000
    assert queue.lost([run_of(0)], POOL) == [run_of(0)]
    assert queue.enqueue(entry, pool=POOL).added
    # Its place is free again, so that a second one at once is not too many.
    assert queue.pop(POOL, "r-2", slots=9).entry == entry
    assert not queue.ended(run_of(0), POOL, 0, replica="r-1"), "the claim that came too late"
    assert [[record.replica for record in part] for part in queue.records(POOL)] == [["r-2"]]
    assert queue.ended(run_of(0), POOL, 0, replica="r-2")


def test_what_is_given_back_is_the_next_of_all_and_was_charged_nothing(
    queue: SchedulerSync,
) -> None:
    for number in range(3):
        put(queue, entry_of(number, 1, cap=1, cost_tokens=10_000, **FREE))
        put(queue, entry_of(10 + number, 2, cap=1, cost_tokens=10_000, **FREE))
    first = queue.pop(POOL, "r", slots=9).entry
    assert first is not None
    assert queue.requeue_front(first, pool=POOL, replica="r").added
    assert not queue.requeue_front(first, pool=POOL, replica="r").added
    assert queue.position(first.run, POOL) == 1
    assert queue.pop(POOL, "r", slots=9).entry == first
    put(queue, entry_of(20, 3, cost_tokens=10_000, **PLUS))
    # Charged twice, free would be behind by two runs.
    assert served(queue, 2) == [user_of(3), user_of(2)]


def test_who_gives_back_late_takes_it_from_no_other(queue: SchedulerSync, clock: Clock) -> None:
    entry = put(queue, entry_of(0, 1, cap=1, **FREE))
    assert queue.pop(POOL, "r-1", slots=9).entry == entry
    clock.ms += 10_000
    assert queue.enqueue(entry, pool=POOL).added
    assert queue.pop(POOL, "r-2", slots=9).entry == entry
    assert not queue.requeue_front(entry, pool=POOL, replica="r-1").added
    assert queue.position(entry.run, POOL) is None
    assert [[record.replica for record in part] for part in queue.records(POOL)] == [["r-2"]]
    # The claim never came: it waits again, and holds no place of its user's.
    clock.ms += 10_000
    assert queue.requeue_front(entry, pool=POOL, replica="r-1").added
    assert list(queue.records(POOL)) == [[]]
    assert queue.at_work_of([entry.user], POOL) == [0]
    assert queue.pop(POOL, "r-1", slots=9).entry == entry


@pytest.mark.parametrize("replica", ["", "r-1"])
def test_a_run_that_waits_and_is_at_work_is_at_work_no_more_when_it_is_given_back(
    queue: SchedulerSync, redis: Redis, replica: str
) -> None:
    """As an older version of the scripts may have left it."""
    entry = put(queue, entry_of(0, 1, cap=1, **FREE))
    keys = pool_keys(POOL)
    redis.hset(keys.running, entry.run, f"{entry.user}|free|100|1|r-1|1")
    redis.hset(keys.busy, mapping={f"u:{entry.user}": 1, "r:r-1": 1, "c:free": 1})
    assert not queue.requeue_front(entry, pool=POOL, replica="r-2").added
    assert queue.at_work_of([entry.user], POOL) == [1]
    assert not queue.requeue_front(entry, pool=POOL, replica=replica).added
    assert queue.at_work_of([entry.user], POOL) == [0]
    assert queue.pop(POOL, "r", slots=9).entry == entry


def test_a_rebuild_counts_those_at_work(queue: SchedulerSync, clock: Clock) -> None:
    running = AtWork(entry_of(0, 1, cap=1, **FREE), "r-1", clock.ms)
    waiting = [entry_of(1, 1, cap=1, **FREE), entry_of(2, 2, cap=1, **FREE)]
    assert queue.rebuild(POOL, lambda: [running, *waiting])
    assert queue.pop(POOL, "r-2", slots=9).entry == waiting[1]
    assert queue.pop(POOL, "r-2", slots=9).entry is None
    # It was never charged here: its end gives its plan nothing.
    assert queue.ended(run_of(0), POOL, 0, replica="r-1")
    assert queue.pop(POOL, "r-2", slots=9).entry == waiting[0]


# --- locality -------------------------------------------------------------------------------------


def announce(queue: SchedulerSync, *names: str, slots: int = 2) -> None:
    for name in names:
        queue.beat(POOL, name, at_work=0, slots=slots, paid_burst=0)


def home_of(queue: SchedulerSync, conversation: str) -> str:
    """Where this conversation's turns go."""
    replica = queue.enqueue(entry_of(999, 999, conversation=conversation), pool=POOL).replica
    queue.remove(run_of(999), POOL)
    assert replica is not None
    return replica


def test_a_conversations_turns_go_to_one_replica_and_few_move_when_one_goes(
    queue: SchedulerSync, clock: Clock
) -> None:
    announce(queue, "r-1", "r-2", "r-3")
    names = [f"c_{number}" for number in range(60)]
    before = {name: home_of(queue, name) for name in names}
    assert before == {name: home_of(queue, name) for name in names}
    assert all(10 <= count <= 30 for count in Counter(before.values()).values())
    queue.leave(POOL, "r-3")
    after = {name: home_of(queue, name) for name in names}
    assert all(after[name] == home for name, home in before.items() if home != "r-3")


def test_a_turn_waits_for_its_replica_and_not_for_long(
    queue: SchedulerSync, clock: Clock, tickets: list[tuple[str, str | None]]
) -> None:
    announce(queue, "r-1", "r-2")
    home = home_of(queue, "c_1")
    other = "r-2" if home == "r-1" else "r-1"
    tickets.clear()
    entry = put(queue, entry_of(1, 1, conversation="c_1", **FREE))
    assert tickets == [(POOL, home)]
    clock.ms += 100
    popped = queue.pop(POOL, other, slots=2)
    assert (popped.entry, popped.wait_ms) == (None, 50)
    # Whoever prefers no other is served at once.
    assert queue.enqueue(entry_of(2, 2, **FREE), pool=POOL).added
    assert served(queue, 1) == [user_of(2)]
    clock.ms += 50
    assert queue.pop(POOL, other, slots=2).entry == entry


def test_nobody_waits_for_a_replica_that_is_full_or_silent(
    queue: SchedulerSync, clock: Clock
) -> None:
    announce(queue, "r-1", "r-2", slots=1)
    home = home_of(queue, "c_1")
    other = "r-2" if home == "r-1" else "r-1"
    first = put(queue, entry_of(1, 1, conversation="c_1", **FREE))
    assert queue.pop(POOL, home, slots=1).entry == first
    second = entry_of(2, 2, conversation="c_1", **FREE)
    assert queue.enqueue(second, pool=POOL).replica == other
    assert queue.pop(POOL, other, slots=1).entry == second
    queue.ended(run_of(1), POOL, 5)
    clock.ms += 3_001
    third = entry_of(3, 3, conversation="c_1", **FREE)
    assert queue.enqueue(third, pool=POOL).replica is None
    assert queue.pop(POOL, other, slots=1).entry == third


def test_a_replica_is_sent_no_more_tickets_than_it_has_room_for(queue: SchedulerSync) -> None:
    announce(queue, "r-1", slots=2)
    sent = [
        queue.enqueue(entry_of(number, number, conversation="c_1"), pool=POOL).replica
        for number in range(4)
    ]
    assert sent == ["r-1", "r-1", None, None]
    assert queue.remove(run_of(0), POOL)
    assert queue.enqueue(entry_of(9, 9, conversation="c_1"), pool=POOL).replica == "r-1"


def test_one_users_long_line_takes_nobodys_home_away(queue: SchedulerSync) -> None:
    """Of those who wait for their turn there is a ticket each, and it is anybody's."""
    announce(queue, "r-1", "r-2", slots=4)
    home = home_of(queue, "c_1")
    sent = [
        queue.enqueue(entry_of(number, 1, conversation="c_1", **FREE), pool=POOL).replica
        for number in range(20)
    ]
    assert sent == [home, *[None] * 19]
    # At their cap, the next one waits for an end, wherever that is.
    assert queue.pop(POOL, home, slots=4).entry is not None
    capped = entry_of(50, 2, conversation="c_1", cap=1, **FREE)
    assert queue.enqueue(capped, pool=POOL).replica == home
    assert queue.remove(capped.run, POOL)
    at_work = AtWork(entry_of(60, 2, cap=1, **FREE), home, 1)
    waiting = [entry_of(100 + number, 100 + number, conversation="c_1") for number in range(8)]
    # Nor do those for whom a rebuild publishes no tickets.
    assert queue.rebuild(POOL, lambda: [at_work, *waiting])
    assert queue.enqueue(capped, pool=POOL).replica is None
    assert queue.enqueue(entry_of(70, 3, conversation="c_1", **FREE), pool=POOL).replica == home


def test_a_run_without_a_home_or_with_a_full_one_goes_where_room_is(queue: SchedulerSync) -> None:
    """Anybody's ticket may be taken by an idle thread of the burst, which has no use for it."""
    queue.beat(POOL, "r-1", at_work=0, slots=1, paid_burst=1)
    queue.beat(POOL, "r-2", at_work=0, slots=2, paid_burst=0)
    sent = [
        queue.enqueue(entry_of(number, number, **FREE), pool=POOL).replica for number in range(4)
    ]
    assert sent == ["r-2", "r-1", "r-2", None]
    assert queue.enqueue(entry_of(9, 9, **PRO), pool=POOL).replica == "r-1", "its burst"


def test_what_is_given_back_goes_to_another_that_has_room(
    queue: SchedulerSync, tickets: list[tuple[str, str | None]]
) -> None:
    announce(queue, "r-1", "r-2", slots=1)
    entry = put(queue, entry_of(1, 1, **FREE))
    assert queue.pop(POOL, "r-1", slots=1).entry == entry
    tickets.clear()
    assert queue.requeue_front(entry, pool=POOL, replica="r-1").replica == "r-2"
    assert tickets == [(POOL, "r-2")]
    assert queue.pop(POOL, "r-2", slots=1).entry == entry
    queue.leave(POOL, "r-1")
    assert queue.requeue_front(entry, pool=POOL, replica="r-2").replica is None


def test_a_ticket_that_came_where_no_slot_is_goes_on_to_one(
    queue: SchedulerSync, tickets: list[tuple[str, str | None]]
) -> None:
    """An idle thread of the burst took it."""
    for number in range(3):
        put(queue, entry_of(number, number, **FREE))
    announce(queue, "r-2", "r-3", slots=1)
    room = {"at_work": 2, "slots": 2, "paid_burst": 1}
    tickets.clear()
    # One each, and no more than there is room: the third waits for an end.
    popped = [queue.pop(POOL, "r-1", **room) for _ in range(3)]
    assert [(one.entry, one.wait_ms) for one in popped] == [(None, 0)] * 3
    assert [one.passed_to for one in popped] == ["r-2", "r-3", None]
    assert tickets == [(POOL, "r-2"), (POOL, "r-3")]
    assert queue.pop(POOL, "r-2", slots=1).entry is not None
    tickets.clear()
    queue.ended(run_of(0), POOL, 5, replica="r-2")
    assert tickets == [(POOL, "r-2")]


def test_chores_go_on_to_a_slot_too_and_nothing_does_while_it_is_paused(
    queue: SchedulerSync,
) -> None:
    put(queue, entry_of(0, 1, kind="chore", is_paid=True))
    queue.beat(POOL, "r-2", at_work=0, slots=0, paid_burst=1)
    room = {"at_work": 2, "slots": 2, "paid_burst": 1}
    assert queue.pop(POOL, "r-1", **room).passed_to is None, "the burst does no chores"
    announce(queue, "r-2", slots=1)
    for flags in ({"paused": True}, {"chores_paused": True}):
        queue.configure(POOL, **flags)
        assert queue.pop(POOL, "r-1", **room).passed_to is None
        queue.configure(POOL, paused=False, chores_paused=False)
    assert queue.pop(POOL, "r-2", **room).passed_to is None, "not to itself"
    assert queue.pop(POOL, "r-1", **room).passed_to == "r-2"


def test_a_replica_that_is_silent_for_long_is_forgotten_and_named_once(
    queue: SchedulerSync, clock: Clock
) -> None:
    announce(queue, "r-1")
    clock.ms += 15_001
    beat = queue.beat(POOL, "r-2", at_work=0, slots=1, paid_burst=0)
    assert beat.lost == ("r-1",)
    assert queue.beat(POOL, "r-2", at_work=0, slots=1, paid_burst=0).lost == ()


def test_lost_replicas_are_looked_for_every_three_seconds(
    queue: SchedulerSync, clock: Clock
) -> None:
    announce(queue, "r-1")
    clock.ms += 14_000
    announce(queue, "r-2")
    for ms, lost in ((1_001, ()), (1_998, ()), (1, ("r-1",))):
        clock.ms += ms
        assert queue.beat(POOL, "r-2", at_work=0, slots=1, paid_burst=0).lost == lost
    # A clock that was set back puts nothing off.
    announce(queue, "r-3")
    clock.ms -= 60_000
    announce(queue, "r-2", "r-3", "r-4")
    clock.ms += 15_001
    assert queue.beat(POOL, "r-2", at_work=0, slots=1, paid_burst=0).lost == ("r-3", "r-4")


def test_a_beat_tells_how_many_a_slot_could_serve(queue: SchedulerSync) -> None:
    """Free answers end where nobody watches them and others wait: not for a chore, not for somebody
    who waits for an end of their own, not while the pool begins nothing."""

    def ready() -> int:
        return queue.beat(POOL, "r", at_work=1, slots=1, paid_burst=0).ready

    put(queue, entry_of(0, 1, cap=1, **FREE))
    assert queue.pop(POOL, "r", slots=1).entry is not None
    put(queue, entry_of(1, 1, cap=1, **FREE))
    put(queue, entry_of(2, 2, kind="chore"))
    assert ready() == 0
    for number in range(3):
        put(queue, entry_of(10 + number, 3, **FREE))
    put(queue, entry_of(20, 4, **PRO))
    assert ready() == 2
    queue.configure(POOL, paused=True)
    assert ready() == 0
