"""The queue's scripts on a real Valkey do what the plain model does, whatever the order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from redis import Redis

from generation.scheduler import AtWork, Limits, QueueEntry, SchedulerSync
from generation.scheduler.entries import pool_keys
from tests.fair_model import CHORES, FairModel
from tests.integration.queue_room import (  # noqa: F401  # fixtures
    POOL,
    Clock,
    clear,
    redis_fixture,
    run_of,
    tickets_fixture,
    user_of,
)

REPLICAS = ("r-0", "r-1", "r-2")
SLOTS, BURST = 2, 1
PLANS = {"free": (1, False), "plus": (4, True), "pro": (8, True)}

_run = st.integers(0, 19)
_user = st.integers(0, 3)
_replica = st.sampled_from(REPLICAS)
_entry = st.builds(
    lambda run, user, plan, cost, cap, kind, conversation: QueueEntry(
        run_of(run),
        user_of(user),
        cost_tokens=cost,
        plan=plan,
        weight=PLANS[plan][0],
        is_paid=PLANS[plan][1],
        cap=cap,
        kind=kind,
        conversation=f"c_{conversation}" if conversation else "",
    ),
    _run,
    _user,
    st.sampled_from(["free", "free", "pro", "pro", "plus"]),
    st.sampled_from([0, 1, 100, 5_000, 90_000]),
    st.integers(1, 4),
    st.sampled_from([*["answer"] * 7, "chore"]),
    st.integers(0, 3),
)
_spent = st.one_of(st.none(), st.integers(0, 10_000))
_whose = st.one_of(st.just(""), _replica)
_rarely = st.integers(0, 9).map(lambda number: number == 0)
_step = st.one_of(
    *[st.tuples(st.just("enqueue"), _entry)] * 7,
    *[st.tuples(st.just("pop"), _replica, st.integers(0, SLOTS + BURST))] * 2,
    *[st.tuples(st.just("pop"), _replica, st.just(0))] * 3,
    *[st.tuples(st.just("ended"), _run, _spent, st.just(""))] * 4,
    st.tuples(st.just("ended"), _run, _spent, _whose),
    st.tuples(st.just("front"), _entry, _whose),
    st.tuples(st.just("remove"), _run),
    st.tuples(st.just("later"), st.sampled_from([1, 100, 200, 3_000, 12_000])),
    st.tuples(st.just("beat"), _replica, st.integers(0, SLOTS)),
    st.tuples(st.just("configure"), _rarely, _rarely),
    st.tuples(
        st.just("rebuild"), _rarely, st.lists(_entry, max_size=5), st.lists(_entry, max_size=3)
    ),
)


class Pair:
    """The scripts and the model, taking the same steps."""

    def __init__(self, redis: Redis) -> None:
        clear(redis)
        self.redis = redis
        self.clock = Clock()
        self.queue = SchedulerSync(redis, Limits(5, 5), self.clock)
        self.model = FairModel(now_ms=self.clock.ms)
        assert self.queue.rebuild(POOL, list)

    def take(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    def enqueue(self, entry: QueueEntry) -> None:
        result = self.queue.enqueue(entry, pool=POOL)
        assert (result.added, result.replica or "") == self.model.enqueue(entry)

    def front(self, entry: QueueEntry, replica: str) -> None:
        result = self.queue.requeue_front(entry, pool=POOL, replica=replica)
        assert (result.added, result.replica or "") == self.model.requeue_front(entry, replica)

    def pop(self, replica: str, at_work: int) -> QueueEntry | None:
        result = self.queue.pop(POOL, replica, at_work=at_work, slots=SLOTS, paid_burst=BURST)
        expected = self.model.pop(replica, at_work, SLOTS, BURST)
        assert (result.entry, result.wait_ms, result.passed_to or "") == expected
        return result.entry

    def remove(self, run: int) -> None:
        assert self.queue.remove(run_of(run), POOL) == self.model.remove(run_of(run))

    def ended(self, run: int, spent: int | None, replica: str) -> None:
        released = self.queue.ended(run_of(run), POOL, spent, replica=replica)
        assert released == self.model.ended(run_of(run), spent, replica)[0]

    def later(self, ms: int) -> None:
        self.clock.ms += ms
        self.model.now_ms = self.clock.ms

    def beat(self, replica: str, slots: int) -> None:
        beat = self.queue.beat(POOL, replica, at_work=0, slots=slots, paid_burst=BURST)
        assert (sorted(beat.lost), beat.ready) == self.model.beat(replica, slots, BURST)

    def configure(self, paused: bool, chores_paused: bool) -> None:
        self.queue.configure(POOL, paused=paused, chores_paused=chores_paused)
        self.model.is_paused, self.model.chores_paused = paused, chores_paused

    def rebuild(self, is_lost: bool, waiting: list[QueueEntry], at_work: list[QueueEntry]) -> None:
        if not is_lost:
            return
        once = {entry.run: entry for entry in at_work}.values()
        held = [(entry, REPLICAS[number % 3]) for number, entry in enumerate(once)]
        rows = [AtWork(entry, replica, self.clock.ms) for entry, replica in held]
        assert self.queue.rebuild(POOL, lambda: [*rows, *waiting])
        self.model.rebuild(waiting, held)

    def check(self) -> None:
        """Everything that the keys hold follows from the model."""
        keys, model = pool_keys(POOL), self.model
        assert {job.decode() for job in self._texts(keys.entries)} == set(model.jobs)
        assert {run.decode() for run in self._texts(keys.running)} == set(model.at_work)
        assert not model.jobs.keys() & model.at_work.keys(), "it waits, or is at work"
        assert self.queue.length_by_user(POOL) == model.waiting_by_user()
        assert self.queue.depth(POOL) == len(model.jobs)
        assert self._lines() == {line: runs for line, runs in model.lines.items() if runs}
        assert self._rotations() == {
            name: plan.rotation for name, plan in model.plans.items() if plan.rotation
        }
        assert self._busy("u:") == model.busy()
        assert self._busy("w:") == Counter(
            job.ticket_of for job in model.jobs.values() if job.ticket_of
        )
        assert self._tags() == {
            name: (plan.tag, plan.epoch, plan.slack, plan.weight, plan.is_paid)
            for name, plan in model.plans.items()
            if name != CHORES
        }

    def _texts(self, key: str) -> list[bytes]:
        found: Any = self.redis.hkeys(key)
        return list(found)

    def _lines(self) -> dict[tuple[str, str], list[str]]:
        lines: dict[tuple[str, str], list[str]] = {}
        members: Any = self.redis.zrange(pool_keys(POOL).jobs, 0, -1)
        for member in members:
            name, user, _, run = member.decode().split("|")
            lines.setdefault((name, user), []).append(run)
        return lines

    def _rotations(self) -> dict[str, list[str]]:
        rotations: dict[str, list[str]] = {}
        members: Any = self.redis.zrange(pool_keys(POOL).turns, 0, -1)
        for member in members:
            name, _, user = member.decode().split("|")
            rotations.setdefault(name, []).append(user)
        return rotations

    def _busy(self, kind: str) -> dict[str, int]:
        counts: Any = self.redis.hgetall(pool_keys(POOL).busy)
        return {
            name.decode().removeprefix(kind): int(count)
            for name, count in counts.items()
            if name.startswith(kind.encode())
        }

    def _tags(self) -> dict[str, tuple[float, int, float, int, bool]]:
        plans: Any = self.redis.hgetall(pool_keys(POOL).plans)
        found = {}
        for name, packed in plans.items():
            tag, epoch, slack, weight, paid, *_ = packed.decode().split("|")
            if name != CHORES.encode():
                found[name.decode()] = (
                    float(tag),
                    int(epoch),
                    float(slack),
                    int(weight),
                    paid == "1",
                )
        return found

    def empty(self) -> None:
        """Serve and end all that is left."""
        self.configure(False, False)
        for name in list(self.model.at_work):
            assert self.queue.ended(name, POOL)
            self.model.ended(name, None)
        self.later(1_000)
        while self.model.jobs:
            entry = self.pop("r-0", 0)
            assert entry is not None, "somebody waits, nobody is at work, and nothing is popped"
            assert self.queue.ended(entry.run, POOL, entry.cost_tokens)
            self.model.ended(entry.run, entry.cost_tokens)


pytestmark = pytest.mark.usefixtures("tickets")


@hypothesis_settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_step, min_size=40, max_size=80))
def test_the_scripts_do_what_the_model_does(redis: Redis, steps: list[tuple[Any, ...]]) -> None:
    pair = Pair(redis)
    for number, step in enumerate(steps):
        pair.take(step)
        if number % 8 == 0:
            pair.check()
    pair.empty()
    keys = pool_keys(POOL)
    # Nothing is left of those who came and went.
    gone = (keys.entries, keys.jobs, keys.turns, keys.lines, keys.users, keys.running, keys.busy)
    assert redis.exists(*gone) == 0
