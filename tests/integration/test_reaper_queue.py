"""What the reaper does for a pool's queue: lost runs, ended ones, pauses, rebuilds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone
from redis import Redis

from accounts.models import User
from generation import orphans, queue_actions, reaper
from generation.events import Event, encode_data
from generation.launch import launch, queue_entry
from generation.models import Pool, Run
from generation.payloads import start_data
from generation.redis_clients import token_log
from generation.scheduler import SchedulerSync, scheduler_sync
from generation.token_log import Batch
from quotas.models import Plan
from quotas.plans import Terms, terms_of
from tests.integration.reaper_room import (  # noqa: F401  # fixtures
    POOL,
    make_run,
    owner_fixture,
    pool_fixture,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("pool")]


def test_a_popped_run_whose_claim_may_be_on_its_way_is_let_be(owner: User) -> None:
    run = make_run(owner, status="queued")
    assert reaper.queue_lost_runs(POOL) == 1
    popped = scheduler_sync().pop(POOL, "r", slots=9).entry
    assert popped is not None
    assert (popped.run, popped.plan, popped.cap) == (run.external_id, "free", 2)
    assert reaper.queue_lost_runs(POOL) == 0
    assert reaper.free_places(POOL) == 0
    assert scheduler_sync().position(run.external_id, POOL) is None
    with Redis.from_url(settings.REDIS_URL) as client:
        client.hset(f"{{pool:{POOL}}}:running", run.external_id, f"{popped.user}|free|9|1|r|1")
    assert reaper.queue_lost_runs(POOL) == 1, "it never came"
    assert scheduler_sync().position(run.external_id, POOL) == 1


def test_runs_that_ended_without_a_word_hold_no_place(owner: User) -> None:
    """Their workers were killed between the end in PostgreSQL and the queue's."""
    runs_ = [make_run(owner, status="queued", age_s=60 - n) for n in range(4)]
    reaper.queue_lost_runs(POOL)
    for run in runs_[:2]:  # a free plan's cap
        assert scheduler_sync().pop(POOL, "r", slots=9).entry is not None
        Run.objects.filter(id=run.id).update(
            status="completed", finish="stop", last_seq=9, finished_at=timezone.now(), epoch=1
        )
    assert scheduler_sync().pop(POOL, "r", slots=9).entry is None
    assert reaper.free_places(POOL) == 2
    assert reaper.free_places(POOL) == 0
    assert scheduler_sync().pop(POOL, "r", slots=9).entry is not None


def test_a_rebuild_counts_what_is_at_work(owner: User) -> None:
    running = [make_run(owner, replica="r-1") for _ in range(2)]
    make_run(owner, status="queued")
    assert reaper.rebuild(POOL)
    (records,) = scheduler_sync().records(POOL)
    assert {record.run for record in records} == {run.external_id for run in running}
    assert scheduler_sync().pop(POOL, "r", slots=9).entry is None, "two at once is their plan's cap"
    scheduler_sync().ended(running[0].external_id, POOL)
    assert scheduler_sync().pop(POOL, "r", slots=9).entry is not None


def test_a_pool_that_is_paused_stays_so_when_redis_is_lost(owner: User, pool: Pool) -> None:
    make_run(owner, status="queued")
    Pool.objects.filter(slug=POOL).update(is_paused=True)
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
    reaper.sweep()
    assert scheduler_sync().depth(POOL) == 1
    assert scheduler_sync().pop(POOL, "r", slots=9).entry is None
    Pool.objects.filter(slug=POOL).update(is_paused=False)
    reaper.sweep()
    assert scheduler_sync().pop(POOL, "r", slots=9).entry is not None


def test_a_rebuild_reads_the_plans_of_all_at_once(
    owner: User, django_assert_num_queries: Any
) -> None:
    for _ in range(5):
        make_run(owner, status="queued")
    with django_assert_num_queries(3):  # running, queued, and the plans of those who wait
        assert len([*reaper._running(POOL), *reaper._waiting(POOL)]) == 5


def test_a_fifo_queue_is_one_user_of_one_plan(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SCHEDULER_ORDER", "fifo")
    entry = queue_entry(make_run(owner, status="queued", reserved_tokens=77))
    assert (entry.user, entry.plan, entry.is_paid, entry.cost_tokens) == ("everyone", "", True, 77)


def test_a_slow_reaper_puts_nothing_back_that_is_at_work_again(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another reaper was faster: a second replica has popped the run, and is about to claim it, or
    has claimed it."""
    monkeypatch.setattr(reaper, "CONFIRM_S", 0)
    run = make_run(owner, epoch=1, replica="r-1")
    _leave_log(run)
    stale = [(run, token_log().states([run.external_id])[0])]
    assert reaper.mend_dead_runs() == 1
    assert scheduler_sync().pop(POOL, "r-2", slots=9).entry is not None
    for claimed in (False, True):
        if claimed:
            assert orphans.claim_orphan(run.id, "r-2", pool=POOL) is not None
        assert [reaper._mend(pair) for pair in stale] == [False]
        assert scheduler_sync().position(run.external_id, POOL) is None
        (records,) = scheduler_sync().records(POOL)
        assert [record.replica for record in records] == ["r-2"]


def test_a_slow_reaper_puts_nothing_back_that_its_owner_has_claimed_again(owner: User) -> None:
    """The replica came back by the same name."""
    run = make_run(owner, epoch=1, replica="r-1")
    _leave_log(run)
    (state,) = token_log().states([run.external_id])
    assert scheduler_sync().requeue_front(queue_entry(run), pool=POOL).added
    assert scheduler_sync().pop(POOL, "r-1", slots=9).entry is not None
    assert orphans.claim_orphan(run.id, "r-1", pool=POOL) is not None
    assert not reaper._mend((run, state))
    assert scheduler_sync().position(run.external_id, POOL) is None


def test_a_pause_is_not_undone_by_a_sweep_that_began_before_it(
    owner: User, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(make_run(owner, status="queued"))

    def pause() -> None:
        tell = queue_actions.pause(pool, is_paused=True)
        assert tell is not None
        tell()

    rows = list(Pool.objects.all())
    pause()
    for row in rows:
        reaper._sweep_pool(row)
    assert scheduler_sync().pop(POOL, "r", slots=9).entry is None

    # And it may come between a sweep's look at PostgreSQL and its word to Redis.
    Pool.objects.update(is_paused=False)
    configure = SchedulerSync.configure
    paused_once: list[str] = []

    def late(self: SchedulerSync, name: str, **flags: bool) -> None:
        if not paused_once:
            paused_once.append(name)
            pause()
        configure(self, name, **flags)

    monkeypatch.setattr(SchedulerSync, "configure", late)
    reaper.sweep()
    assert scheduler_sync().pop(POOL, "r", slots=9).entry is None


def test_workers_take_turns_at_a_pool(owner: User, pool: Pool) -> None:
    """Each looks at all that waits there."""
    run = make_run(owner, status="queued")
    reaper.sweep(in_turn=True)
    assert scheduler_sync().remove(run.external_id, POOL)
    reaper.sweep(in_turn=True)
    assert scheduler_sync().position(run.external_id, POOL) is None
    with Redis.from_url(settings.REDIS_URL) as client:
        key = f"reaper:turn:{POOL}"
        assert 0 < client.pttl(key) <= 1_400, "whoever dies with its turn keeps nobody waiting"
        client.delete(key)
    reaper.sweep(in_turn=True)
    assert scheduler_sync().position(run.external_id, POOL) == 1
    assert scheduler_sync().remove(run.external_id, POOL)
    reaper.sweep()
    assert scheduler_sync().position(run.external_id, POOL) == 1, "who is asked by hand looks"


def test_a_queue_that_another_has_rebuilt_meanwhile_is_let_be(
    owner: User, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has served somebody since: filled anew it would have forgotten what they have used."""
    run = make_run(owner, status="queued", reserved_tokens=500)
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()

    def faster() -> None:
        monkeypatch.setattr(reaper, "pause_reaping", lambda: None)
        assert reaper.rebuild(POOL)
        popped = scheduler_sync().pop(POOL, "r", slots=9).entry
        assert popped is not None
        assert popped.run == run.external_id

    monkeypatch.setattr(reaper, "pause_reaping", faster)
    reaper._sweep_pool(pool)
    assert scheduler_sync().position(run.external_id, POOL) is None
    (records,) = scheduler_sync().records(POOL)
    assert [record.run for record in records] == [run.external_id]


def test_one_that_cannot_be_launched_keeps_no_other_waiting(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = make_run(owner, status="queued"), make_run(owner, status="queued")

    def stumble(run: Run, terms: Terms) -> None:
        if run.id == bad.id:
            raise ValueError("cap must be between 1 and a million")
        launch(run, terms)

    monkeypatch.setattr(reaper, "launch", stumble)
    assert reaper.queue_lost_runs(POOL) == 1
    assert scheduler_sync().position(good.external_id, POOL) == 1


def test_a_plan_lets_each_have_one_run_at_least(owner: User) -> None:
    terms = replace(terms_of(owner), concurrent_runs=0, weight=0)
    entry = queue_entry(make_run(owner, status="queued"), terms)
    assert (entry.cap, entry.weight) == (1, 1)
    plan = Plan.objects.create(slug="none", title="None", smaller_model="m")
    with pytest.raises(IntegrityError, match="plan_concurrent_runs_positive"):
        Plan.objects.filter(slug=plan.slug).update(concurrent_runs=0)


def _leave_log(run: Run) -> None:
    """As an owner leaves it that was killed."""
    name, log = run.external_id, token_log()
    log.open(name, epoch=0, events=[Event(1, "start", start_data(run))], status="queued")
    log.open(name, epoch=run.epoch, owner="worker:1", events=[], base_seq=1)
    text = Event(2, "delta", encode_data({"text": "one"}))
    log.append(Batch(name, epoch=run.epoch, expected_seq=1, events=[text], tokens=1, lease_ms=0))
