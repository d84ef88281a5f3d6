"""A model without a replica: its fallback answers, and whoever moves a run is alone in it.

tests/integration/test_fallback_process.py has it on real workers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from redis import Redis

from accounts import aio
from accounts.ids import external_id
from accounts.models import User
from conversations.content import text_content
from generation import fallback, reaper, runs
from generation.catalogue import Choice, choose, offer_for, route
from generation.gateway.lookup import waiting_pools
from generation.gateway.viewer import end_frames
from generation.launch import launch
from generation.models import Model, Pool, Replica, Run
from generation.payloads import start_payload
from generation.redis_clients import token_log
from generation.scheduler import scheduler_sync
from generation.send import ACTIVE_LEAF, SendRequest, send
from generation.stopping import stop_run
from quotas.models import UsageEntry
from tests.integration.second_step import Second, second_fixture  # noqa: F401  # fixtures
from tests.people import make_person

pytestmark = pytest.mark.django_db(transaction=True)

POOLS = ("big", "small")
LONG_AGO = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def pools() -> Iterator[None]:
    """Two models, each with a pool; the small one stands in for the big one."""
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        for slug, answer, price in (("big", 900, 10), ("small", 300, 1)):
            model = Model.objects.create(
                slug=slug,
                title=slug.title(),
                is_default=slug == "big",
                answer_tokens=answer,
                price_output=price,
            )
            Pool.objects.create(slug=slug, model=model, profile="sim")
            assert scheduler_sync().rebuild(slug, list)
        Model.objects.filter(slug="big").update(fallback="small")
        yield
        client.flushdb()


@pytest.fixture
def owner() -> User:
    return make_person().user


def alive(
    pool: str,
    *,
    healthy: bool = True,
    age: timedelta = timedelta(),
    last_healthy: datetime | None = None,
) -> None:
    values = {
        "healthy": healthy,
        "heartbeat": timezone.now() - age,
        "last_healthy": last_healthy,
    }
    Replica.objects.update_or_create(name=f"{pool}-1", defaults={"pool_id": pool, **values})


def ask(owner: User, **fields: Any) -> Run:
    parts = text_content("Hello")
    values = {"conversation": None, "parent_id": ACTIVE_LEAF, "model": None, "key": None}
    return send(owner, SendRequest(parts=parts, **{**values, **fields}))


def waiting(owner: User, **fields: Any) -> Run:
    """A run that waits in the big model's queue since long."""
    run = ask(owner, **fields)
    assert run.pool_id == "big"
    Run.objects.filter(id=run.id).update(queued_at=timezone.now() - LONG_AGO)
    run.refresh_from_db()
    return run


def events(run: Run) -> list[tuple[int, str]]:
    page = token_log().read(run.external_id)
    return [(event.seq, event.name) for event in page.events] if page else []


def places(run: Run) -> list[int | None]:
    return scheduler_sync().positions([(pool, run.external_id) for pool in POOLS])


def claim(run: Run, pool: str) -> runs.Claim | None:
    return runs.claim(run.id, f"{pool}-1", pool=pool)


# --- which pool -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["none", "sick", "silent"])
def test_the_fallback_answers_where_there_is_no_replica(owner: User, how: str) -> None:
    alive("small")
    if how != "none":
        alive("big", healthy=how != "sick", age=LONG_AGO if how == "silent" else timedelta())
    run = ask(owner)
    assert (run.model_asked, run.model_used, run.pool_id) == ("big", "small", "small")
    assert run.answer_tokens == 300
    notice = {
        "code": "other_model",
        "text": "Big cannot be reached just now; Small answers instead.",
        "model": "small",
        "instead_of": "big",
    }
    assert run.notices == [notice]
    assert events(run) == [(1, "start"), (2, "notice")]
    assert run.opening_seq == 2
    assert start_payload(run)["model"] == "small"
    assert places(run) == [None, 1]
    alive("big")
    assert ask(owner).model_used == "big"


def test_a_replica_that_is_being_replaced_is_waited_for(owner: User) -> None:
    """Its worker signed off a moment ago, as in every deploy; nobody is told of another model."""
    alive("big", healthy=False, last_healthy=timezone.now())
    alive("small")
    run = waiting(owner)
    assert fallback.move_stranded_runs() == 0
    Pool.objects.create(slug="also", model_id="big", profile="sim")
    assert choose(offer_for(owner), "big").pool.slug == "big", (
        "not another place where nobody is either"
    )
    alive("also")
    assert choose(offer_for(owner), "big").pool.slug == "also"
    Replica.objects.filter(pool="also").delete()
    alive("big", healthy=False, last_healthy=timezone.now() - LONG_AGO)
    assert choose(offer_for(owner), "big").pool.slug == "small"
    assert fallback.move_stranded_runs() == 1
    run.refresh_from_db()
    assert run.pool_id == "small"


def test_its_own_replica_comes_first(owner: User) -> None:
    alive("big")
    alive("small")
    run = ask(owner)
    assert (run.model_used, run.pool_id, run.notices) == ("big", "big", [])


def test_without_any_replica_it_waits_where_it_belongs(owner: User) -> None:
    run = ask(owner)
    assert (run.model_used, run.pool_id, run.notices) == ("big", "big", [])


def test_another_pool_of_the_model_comes_before_the_fallback(owner: User) -> None:
    Pool.objects.create(slug="other", model_id="big", profile="sim")
    assert scheduler_sync().rebuild("other", list)
    alive("other")
    alive("small")
    run = ask(owner)
    assert (run.model_used, run.pool_id, run.notices) == ("big", "other", [])


def test_there_are_no_chains(owner: User) -> None:
    """The fallback's own fallback is not looked at, and two may stand in for each other."""
    third = Model.objects.create(slug="third", title="Third")
    Pool.objects.create(slug="third", model=third, profile="sim")
    Model.objects.filter(slug="small").update(fallback="third")
    alive("third")
    assert choose(offer_for(owner), "big").pool.slug == "big"
    assert choose(offer_for(owner), "small").pool.slug == "third"
    Model.objects.filter(slug="small").update(fallback="big")
    assert route(Model.objects.get(slug="small")).pool.slug == "small"


def test_a_model_that_nobody_may_choose_can_stand_in(owner: User) -> None:
    Model.objects.filter(slug="small").update(enabled=False)
    alive("small")
    assert ask(owner).model_used == "small"


def test_a_fallback_is_another_models_pool() -> None:
    big = Model.objects.get(slug="big")
    big.fallback = Pool.objects.get(slug="big")
    with pytest.raises(ValidationError, match="another model"):
        big.full_clean()
    small = Pool.objects.get(slug="small")
    small.model_id = "big"
    with pytest.raises(ValidationError, match="another model"):
        small.full_clean()


def test_an_answer_costs_what_its_model_costs(owner: User) -> None:
    alive("small")
    run = ask(owner)
    claimed = claim(run, "small")
    assert claimed is not None
    assert runs.finish(claimed, runs.Outcome("stop", "x", 4, output_tokens=1_000_000))
    entry = UsageEntry.objects.get(run_id=run.id)
    assert (entry.model, entry.cost) == ("small", Decimal(1))


# --- runs that wait already -----------------------------------------------------------------------


def test_a_waiting_run_is_moved(owner: User) -> None:
    run = waiting(owner)
    assert fallback.move_stranded_runs() == 0, "nobody could answer it there either"
    alive("small")
    before = start_payload(run)
    assert fallback.move_stranded_runs() == 1
    run.refresh_from_db()
    assert (run.model_asked, run.model_used, run.pool_id) == ("big", "small", "small")
    assert run.answer_tokens == 300
    assert events(run) == [(1, "start"), (2, "notice")]
    assert start_payload(run) == before, "seq 1 names one thing"
    assert places(run) == [None, 1]
    assert fallback.move_stranded_runs() == 0
    claimed = claim(run, "small")
    assert claimed is not None
    assert (claimed.model, claimed.opening_seq, len(claimed.notices)) == ("small", 2, 1)


def test_one_that_cannot_be_moved_stops_neither_the_others_nor_the_sweep(
    owner: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The model of another kind goes away between two looks; one run's launch fails."""
    first, second = waiting(owner), waiting(owner)
    Model.objects.create(slug="third", title="Third")
    Pool.objects.create(slug="third", model_id="third", profile="sim")
    other = waiting(make_person("other").user)
    Run.objects.filter(id=other.id).update(model_asked="third", pool="third")
    alive("small")

    def failing_route(model: Model, *rest: Any) -> Choice:
        if model.slug == "third":
            raise Model.DoesNotExist
        return route(model, *rest)

    def failing_launch(run: Run) -> None:
        if run.id == first.id:
            raise ValueError(run)
        launch(run)

    done: list[str] = []
    monkeypatch.setattr(fallback, "route", failing_route)
    monkeypatch.setattr(fallback, "launch", failing_launch)
    monkeypatch.setattr(reaper, "mend_dead_runs", lambda: done.append("mend_dead_runs"))
    reaper.sweep()
    second.refresh_from_db()
    assert (second.pool_id, places(second)) == ("small", [None, 1])
    assert done == ["mend_dead_runs"]
    assert sum("the sweep failed" in record.getMessage() for record in caplog.records) == 2


def test_a_gateway_finds_where_any_number_of_runs_wait(owner: User) -> None:
    """The one that waits comes behind more that do not than are asked for at once."""
    run = waiting(owner)
    ended = [external_id("g", uuid.UUID(int=number)) for number in range(runs.MAX_RUNS_PER_LOOKUP)]
    try:
        assert asyncio.run(waiting_pools([*ended, run.external_id])) == {run.external_id: "big"}
    finally:
        if aio._threads is not None:  # their connections would outlive the test
            aio._threads.shutdown()
            aio._threads = None


def test_it_stays_where_a_replica_is(owner: User) -> None:
    run = waiting(owner)
    alive("big")
    alive("small")
    assert fallback.move_stranded_runs() == 0
    assert places(run) == [1, None]


def test_it_goes_back_when_the_fallback_dies_too(owner: User) -> None:
    run = waiting(owner)
    alive("small")
    assert fallback.move_stranded_runs() == 1
    alive("small", age=LONG_AGO)
    assert fallback.move_stranded_runs() == 0, "there is nobody at all"
    alive("big")
    assert fallback.move_stranded_runs() == 1
    run.refresh_from_db()
    assert (run.model_used, run.pool_id, run.answer_tokens) == ("big", "big", 900)
    assert [notice["model"] for notice in run.notices] == ["small", "big"]
    assert run.notices[-1]["text"] == "Big can be reached again and answers after all."
    assert events(run) == [(1, "start"), (2, "notice"), (3, "notice")]
    assert places(run) == [1, None]


def test_another_pool_of_the_same_model_needs_no_notice(owner: User) -> None:
    run = waiting(owner)
    Pool.objects.create(slug="other", model_id="big", profile="sim")
    assert scheduler_sync().rebuild("other", list)
    alive("other")
    assert fallback.move_stranded_runs() == 1
    run.refresh_from_db()
    assert (run.pool_id, run.notices, run.opening_seq) == ("other", [], 1)
    assert (run.model_begun, scheduler_sync().position(run.external_id, "other")) == ("", 1)


def test_the_sweep_moves_and_ends_what_a_crash_left_half_moved(owner: User) -> None:
    """The row was moved; then the process died before it touched the queues."""
    run = waiting(owner)
    alive("small")
    choice = route(Model.objects.get(slug="big"))
    notice: dict[str, object] = {"code": "other_model", "text": "x", "model": "small"}
    assert runs.move_queued(run, choice.model, "small", notice)
    assert places(run) == [1, None]
    assert claim(run, "big") is None, "the old queue's entry is worth nothing"
    reaper.sweep()
    assert scheduler_sync().position(run.external_id, "small") == 1
    assert events(run) == [(1, "start"), (2, "notice")]


def test_its_end_tells_the_notice_where_the_log_is_gone(owner: User) -> None:
    alive("small")
    run = ask(owner)
    claimed = claim(run, "small")
    assert claimed is not None
    assert runs.finish(claimed, runs.Outcome("stop", "text", 4))
    end = runs.run_ends([run.external_id])[run.external_id]
    assert end is not None
    frames = end_frames(run.external_id, end).decode()
    assert frames.index("event: snapshot") < frames.index("event: notice\ndata: {")
    assert "Small answers instead" in frames


# --- two at once, in a forced order ---------------------------------------------------------------


def _row(run_id: uuid.UUID) -> Run:
    return Run.objects.get(id=run_id)


def test_a_claim_that_is_faster_keeps_the_run(owner: User, second: Second) -> None:
    run = waiting(owner)
    alive("small")
    with transaction.atomic():
        assert claim(run, "big") is not None
        moving = second.start(fallback.move_stranded_runs)
        second.wait_blocked()
    assert moving.result(30) == 0
    row = _row(run.id)
    assert (row.status, row.model_used, row.pool_id, row.notices) == ("running", "big", "big", [])
    assert events(row) == [(1, "start")]


def test_a_move_that_is_faster_takes_the_run(owner: User, second: Second) -> None:
    run = waiting(owner)
    alive("small")
    choice = route(Model.objects.get(slug="big"))
    with transaction.atomic():
        assert runs.move_queued(run, choice.model, "small", None)
        claiming = second.start(lambda: claim(run, "big"))
        second.wait_blocked()
    assert claiming.result(30) is None
    assert _row(run.id).status == "queued"
    assert claim(run, "small") is not None


def test_two_sweeps_move_it_once(owner: User, second: Second) -> None:
    run = waiting(owner)
    alive("small")
    with transaction.atomic():
        choice = route(Model.objects.get(slug="big"))
        assert runs.move_queued(_row(run.id), choice.model, "small", {"code": "other_model"})
        other = second.start(fallback.move_stranded_runs)
        second.wait_blocked()
    assert other.result(30) == 0
    row = _row(run.id)
    assert (row.pool_id, row.opening_seq, len(row.notices)) == ("small", 2, 1)


def test_a_stop_after_a_move_ends_behind_the_notice(owner: User) -> None:
    """The stop has read the row before it was moved; `done` must not take the notice's seq."""
    run = waiting(owner)
    stale = _row(run.id)
    alive("small")
    assert fallback.move_stranded_runs() == 1
    stop_run(stale)
    row = _row(run.id)
    assert (row.status, row.last_seq) == ("stopped", 3)
    assert events(row) == [(1, "start"), (2, "notice"), (3, "done")]
    assert places(row) == [None, None]


def test_a_stop_between_a_moved_row_and_its_log_is_told_at_once(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = waiting(owner)
    alive("small")
    real_move = runs.move_queued

    def move_and_stop(row: Run, *rest: Any) -> bool:
        moved = real_move(row, *rest)
        stop_run(_row(row.id))
        return moved

    monkeypatch.setattr(runs, "move_queued", move_and_stop)
    assert fallback.move_stranded_runs() == 1
    row = _row(run.id)
    assert (row.status, row.last_seq) == ("stopped", 3)
    assert events(row) == [(1, "start"), (2, "notice"), (3, "done")]
    (state,) = token_log().states([row.external_id])
    assert state is not None
    assert state.status == "ended"
    assert places(row) == [None, None]


def test_a_stop_that_is_faster_is_not_moved(owner: User, second: Second) -> None:
    run = waiting(owner)
    alive("small")
    with transaction.atomic():
        assert runs.lock_queued(run.id) is not None
        moving = second.start(fallback.move_stranded_runs)
        second.wait_blocked()
        assert runs.end_queued(run.id, runs.Outcome("user_stopped", "", 2)) is not None
    assert moving.result(30) == 0
    assert _row(run.id).model_used == "big"


def test_a_send_that_is_slow_to_queue_leaves_nothing_that_can_be_claimed(owner: User) -> None:
    """It queues the run where it was sent, after the sweep has moved it."""
    run = waiting(owner)
    scheduler_sync().remove(run.external_id, "big")
    stale = _row(run.id)
    alive("small")
    assert fallback.move_stranded_runs() == 1
    launch(stale)
    assert places(run) == [1, 1]
    assert events(run) == [(1, "start"), (2, "notice")]
    assert claim(run, "big") is None
    assert claim(run, "small") is not None
