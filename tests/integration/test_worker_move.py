"""A replica that is moved between two pools while it runs, in the worker's loop."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.conf import settings

from accounts import aio
from chatproject.embedded.processes import wait_until
from generation.engines import EngineProfile, parse_profiles
from generation.engines.keeper_lock import Place, UserLock, at_work, holder
from generation.engines.vllm_server import stop as stop_keeper
from generation.models import Model, Pool, Replica
from generation.worker import move as move_module
from generation.worker import replica as replica_module
from generation.worker import service as service_module
from generation.worker.engine_process import EngineGuard
from generation.worker.service import Running, Service
from generation.worker.step import _place
from generation.worker_context import HANDOVER, WorkerContext
from tests.integration.test_worker_engine import _guards, place
from tests.integration.test_worker_service import PATIENCE_S, Answers, start_work, until
from tests.stack import ROOT

__all__ = ["place"]

NAME = "mover-1"
PROFILES: dict[str, Any] = {
    "first": {"kind": "simulated", "model": "one"},
    "second": {"kind": "simulated", "model": "two"},
    "ill": {"kind": "simulated", "options": {"sick": True}},
    "wrong": {"kind": "simulated", "options": {"nonsense": 1}},
}

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def pools(settings: Any) -> None:
    settings.ENGINE_PROFILES = json.dumps(PROFILES)
    for slug in ("first", "second", "ill", "wrong", "unknown"):
        model = Model.objects.create(slug=slug, title=slug)
        Pool.objects.create(slug=slug, model=model, profile=slug)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(service_module, "reap_forever", nothing)
    monkeypatch.setattr(move_module, "LOOK_S", 0.05)
    monkeypatch.setattr(replica_module, "POLL_S", 0.05)


class Heard:
    """The queues, as a list of what was asked for, without repetitions."""

    def __init__(self) -> None:
        self.pools: list[str | None] = []

    def serve(self, pool: str | None) -> None:
        if self.pools[-1:] != [pool]:
            self.pools.append(pool)


async def nothing_to_do(context: WorkerContext) -> bool:
    return False


@asynccontextmanager
async def running(
    heard: Heard, work_one: Callable[[WorkerContext], Any] = nothing_to_do
) -> AsyncIterator[Service]:
    profile = parse_profiles(settings.ENGINE_PROFILES)["first"]
    opened = await Running.open(
        pool="first",
        replica=NAME,
        profile=profile,
        slots=2,
        work_one=work_one,
        on_failure=lambda: None,
        queues=heard,
    )
    try:
        await asyncio.wait_for(opened.service.watch.healthy.wait(), PATIENCE_S)
        await until_row(lambda row: row.healthy)
        yield opened.service
    finally:
        await opened.close(grace_s=0)
        if aio._threads is not None:
            aio._threads.shutdown()
            aio._threads = None


def _row() -> Replica | None:
    return Replica.objects.filter(name=NAME).first()


async def until_row(condition: Callable[[Replica], bool]) -> Replica:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            row = await aio.in_database(_row)
            if row is not None and condition(row):
                return row
            await asyncio.sleep(0.02)


async def want(pool: str | None) -> None:
    await aio.in_database(
        lambda: Replica.objects.filter(name=NAME).update(wanted_pool_id=pool),
    )


async def test_it_goes_where_it_is_wanted_and_comes_back() -> None:
    heard = Heard()
    async with running(heard) as service:
        await want("second")
        await until_row(lambda row: row.pool_id == "second" and row.healthy)
        assert (service.context.pool, service.context.profile.model) == ("second", "two")
        await want(None)
        row = await until_row(lambda row: row.pool_id == "first" and row.healthy)
        assert row.detail == "simulated"
        await until(lambda: heard.pools == ["first", None, "second", None, "first"])


async def test_its_answers_end_first_and_no_other_begins() -> None:
    heard, answers = Heard(), Answers()
    async with running(heard, answers.work_one) as service:
        work = start_work(service)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        await want("second")
        row = await until_row(lambda row: not row.healthy)
        assert (row.pool_id, row.running) == ("first", 1)
        assert row.detail == "moving to second: no new answers, the running ones are finished"
        assert service.count_idle() == 0
        await until(lambda: heard.pools[-1] is None)
        assert service.context.pool == "first"
        answers.finish.set()
        assert await work is True
        await until_row(lambda row: row.pool_id == "second" and row.healthy)
    assert list(answers.ended.values()) == ["finished"]


async def test_what_does_not_end_in_time_is_interrupted(settings: Any) -> None:
    settings.MOVE_GRACE_S = 0.1
    answers = Answers()
    async with running(Heard(), answers.work_one) as service:
        work = start_work(service)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        await want("second")
        assert await work is True
        await until_row(lambda row: row.pool_id == "second" and row.healthy)
        assert not service.context.handover.is_set()
        assert list(answers.ended.values()) == [HANDOVER]
        again = start_work(service)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        answers.finish.set()
        assert await again is True
    assert list(answers.ended.values()) == ["finished"]  # under the same name


async def test_it_is_wanted_back_before_it_has_left() -> None:
    heard, answers = Heard(), Answers()
    async with running(heard, answers.work_one) as service:
        work = start_work(service)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        await want("second")
        await until_row(lambda row: not row.healthy)
        await want("first")
        await until_row(lambda row: row.healthy)
        await until(lambda: heard.pools == ["first", None, "first"])
        assert service.count_idle() == 1, "the answer goes on beside it"
        answers.finish.set()
        assert await work is True
    assert list(answers.ended.values()) == ["finished"]


@pytest.mark.parametrize(
    ("pool", "why"),
    [("unknown", "ENGINE_PROFILES has no profile 'unknown'"), ("wrong", "Profile 'wrong'")],
)
async def test_it_stays_where_it_is_and_says_why(pool: str, why: str) -> None:
    heard = Heard()
    async with running(heard) as service:
        await want(pool)
        row = await until_row(lambda row: "not moved" in row.detail)
        assert (row.pool_id, row.healthy) == ("first", True)
        assert row.detail.startswith(f"not moved to {pool}: ")
        assert why in row.detail
        assert service.count_idle() == 2
        await want(None)
        await until_row(lambda row: row.detail == "simulated")
    assert heard.pools == ["first"]


async def test_an_engine_that_it_starts_is_stopped_when_it_leaves(
    place: Place, settings: Any
) -> None:
    """From one that others start to one that the profile starts, and back."""
    serve = {"model": "m", "command": [sys.executable, str(ROOT / "tests" / "pretend_vllm.py")]}
    served = {"kind": "vllm", "url": f"unix://{place.socket}", "serve": serve}
    settings.ENGINE_PROFILES = json.dumps({**PROFILES, "second": served})
    async with running(Heard()) as service:
        await want("second")
        await until_row(lambda row: row.pool_id == "second" and row.healthy)
        assert holder(place) is not None
        await want("first")
        await until_row(lambda row: row.pool_id == "first" and row.healthy)
        assert (holder(place), at_work(place)) == (None, [])
        assert "engine guard" not in {task.get_name() for task in service._side_tasks}


async def test_a_worker_that_ends_starts_no_engine_any_more(place: Place, settings: Any) -> None:
    """Its answers are awaited; somebody stops the engine meanwhile, and it stays stopped."""
    serve_first(place, settings)
    answers = Answers()
    async with running(Heard(), answers.work_one) as service:
        work = start_work(service)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        draining = asyncio.create_task(service.drain(PATIENCE_S))
        await until(lambda: service.is_closing() and guard_task(service) is None)
        other = UserLock(place)
        assert not other.is_last(), "its answers need the engine"
        other.leave()
        answers.finish.set()
        await draining
        assert await work is True
    assert other.is_last()
    other.leave()
    await asyncio.to_thread(stop_keeper, place)


def guard_task(service: Service) -> str | None:
    names = [task.get_name() for task in service._side_tasks]
    return "engine guard" if "engine guard" in names else None


def serve_first(place: Place, settings: Any) -> EngineProfile:
    """Let the profile of the first pool start an engine; that profile."""
    serve = {"model": "m", "command": [sys.executable, str(ROOT / "tests" / "pretend_vllm.py")]}
    served = {"kind": "vllm", "url": f"unix://{place.socket}", "serve": serve}
    settings.ENGINE_PROFILES = json.dumps({**PROFILES, "first": served})
    return parse_profiles(settings.ENGINE_PROFILES)["first"]


def test_a_move_that_its_worker_did_not_end_begins_again(place: Place, settings: Any) -> None:
    """Where it was, while the engine that it has left there runs; there alone it is stopped."""
    guard = EngineGuard(serve_first(place, settings))
    _guards.append(guard)
    settings.GPU_POOL, settings.GPU_REPLICA = "first", NAME
    assert _place()[0] == "first"
    Replica.objects.create(name=NAME, pool_id="first", wanted_pool_id="second")
    assert _place()[0] == "second", "there is no engine to stop"
    guard.look()
    assert wait_until(lambda: holder(place) is not None, PATIENCE_S)
    assert _place()[0] == "first"
    guard.stop()
    assert _place()[0] == "second"


async def test_an_engine_that_does_not_start_says_how_to_get_back() -> None:
    async with running(Heard()):
        await want("ill")
        row = await until_row(lambda row: row.pool_id == "ill")
        assert not row.healthy
        assert row.detail.startswith("moved from first: move it back if it does not start; ")
        await want("first")
        row = await until_row(lambda row: row.pool_id == "first" and row.healthy)
        assert row.detail == "simulated"
