"""The ladder on real queues: what a send becomes while others wait, and what is told of it."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from redis import Redis

from accounts.errors import Unavailable
from accounts.models import User
from conversations.content import text_content
from conversations.models import Conversation, Message
from generation import begin as begin_module
from generation import reaper, reserving
from generation.begin import Once
from generation.catalogue import choose, offer_for
from generation.exceptions import Busy, QueueFull, TooManyLiveRuns
from generation.models import IdempotencyKey, Pool, Run
from generation.reserving import hold
from generation.scheduler import QueueEntry, SchedulerSync, scheduler_sync
from generation.scheduler.calls import Limits
from generation.scheduler.entries import pool_keys
from generation.wish import Wish
from quotas.counters import counters
from quotas.models import Plan, Subscription
from tests.integration.tree_room import POOL, ask, empty_queues, names
from tests.people import make_person

pytestmark = pytest.mark.django_db(transaction=True)

TOOK_MS = 2_000
COST = 1_000
_numbers = itertools.count(1)

Wait = Callable[..., None]


@pytest.fixture(autouse=True)
def queues() -> Iterator[None]:
    with empty_queues():
        for pool in (POOL, "other"):
            scheduler_sync().beat(pool, "r", at_work=0, slots=1, paid_burst=0)
        yield


@pytest.fixture
def wait() -> Iterator[Wait]:
    """Makes a pool so busy that a free run waits about so many seconds there, an odd number: its
    one slot is taken for two seconds by each that waits."""
    with Redis.from_url(settings.REDIS_URL) as redis:
        began_ms = int(time.time() * 1_000) - TOOK_MS
        clock = {"ms": began_ms}
        queue = SchedulerSync(redis, Limits(2_000, 100), lambda: clock["ms"])

        def make(seconds: int, pool: str = POOL, plan: str = "free") -> None:
            for _ in range(2):  # one that ends, so that speed is known, and one that stays
                put(pool, plan)
                popped = queue.pop(pool, "r", at_work=0, slots=1)
                assert popped.entry is not None
                if clock["ms"] == began_ms:
                    clock["ms"] += TOOK_MS
                    assert queue.ended(popped.entry.run, pool, COST)
            scheduler_sync().beat(pool, "r", at_work=1, slots=1, paid_burst=0)
            for _ in range((seconds - 1) // 2):
                put(pool, plan)
            clock["ms"] = began_ms

        yield make


def put(pool: str, plan: str = "free", user: str = "") -> None:
    number = next(_numbers)
    run, user = f"g_{number:032x}", user or f"u_{number}"
    is_paid = plan != "free"
    entry = QueueEntry(run, user, COST, plan, 8 if is_paid else 1, is_paid)
    assert scheduler_sync().enqueue(entry, pool=pool).added


@pytest.fixture
def free() -> User:
    Plan.objects.filter(slug="free").update(smaller_model="other")
    return make_person("free").user


@pytest.fixture
def paid() -> User:
    user = make_person("paid").user
    Subscription.objects.create(user=user, plan_id="pro")
    return user


def codes(run: Run) -> list[object]:
    return [notice["code"] for notice in run.notices]


def test_at_rest_nothing_is_changed_and_nothing_told(free: User, wait: Wait) -> None:
    wait(5)
    run = ask(free)
    assert (run.pool_id, run.model_used, codes(run)) == (POOL, POOL, [])
    assert (run.answer_tokens, run.context_tokens) == (1_024, 4_096)


def test_a_little_late_the_answer_is_shorter_and_says_so(free: User, wait: Wait) -> None:
    wait(7)
    run = ask(free)
    assert (run.pool_id, codes(run)) == (POOL, ["shorter_answer"])
    assert (run.answer_tokens, run.context_tokens) == (512, 2_048)
    assert run.notices[0]["answer_tokens"] == 512
    assert run.reserved_tokens < 2_048
    assert names(run)[:2] == [(1, "start"), (2, "notice")]


def test_very_late_the_smaller_model_answers_and_says_so(free: User, wait: Wait) -> None:
    wait(13)
    run = ask(free)
    assert (run.pool_id, run.model_used, run.model_asked) == ("other", "other", POOL)
    assert codes(run) == ["smaller_model"]
    assert run.notices[0]["instead_of"] == POOL
    assert "too long" in run.notices[0]["text"]
    assert run.answer_tokens == 1_024, "with all its room"


def test_everything_late_is_waited_for_with_less_room(free: User, wait: Wait) -> None:
    wait(15)
    wait(19, pool="other")
    run = ask(free)
    assert (run.pool_id, codes(run)) == (POOL, ["shorter_answer"])


def test_too_late_nothing_is_written_and_nothing_held(free: User, wait: Wait) -> None:
    wait(25)
    wait(31, pool="other")
    with pytest.raises(Busy) as refused:
        ask(free, key="again")
    # What is beyond their patience of 20 s, 5 at least; up to twice as long.
    assert 5 <= (refused.value.retry_after_s or 0) <= 10
    for kind in (Run, Message, Conversation, IdempotencyKey):
        assert not kind.objects.exists()
    assert list(counters().open_runs([free.id])) == [[]]


def test_who_pays_is_before_them_and_never_refused_for_the_wait(paid: User, wait: Wait) -> None:
    wait(41)
    assert codes(ask(paid)) == [], "free ones that wait are no wait for who pays"
    wait(31, pool="other", plan="pro")
    Plan.objects.filter(slug="pro").update(smaller_model="")
    run = ask(paid, model="other")
    assert (run.pool_id, codes(run)) == ("other", ["shorter_answer"])


def test_chores_stand_back_while_somebody_would_wait(wait: Wait) -> None:
    pool = Pool.objects.get(slug=POOL)
    reaper._sweep_pool(pool)
    assert not scheduler_sync().are_chores_paused(POOL)
    wait(5)
    reaper.tell_chores(POOL)
    assert scheduler_sync().are_chores_paused(POOL)
    scheduler_sync().leave(POOL, "r")
    scheduler_sync().beat(POOL, "other", at_work=0, slots=8, paid_burst=0)
    reaper.tell_chores(POOL)
    assert not scheduler_sync().are_chores_paused(POOL)


def test_a_retry_of_what_was_accepted_is_never_refused(free: User, wait: Wait) -> None:
    first = ask(free, key="once")
    wait(25)
    wait(31, pool="other")
    assert ask(free, key="once").id == first.id
    with pytest.raises(Busy):
        ask(free, key="another")


def test_a_full_queue_sends_to_the_smaller_model_then_nowhere(
    free: User, paid: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_sync(), "_limits", Limits(per_pool=2, per_user=100))
    put(POOL)
    put(POOL)
    assert ask(free).pool_id == "other"
    put("other")
    for user in (free, paid):
        with pytest.raises(QueueFull) as refused:
            ask(user)
        assert refused.value.retry_after_s


def test_whoever_has_too_many_waiting_is_told_that(
    free: User, paid: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_sync(), "_limits", Limits(per_pool=100, per_user=1))
    Plan.objects.update(smaller_model="")
    ask(free)
    with pytest.raises(TooManyLiveRuns):
        ask(free)
    assert ask(paid).pool_id == POOL, "the others are not concerned"


def test_while_a_queue_is_rebuilt_nobody_is_told_a_reason_that_is_none(
    free: User, redis_client: Redis
) -> None:
    redis_client.delete(pool_keys(POOL).built)
    with pytest.raises(Unavailable):
        ask(free)
    assert ask(free, model="other").pool_id == "other"


def test_a_pool_where_nobody_begins_anything_is_the_last_choice(free: User, paid: User) -> None:
    scheduler_sync().configure(POOL, paused=True)
    assert (ask(free).pool_id, ask(paid).pool_id) == ("other", POOL), "pro names no smaller model"
    scheduler_sync().configure("other", paused=True)
    waits = ask(free)
    assert (waits.pool_id, codes(waits), waits.answer_tokens) == (POOL, [], 1_024)


def test_a_smaller_model_without_a_replica_answers_nobody(free: User, wait: Wait) -> None:
    scheduler_sync().leave("other", "r")
    wait(13)
    assert codes(ask(free)) == ["shorter_answer"]
    wait(25)
    with pytest.raises(Busy):
        ask(free)


def test_a_long_text_keeps_the_context_that_it_needs(free: User, wait: Wait) -> None:
    wait(7)
    run = ask(free, parts=text_content("x" * 3_000))
    assert codes(run) == ["shorter_answer"]
    assert run.answer_tokens == 512
    assert run.context_tokens == 4_096


def test_a_twin_of_what_is_being_saved_is_admitted_with_it(free: User, wait: Wait) -> None:
    """Its first send holds what both need; the queues have grown since."""
    Plan.objects.filter(slug="free").update(messages=40)
    held = uuid.uuid4()
    once = Once(free, "once", ("any",))
    wish = Wish(None, choose(offer_for(free), None), offer_for(free))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reserving, "new_id", lambda: held)
        hold(free, once.twin(), wish)
    wait(25)
    wait(31, pool="other")
    admitted, joined = begin_module._reserve(once, wish)
    assert (admitted.choice.pool.slug, joined.run_id) == (POOL, held)
    with pytest.raises(Busy):
        begin_module._reserve(Once(free, "another", ("any",)), wish)


@pytest.fixture
def redis_client() -> Iterator[Redis]:
    with Redis.from_url(settings.REDIS_URL) as client:
        yield client
