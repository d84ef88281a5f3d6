"""Another model answers while the real engine is dead, and replicas move to it and away from it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.phone import Phone, get_run
from tests.stack import Person, Process, directive
from tests.vllm.conftest import SLOTS, Vllm

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

SMALL = {"kind": "simulated", "model": "small", "slots": SLOTS, "context_tokens": 32_768}
TITLE = "Small"


@pytest.fixture
def ada(vllm: Vllm) -> Person:
    vllm.answer_tokens(6)
    return vllm.stack.people["ada"]


@pytest.fixture
def small(vllm: Vllm) -> Iterator[Process]:
    """A worker of another model, of an engine that is always there; vLLM's falls back to it."""
    stack = vllm.stack
    before, workers = dict(stack.env), list(stack.workers)
    profiles = json.loads(stack.env["ENGINE_PROFILES"])
    small = {**SMALL, "options": {"directives": True}}
    stack.env["ENGINE_PROFILES"] = json.dumps({**profiles, "small": small})
    stack.manage("ensure_demo")
    stack.execute("UPDATE generation_model SET title = %s WHERE slug = 'small'", TITLE)
    stack.execute("UPDATE generation_model SET fallback_id = 'small' WHERE slug = 'demo'")
    worker = stack.start_worker(SLOTS, pool="small")
    vllm.wait_healthy(worker)
    yield worker
    worker.kill()
    stack.workers[:] = workers
    stack.env.update(before)
    stack.execute("UPDATE generation_model SET fallback_id = NULL")
    stack.execute("UPDATE generation_model SET enabled = false WHERE slug = 'small'")


def _of_the_other(phone: Phone) -> list[str]:
    return [notice["text"] for notice in phone.notices if notice["code"] == "other_model"]


def _ask(vllm: Vllm, ada: Person) -> Phone:
    content = directive(text="from the other")
    return asyncio.run(Phone(ada.headers).send(vllm.url, content, model="demo"))


def _wait_unhealthy(vllm: Vllm, worker: Process) -> None:
    query = "SELECT 1 FROM generation_replica WHERE name = %s AND NOT healthy"
    rows = vllm.stack.rows
    vllm.wait(lambda: bool(rows(query, worker.replica)), f"{worker.replica} to be unhealthy")


def test_the_fallback_answers_until_the_engine_is_back(
    vllm: Vllm, ada: Person, small: Process
) -> None:
    worker = _own_worker(vllm, small)
    for pid in vllm.processes():
        os.kill(pid, signal.SIGKILL)
    _wait_unhealthy(vllm, worker)
    other = _ask(vllm, ada)
    assert other.text == "from the other"
    assert get_run(vllm.url, ada.headers, other.run)["model"] == "small"
    assert [TITLE in text for text in _of_the_other(other)] == [True]
    vllm.wait_healthy(worker)
    itself = _ask(vllm, ada)
    assert (itself.start["model"], _of_the_other(itself)) == ("demo", [])
    assert itself.done is not None
    assert itself.text != "from the other", "that engine knows no directives"


def _own_worker(vllm: Vllm, small: Process) -> Process:
    (worker,) = [one for one in vllm.stack.workers if one is not small and one.popen.poll() is None]
    return worker


def test_a_replica_moves_to_the_engine_and_back(vllm: Vllm, ada: Person, small: Process) -> None:
    """As the admin's verb: it attaches to the engine that runs; others need that one still."""
    engine, own = vllm.processes(), _own_worker(vllm, small)
    _move(vllm, small, "sim")
    _drain(vllm, own, is_draining=True)
    seen = _ask(vllm, ada)
    assert (seen.start["model"], _of_the_other(seen)) == ("demo", [])
    run = seen.run.removeprefix("g_")
    ((replica,),) = vllm.stack.rows("SELECT replica FROM generation_run WHERE id = %s", run)
    assert replica == small.replica
    assert get_run(vllm.url, ada.headers, seen.run)["status"] == "completed"
    _drain(vllm, own, is_draining=False)
    _move(vllm, small, "small")
    assert vllm.processes() == engine


def test_the_engine_ends_with_its_last_replica_and_comes_back_with_one(
    vllm: Vllm, ada: Person, small: Process
) -> None:
    """Its memory is needed by what the replica serves instead."""
    _move(vllm, _own_worker(vllm, small), "small")
    assert vllm.processes() == []
    _move(vllm, small, "sim")
    seen = _ask(vllm, ada)
    assert (seen.start["model"], _of_the_other(seen)) == ("demo", [])
    assert seen.done is not None
    _move(vllm, _own_worker(vllm, small), "sim")


def _drain(vllm: Vllm, worker: Process, *, is_draining: bool) -> None:
    update = "UPDATE generation_replica SET is_draining = %s WHERE name = %s"
    vllm.stack.execute(update, is_draining, worker.replica)
    query = "SELECT detail FROM generation_replica WHERE name = %s"
    rows = vllm.stack.rows
    vllm.wait(lambda: (rows(query, worker.replica) == [("drained",)]) == is_draining, "it", worker)


def _move(vllm: Vllm, worker: Process, pool: str) -> None:
    update = "UPDATE generation_replica SET wanted_pool_id = %s WHERE name = %s"
    vllm.stack.execute(update, pool, worker.replica)
    query = "SELECT 1 FROM generation_replica WHERE name = %s AND pool_id = %s AND healthy"
    rows = vllm.stack.rows
    vllm.wait(
        lambda: bool(rows(query, worker.replica, pool)), f"{worker.replica} in {pool}", worker
    )
