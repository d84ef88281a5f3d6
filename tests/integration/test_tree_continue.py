"""The orchestrator and the reaper with an answer that continues another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from accounts import aio
from accounts.aio import in_database
from accounts.models import User
from generation import orchestrator, orphans, reaper, runs
from generation.continuation import ContinueRequest, continue_reply
from generation.engines import EngineProfile
from generation.events import Event, encode_data
from generation.models import Run
from generation.redis_clients import token_log
from generation.run_state import EPOCHS_MAX
from generation.scheduler import scheduler_sync
from generation.token_log import Batch, assemble
from generation.worker import service as service_module
from generation.worker.service import Running
from generation.worker_context import WorkerContext
from tests.integration.tree_room import (
    POOL,
    answered,
    claim,
    conversation_id,
    empty_queues,
    message_id,
    names,
    stored,
)
from tests.people import make_person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    async def nothing() -> None:
        """The reaper is called by hand here."""

    monkeypatch.setattr(service_module, "reap_forever", nothing)
    with empty_queues():
        yield


@pytest.fixture
def owner() -> User:
    return make_person().user


def continued(owner: User, text: str = "w1 w2 w3") -> Run:
    """A queued run that goes on with a reply which was cut after `text`."""
    cut = answered(owner, text, "length")
    wanted = ContinueRequest(conversation_id(cut), message_id(cut.reply_id), None)
    return continue_reply(owner, wanted)


@asynccontextmanager
async def working(*, can_continue: bool, **options: object) -> AsyncIterator[WorkerContext]:
    opened = await Running.open(
        pool=POOL,
        replica="tree-1",
        profile=EngineProfile("sim", "simulated", context_tokens=200, options=options),
        slots=1,
        work_one=orchestrator.work_one,
        on_failure=lambda: None,
    )
    opened.service.context.engine.can_continue = can_continue  # type: ignore[misc]
    try:
        yield opened.service.context
    finally:
        await opened.close(grace_s=0)
        if aio._threads is not None:
            aio._threads.shutdown()
            aio._threads = None


async def worked(owner: User, *, can_continue: bool, text: str, **options: Any) -> Run:
    run = await in_database(continued, owner, text)
    async with working(can_continue=can_continue, **options) as context:
        assert await orchestrator.work_one(context)
    await in_database(run.refresh_from_db)
    return run


def logged(run: Run) -> Any:
    page = token_log().read(run.external_id, 0)
    assert page is not None
    return assemble(page.events)


async def test_an_engine_that_can_goes_on(owner: User) -> None:
    run = await worked(owner, can_continue=True, text="w1 w2 w3", tokens=5)
    assert (run.finish, run.output_tokens) == ("stop", 2)
    await in_database(_assert_whole, run, "w1 w2 w3 w4 w5")
    events = await in_database(names, run)
    assert events[:2] == [(1, "start"), (2, "snapshot")]
    assert {name for _, name in events[2:-1]} == {"delta"}


async def test_an_engine_that_cannot_begins_anew(owner: User) -> None:
    run = await worked(owner, can_continue=False, text="something else", tokens=5)
    assert (run.finish, run.output_tokens) == ("stop", 5)
    await in_database(_assert_whole, run, "w1 w2 w3 w4 w5")
    events = await in_database(names, run)
    assert events[:3] == [(1, "start"), (2, "snapshot"), (3, "snapshot")]


def _assert_whole(run: Run, text: str) -> None:
    """The log is without a gap, ends at last_seq, and gives the stored text."""
    found = logged(run)
    assert (found.text, found.whole, found.ended) == (text, True, True)
    assert [seq for seq, _ in names(run)] == list(range(1, found.last_seq + 1))
    assert run.last_seq == found.last_seq
    assert stored(run) == text


async def test_a_text_that_leaves_no_room(owner: User) -> None:
    """The beginning counts in the prompt; what was shown is kept."""
    text = "long " * 190
    run = await worked(owner, can_continue=True, text=text, tokens=5)
    assert run.error_code in ("prompt_too_long", "rejected")
    await in_database(_assert_whole, run, text)


async def test_a_path_that_cannot_be_read_ends_the_run(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_claim: object) -> list[object]:
        raise LookupError("gone")

    monkeypatch.setattr(orchestrator, "read_turns", unreadable)
    run = await worked(owner, can_continue=True, text="w1 w2", tokens=5)
    assert (run.status, run.error_code) == ("failed", "engine_failed")
    await in_database(_assert_whole, run, "w1 w2")


# --- the reaper -----------------------------------------------------------------------------------


def _die(run: Run, epoch: int = 1) -> None:
    """Its owner is gone for longer than a lease."""
    Run.objects.filter(id=run.id).update(claimed_at="2026-01-01T00:00:00Z", epoch=epoch)


def _taken_over(run: Run) -> tuple[str, int]:
    """What the next owner begins with, and how many tokens of that are this run's own."""
    assert reaper.mend_dead_runs() == 1
    claim = orphans.claim_orphan(run.id, "next", pool=POOL)
    assert claim is not None
    return claim.partial, claim.spent_tokens


def _append(run: Run, *events: Event) -> None:
    batch = Batch(run.external_id, 1, expected_seq=2, events=events, lease_ms=0, tokens=len(events))
    assert token_log().append(batch).code == "OK"


def test_its_owner_dies_before_the_first_word(owner: User) -> None:
    run = continued(owner)
    claim(run)
    _append(run)
    _die(run)
    assert _taken_over(run) == ("w1 w2 w3", 0)


def test_its_owner_dies_later(owner: User) -> None:
    run = continued(owner)
    claim(run)
    _append(run, Event(3, "delta", encode_data({"text": " w4"})))
    _die(run)
    assert _taken_over(run) == ("w1 w2 w3 w4", 1)


def test_all_its_owners_die(owner: User) -> None:
    run = continued(owner)
    claim(run)
    _append(run, Event(3, "delta", encode_data({"text": " w4"})))
    _die(run, epoch=EPOCHS_MAX)
    assert reaper.mend_dead_runs() == 1
    assert stored(run) == "w1 w2 w3 w4" == logged(run).text


def test_its_owner_and_its_log_are_lost(owner: User) -> None:
    run = continued(owner)
    claim(run)
    token_log().delete(run.external_id)
    _die(run)
    assert reaper.mend_dead_runs() == 1
    end = runs.run_ends([run.external_id])[run.external_id]
    assert end is not None
    assert (end.text, end.last_seq) == ("w1 w2 w3", 1_000_001)


def test_a_launch_that_is_repeated_says_the_same(owner: User) -> None:
    run = continued(owner)
    before = token_log().read(run.external_id, 0)
    assert before is not None
    token_log().delete(run.external_id)
    Run.objects.filter(id=run.id).update(queued_at="2026-01-01T00:00:00Z")
    scheduler_sync().remove(run.external_id, POOL)
    assert reaper.queue_lost_runs(POOL) == 1
    after = token_log().read(run.external_id, 0)
    assert after is not None
    assert after.events == before.events
