"""The counters' scripts on a real Valkey, held against a plain Python model of them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from django.conf import settings
from hypothesis import assume
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from accounts.ids import new_id
from quotas.counters import (
    INDEX,
    Counters,
    EndedRun,
    Held,
    Limits,
    NotBuilt,
    OpenRun,
    Refused,
    keys,
)
from quotas.limits import MINUTE_MS, level_of
from tests.integration.quota_model import ModelCounters

START_MS = 1_800_000_000_000
WINDOW_S = 120
MODELS = ("big", "small")
FREE = Limits(WINDOW_S, 100, 6, {"big": 2, "small": 3})


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        yield client
        client.flushdb()


@pytest.fixture
def store(redis: Redis) -> Counters:
    return Counters(redis, START_MS)


@pytest.fixture
def user() -> uuid.UUID:
    return new_id()


def build(store: Counters, user: uuid.UUID, limits: Limits = FREE) -> None:
    answer = store.look(user, limits)
    assert isinstance(answer, NotBuilt)
    assert store.rebuild(user, answer.name, limits, (0, 0), [], [])


def reserve(
    store: Counters,
    user: uuid.UUID,
    *,
    costs: Mapping[str, int] | None = None,
    twin: str = "",
    limits: Limits = FREE,
    run: uuid.UUID | None = None,
) -> Any:
    return store.reserve(user, run or new_id(), twin, limits, costs or {"big": 10})


def later(store: Counters, ms: int) -> None:
    store.clock_ms = (store.clock_ms or 0) + ms


# --- single promises ------------------------------------------------------------------------------


def test_a_full_window_says_when_its_oldest_message_leaves(
    store: Counters, user: uuid.UUID
) -> None:
    build(store, user)
    assert isinstance(reserve(store, user), Held)
    later(store, 7_000)
    held = reserve(store, user)
    assert held.standing.messages["big"].remaining == 0
    later(store, 1_000)
    refused = reserve(store, user)
    assert isinstance(refused, Refused)
    assert (refused.limit, refused.wait_ms) == ("messages", WINDOW_S * 1_000 - 8_000)
    assert refused.standing.messages["big"].reset_ms == WINDOW_S * 1_000 - 1_000
    later(store, refused.wait_ms - 1)
    assert isinstance(reserve(store, user), Refused)
    later(store, 1)
    assert isinstance(reserve(store, user), Held)


def test_a_smaller_plan_waits_for_more_than_one_message(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    reserve(store, user)
    later(store, 5_000)
    reserve(store, user)
    refused = reserve(store, user, limits=Limits(WINDOW_S, 100, 6, {"big": 1}))
    assert refused.wait_ms == WINDOW_S * 1_000, "the second one, too, must be out of the window"


def test_a_refusal_holds_nothing(store: Counters, redis: Redis, user: uuid.UUID) -> None:
    build(store, user)
    reserve(store, user, costs={"big": 95})
    before = {name: redis.dump(name) for name in keys(user, "messages", "open", "twins")}
    refused = reserve(store, user, costs={"big": 10})
    assert (refused.limit, refused.wait_ms) == ("tokens", 3_000)
    assert {name: redis.dump(name) for name in before} == before


def test_a_first_request_is_always_admitted(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    held = reserve(store, user, costs={"big": 10**6})
    assert isinstance(held, Held)
    assert held.standing.tokens is not None
    assert (held.standing.tokens.remaining, held.standing.tokens.reset_ms) == (0, MINUTE_MS)
    assert store.settle(user, held.run_id, tokens=250, is_answered=True)
    standing = store.look(user, FREE)
    assert not isinstance(standing, NotBuilt)
    assert standing.tokens is not None
    assert (standing.tokens.used, standing.tokens.reset_ms) == (250, 150_000)


def test_no_answer_is_not_charged(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    held = reserve(store, user, costs={"big": 60})
    assert store.settle(user, held.run_id, tokens=60, is_answered=False)
    standing = store.look(user, FREE)
    assert not isinstance(standing, NotBuilt)
    assert standing.tokens is not None
    assert standing.requests is not None
    assert (standing.messages["big"].used, standing.tokens.used) == (0, 0)
    assert standing.requests.used == 1, "it was a request all the same"


def test_the_smaller_model_answers_where_the_messages_are_used_up(
    store: Counters, user: uuid.UUID
) -> None:
    build(store, user)
    both = {"big": 30, "small": 5}
    assert [reserve(store, user, costs=both).model for _ in range(5)] == [
        *["big"] * 2,
        *["small"] * 3,
    ]
    refused = reserve(store, user, costs=both)
    assert refused.limit == "messages"


def test_the_smaller_model_is_no_way_around_the_tokens(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    reserve(store, user, costs={"big": 90})
    refused = reserve(store, user, costs={"big": 30, "small": 5})
    assert isinstance(refused, Refused)
    assert refused.limit == "tokens"


def test_a_twin_gets_the_run_and_is_never_refused(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    first = reserve(store, user, twin="a")
    reserve(store, user)
    twin = reserve(store, user, twin="a")
    assert (twin.run_id, twin.joined) == (first.run_id, True)
    assert isinstance(reserve(store, user, twin="b"), Refused), "the same key with another body"


def test_the_last_holder_releases(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    first = reserve(store, user, twin="a")
    twin = reserve(store, user, twin="a")
    assert not store.release(user, first.run_id), "its twin still goes to the transaction"
    assert store.open_runs([user]) == [[first.run_id]]
    assert store.release(user, twin.run_id)
    again = reserve(store, user, twin="a")
    assert again.run_id != first.run_id
    assert not again.joined


def test_a_call_that_is_repeated_holds_once(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    run = new_id()
    for _ in range(3):
        held = reserve(store, user, run=run, twin="a")
        assert (held.run_id, held.joined) == (run, False)
        assert held.standing.messages["big"].used == 1
    assert store.release(user, run)


def test_one_of_twenty_at_once(redis: Redis, user: uuid.UUID) -> None:
    store = Counters(redis)
    limits = Limits(WINDOW_S, 1_000, 100, {"big": 1})
    build(store, user, limits)
    gate = threading.Barrier(20)

    def one(_: int) -> object:
        gate.wait()
        return reserve(store, user, limits=limits)

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(one, range(20)))
    assert sum(isinstance(answer, Held) for answer in answers) == 1
    assert sum(isinstance(answer, Refused) for answer in answers) == 19


# --- not built ------------------------------------------------------------------------------------


def test_counters_of_another_server_or_plan_are_not_trusted(
    store: Counters, redis: Redis, user: uuid.UUID
) -> None:
    build(store, user)
    others = [
        Limits(WINDOW_S + 1, 100, 6, FREE.messages),
        Limits(WINDOW_S, None, 6, FREE.messages),
        Limits(WINDOW_S, 100, None, FREE.messages),
    ]
    for limits in others:
        assert isinstance(reserve(store, user, limits=limits), NotBuilt)
        assert isinstance(reserve(store, user), NotBuilt), "and not by who knew the old plan"
        build(store, user)
    more = Limits(WINDOW_S, 200, 7, {"big": 9})
    assert isinstance(reserve(store, user, limits=more), Held), "numbers may change at any time"
    built = keys(user, "built")[0]
    marker = cast("bytes", redis.get(built))
    redis.set(built, marker.replace(b"|", b"f|", 1))
    assert isinstance(reserve(store, user), NotBuilt)


def test_what_was_read_too_early_is_not_written(store: Counters, user: uuid.UUID) -> None:
    """Read, then overtaken by another who builds and by a send: its own write changes nothing."""
    early = store.look(user, FREE)
    late = store.look(user, FREE)
    assert isinstance(early, NotBuilt)
    assert early == late, "both may write; the first one does"
    assert store.rebuild(user, late.name, FREE, (0, 0), [], [])
    held = reserve(store, user)
    assert not store.rebuild(user, early.name, FREE, (0, 0), [], [])
    assert store.open_runs([user]) == [[held.run_id]]
    # The plan changes, too: what was read before that is older than the reservation.
    other = store.look(user, Limits(60, 100, 6, FREE.messages))
    assert isinstance(other, NotBuilt)
    assert not store.rebuild(user, early.name, FREE, (0, 0), [], [])


def test_a_reservation_whose_row_is_not_there_yet_outlives_a_rebuild(
    store: Counters, redis: Redis, user: uuid.UUID
) -> None:
    build(store, user)
    held, ended, live = (reserve(store, user, costs={"small": 10}) for _ in range(3))
    redis.delete(keys(user, "built")[0])
    answer = store.look(user, FREE)
    assert isinstance(answer, NotBuilt)
    assert store.rebuild(
        user,
        answer.name,
        FREE,
        (20 * MINUTE_MS, 2 * MINUTE_MS),
        [EndedRun(ended.run_id, "small", 0)],
        [OpenRun(live.run_id, "small", 0, 10, 1)],
    )
    assert sorted(store.open_runs([user])[0]) == sorted([held.run_id, live.run_id])
    standing = store.look(user, FREE)
    assert not isinstance(standing, NotBuilt)
    assert standing.tokens is not None
    assert standing.requests is not None
    assert (standing.messages["small"].used, standing.tokens.used, standing.requests.used) == (
        3,
        30,
        3,
    )
    assert store.settle(user, live.run_id, tokens=1, is_answered=True)
    assert not store.settle(user, ended.run_id, tokens=1, is_answered=True), "it was settled before"


def test_counters_that_nobody_uses_go(store: Counters, redis: Redis, user: uuid.UUID) -> None:
    build(store, user)
    reserve(store, user, twin="a")
    names = keys(user, "built", "messages", "open", "twins", "levels")
    for name in names:
        assert 3_590_000 < cast("int", redis.pttl(name)) <= 3_600_000, name


# --- the index ------------------------------------------------------------------------------------


def test_a_user_is_in_the_index_before_anything_is_held(
    store: Counters, redis: Redis, user: uuid.UUID
) -> None:
    assert isinstance(reserve(store, user), NotBuilt)
    assert redis.zscore(INDEX, user.hex) is not None


def test_who_was_marked_since_is_not_forgotten(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    # A little more each time: marks in the same ms, and those of scripts sent again, lie behind it.
    assert store.due(10_000, 5) == []
    later(store, 10_010)
    seen = store.due(10_000, 5)
    assert [one for one, _ in seen] == [user]
    assert store.due(10_000, 5) == [], "one look is enough"
    assert store.open_runs([user]) == [[]]
    held = reserve(store, user)  # in the same millisecond
    store.forget(seen)
    later(store, 10_020)
    seen = store.due(10_000, 5)
    assert [one for one, _ in seen] == [user]
    store.release(user, held.run_id)
    store.forget(seen)
    later(store, 10_000)
    assert store.due(0, 5) == []


def test_the_sweep_leaves_what_was_touched_since(store: Counters, user: uuid.UUID) -> None:
    build(store, user)
    held = reserve(store, user, twin="a")
    later(store, 29_000)
    reserve(store, user, twin="a")
    later(store, 2_000)
    assert not store.release(user, held.run_id, 30_000)
    later(store, 28_000)
    assert store.release(user, held.run_id, 30_000), "with all its holders"


def test_scripts_that_redis_has_lost_are_sent_again(
    store: Counters, redis: Redis, user: uuid.UUID
) -> None:
    build(store, user)
    redis.script_flush()
    assert isinstance(reserve(store, user), Held)


# --- against the model ----------------------------------------------------------------------------

RUNS = st.integers(0, 11)


class Play(RuleBasedStateMachine):
    """One user's counters and the model of them, under the same calls in any order."""

    redis: Redis

    @initialize(
        big=st.sampled_from([None, 1, 2, 4]),
        per_minute=st.sampled_from([None, 60, 100, 977]),
        rate=st.sampled_from([None, 3, 7]),
        window_s=st.sampled_from([60, 120]),
    )
    def begin(
        self, big: int | None, per_minute: int | None, rate: int | None, window_s: int
    ) -> None:
        self.redis.flushdb()
        self.user = new_id()
        self.store = Counters(self.redis, START_MS)
        self.limits = Limits(window_s, per_minute, rate, {"big": big, "small": 3})
        self.model = ModelCounters(window_s * 1_000)
        self.model.tokens.at_ms = self.model.requests.at_ms = START_MS
        self.ids = [new_id() for _ in range(12)]
        self.ended: dict[uuid.UUID, tuple[str, int, int, bool]] = {}
        build(self.store, self.user, self.limits)

    @property
    def now_ms(self) -> int:
        return self.store.clock_ms or 0

    @rule(ms=st.sampled_from([0, 1, 999, 5_000, 20_000, 59_999, 61_000]))
    def wait(self, ms: int) -> None:
        later(self.store, ms)

    @rule(
        number=RUNS,
        cost=st.integers(0, 150),
        twin=st.sampled_from(["", "a", "b"]),
        with_smaller=st.booleans(),
    )
    def reserve(self, number: int, cost: int, twin: str, with_smaller: bool) -> None:
        run = self.ids[number]
        assume(run not in self.ended)
        costs = {"big": cost, **({"small": cost // 2} if with_smaller else {})}
        wanted = [(model, self.limits.messages[model], tokens) for model, tokens in costs.items()]
        is_new = run.hex not in self.model.open
        told = self.model.reserve(
            self.now_ms,
            run.hex,
            twin,
            self.limits.tokens_per_minute,
            self.limits.requests_per_minute,
            wanted,
        )
        answer = self.store.reserve(self.user, run, twin, self.limits, costs)
        if isinstance(answer, Held):
            if answer.run_id == run and is_new:
                self.fits(answer)
            model = self.model.open[answer.run_id.hex].model
            assert told == ("held", answer.run_id.hex, model)
            assert answer.model == (model if model in costs else "big")
        else:
            assert isinstance(answer, Refused)
            assert told == ("refused", answer.limit, str(answer.wait_ms))

    def fits(self, held: Held) -> None:
        """Whatever was held before it, and whoever came when: all of it is within the limits."""
        standing = held.standing
        of_model = standing.messages.get(held.model)
        for left in (standing.tokens, standing.requests, of_model):
            assert left is None or left.used <= left.limit

    @rule(number=RUNS, tokens=st.integers(0, 300), is_answered=st.booleans())
    def settle(self, number: int, tokens: int, is_answered: bool) -> None:
        run = self.ids[number]
        hold = self.model.open.get(run.hex)
        told = self.model.settle(self.now_ms, run.hex, tokens, is_answered)
        done = self.store.settle(self.user, run, tokens=tokens, is_answered=is_answered)
        assert done == told
        if hold is not None:
            self.ended[run] = (hold.model, hold.at_ms, tokens, is_answered)

    @rule(number=RUNS, untouched_ms=st.sampled_from([None, 0, 5_000, 30_000]))
    def release(self, number: int, untouched_ms: int | None) -> None:
        run = self.ids[number]
        told = self.model.release(self.now_ms, run.hex, untouched_ms)
        assert self.store.release(self.user, run, untouched_ms) == told

    @rule(per_minute=st.sampled_from([60, 100, 977]), big=st.sampled_from([None, 1, 2, 4]))
    def change_plan(self, per_minute: int, big: int | None) -> None:
        counted = self.limits.tokens_per_minute is not None
        self.limits = Limits(
            self.limits.window_s,
            per_minute if counted else None,
            self.limits.requests_per_minute,
            {"big": big, "small": 3},
        )

    @precondition(lambda self: self.ended or self.model.open)
    @rule(loses_all=st.booleans())
    def rebuild(self, loses_all: bool) -> None:
        """All rows are committed: nothing is lost with Redis."""
        if loses_all:
            self.redis.flushdb()
        else:
            self.redis.delete(keys(self.user, "built")[0])
        answer = self.store.look(self.user, self.limits)
        assert isinstance(answer, NotBuilt)
        now_ms, window_ms = self.now_ms, self.limits.window_s * 1_000
        ended = [
            EndedRun(run, model, now_ms - at_ms)
            for run, (model, at_ms, _, is_answered) in self.ended.items()
            if is_answered and now_ms - at_ms < window_ms
        ]
        live = [
            OpenRun(uuid.UUID(hex=run), hold.model, now_ms - hold.at_ms, hold.tokens, hold.requests)
            for run, hold in self.model.open.items()
        ]
        self._rebuild_model(loses_all)
        levels = (self.model.tokens.level, self.model.requests.level)
        assert self.store.rebuild(self.user, answer.name, self.limits, levels, ended, live)
        assert not self.store.rebuild(self.user, answer.name, self.limits, levels, ended, live)

    def _rebuild_model(self, loses_all: bool) -> None:
        now_ms, per_minute = self.now_ms, self.limits.tokens_per_minute
        rate = self.limits.requests_per_minute
        ended = self.ended.values()
        runs = [(now_ms - at_ms, tokens) for _, at_ms, tokens, answered in ended if answered]
        holds = [(now_ms - hold.at_ms, hold.tokens or 0) for hold in self.model.open.values()]
        ages = [now_ms - at for _, at, _, _ in self.ended.values()] + [age for age, _ in holds]
        tokens, requests = self.model.tokens, self.model.requests
        tokens.level = 0 if per_minute is None else level_of([*runs, *holds], per_minute)
        requests.level = 0 if rate is None else level_of([(age, 1) for age in ages], rate)
        tokens.rate, requests.rate = per_minute or 0, rate or 0
        tokens.at_ms = requests.at_ms = now_ms
        for hold in self.model.open.values():
            hold.touched_ms = now_ms
            if loses_all:
                hold.holders, hold.twin = 1, ""

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        standing = self.store.look(self.user, self.limits)
        assert not isinstance(standing, NotBuilt)
        for model, left in standing.messages.items():
            used = self.model.in_window(model, self.now_ms)
            assert left.used == len(used), model
            newest_ms = used[-1] + self.model.window_ms - self.now_ms if used else 0
            assert left.reset_ms == newest_ms
        self.model.tokens.drain(self.now_ms)
        self.model.requests.drain(self.now_ms)
        if standing.tokens is not None:
            assert standing.tokens.used == -(-self.model.tokens.level // MINUTE_MS)
        if standing.requests is not None:
            assert standing.requests.used == -(-self.model.requests.level // MINUTE_MS)
        held = {run.hex for run in self.store.open_runs([self.user])[0]}
        assert held == set(self.model.open)


def test_any_order_of_calls(redis: Redis) -> None:
    machine = type("Machine", (Play,), {"redis": redis})
    run_state_machine_as_test(
        machine,
        settings=hypothesis_settings(max_examples=80, stateful_step_count=25, deadline=None),
    )
