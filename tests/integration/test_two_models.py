"""Two models on real workers: one stands in for the other, and a replica moves between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from chatproject.embedded import EmbeddedValkey
from tests.phone import Phone, call, get_run, post_message
from tests.stack import Person, Process, Stack, directive, wait_for

SLOTS = 2
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def valkey() -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey.temporary() as server:
        yield server


@pytest.fixture(scope="module")
def _stack(valkey: EmbeddedValkey) -> Iterator[Stack]:
    """A web process, the models `sim` and `small`, each with a pool, and no worker."""
    with Stack.start(webs=1, workers=0, redis_url=valkey.url, slots=SLOTS) as running:
        profiles = json.loads(running.env["ENGINE_PROFILES"])
        profiles["small"] = {**profiles["sim"], "model": "small"}
        running.env["ENGINE_PROFILES"] = json.dumps(profiles)
        running.manage("ensure_demo")
        yield running


@pytest.fixture
def stack(_stack: Stack) -> Iterator[Stack]:
    yield _stack
    for path in _stack.directory.glob("hold*"):
        path.unlink()
    for worker in _stack.workers:
        if worker.popen.poll() is None:
            worker.kill()
    _stack.execute("UPDATE generation_model SET fallback_id = NULL")
    _stack.execute("DELETE FROM generation_replica")


@pytest.fixture
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


def replica(stack: Stack, name: str) -> dict[str, Any]:
    query = "SELECT pool_id, healthy, detail FROM generation_replica WHERE name = %s"
    rows = stack.rows(query, name)
    return dict(zip(("pool", "healthy", "detail"), rows[0], strict=True)) if rows else {}


def wait_serves(stack: Stack, worker: Process, pool: str, name: str = "") -> None:
    name = name or worker.replica

    def serves() -> bool:
        row = replica(stack, name)
        return bool(row and row["pool"] == pool and row["healthy"])

    wait_for(serves, f"{name} to serve {pool}", worker)


def start_worker(stack: Stack, pool: str) -> Process:
    worker = stack.start_worker(SLOTS, pool=pool)
    wait_serves(stack, worker, pool)
    return worker


def want(stack: Stack, name: str, pool: str | None) -> None:
    """As the admin's verb does."""
    stack.execute("UPDATE generation_replica SET wanted_pool_id = %s WHERE name = %s", pool, name)


def ask(stack: Stack, ada: Person, model: str, **script: object) -> str:
    content = directive(**script)
    return str(post_message(stack.webs[0].url, ada.headers, content, model=model)["id"])


def run_of(stack: Stack, ada: Person, run: str) -> dict[str, Any]:
    return get_run(stack.webs[0].url, ada.headers, run)


def wait_completed(stack: Stack, ada: Person, run: str, worker: Process) -> dict[str, Any]:
    wait_for(lambda: run_of(stack, ada, run)["status"] == "completed", f"the end of {run}", worker)
    return run_of(stack, ada, run)


def other_model(phone: Phone) -> list[str]:
    return [n["text"] for n in phone.notices if n["code"] == "other_model"]


TOLD = ["sim cannot be reached just now; small answers instead."]


def test_the_fallback_answers_while_the_only_replica_is_dead(stack: Stack, ada: Person) -> None:
    stack.execute("UPDATE generation_model SET fallback_id = 'small' WHERE slug = 'sim'")
    url = stack.webs[0].url
    first = start_worker(stack, "sim")
    start_worker(stack, "small")
    first.kill()
    # Its row says healthy for as long as its last heartbeat is fresh: the first one waits there.
    waiting = asyncio.run(_moved_in_the_queue(url, ada))
    assert run_of(stack, ada, waiting.run)["model"] == "small"
    again = asyncio.run(Phone(ada.headers, run=waiting.run).resume(url))
    assert (again.text, other_model(again)) == ("from the other", TOLD)

    second = asyncio.run(Phone(ada.headers).send(url, directive(text="at once"), model="sim"))
    assert second.start["model"] == "small"
    assert (second.text, other_model(second)) == ("at once", TOLD)

    start_worker(stack, "sim")
    third = asyncio.run(Phone(ada.headers).send(url, directive(text="itself"), model="sim"))
    assert (third.start["model"], third.text, other_model(third)) == ("sim", "itself", [])


async def _moved_in_the_queue(url: str, ada: Person) -> Phone:
    phone = Phone(ada.headers)
    asking = asyncio.create_task(phone.send(url, directive(text="from the other"), model="sim"))
    await phone.until(lambda p: p.start)
    assert phone.start["model"] == "sim"
    await asking
    assert (phone.text, other_model(phone)) == ("from the other", TOLD)
    return phone


def test_the_notice_is_told_again_where_the_log_was_lost(
    stack: Stack, ada: Person, valkey: EmbeddedValkey
) -> None:
    """The queue was rebuilt from PostgreSQL, or somebody claimed before the log had the notice."""
    stack.execute("UPDATE generation_model SET fallback_id = 'small' WHERE slug = 'sim'")
    stack.manage("shell", "--verbosity", "0", "-c", "from generation import reaper; reaper.sweep()")
    stack.execute(_GHOST, "small")
    run = ask(stack, ada, "sim", text="whole")
    assert run_of(stack, ada, run)["model"] == "small"
    with redis.Redis.from_url(valkey.url) as client:
        assert client.delete(*client.scan_iter(f"run:{{{run}}}*")) > 0
    worker = start_worker(stack, "small")
    phone = asyncio.run(Phone(ada.headers, run=run).follow(stack.webs[0].url))
    assert (phone.text, other_model(phone)) == ("whole", TOLD)
    assert worker.popen.poll() is None


def test_its_place_is_told_in_the_queue_where_it_was_moved(stack: Stack, ada: Person) -> None:
    """Behind one that waits there already; before, it was the first of the other queue."""
    stack.execute("UPDATE generation_model SET fallback_id = 'small' WHERE slug = 'sim'")
    worker = start_worker(stack, "small")
    hold = stack.hold("full")
    taken = [ask(stack, ada, "small", tokens=1, hold="full") for _ in range(SLOTS)]
    wait_for(lambda: all(stack.journal(run) for run in taken), "every slot to be taken", worker)
    ask(stack, ada, "small", tokens=1)
    stack.execute(_GHOST, "sim")
    phone = asyncio.run(_moved_to_the_second_place(stack, ada, hold.unlink))
    assert other_model(phone) == TOLD
    assert phone.text == "second"


async def _moved_to_the_second_place(stack: Stack, ada: Person, free: Callable[[], None]) -> Phone:
    phone = Phone(ada.headers)
    content = directive(text="second")
    asking = asyncio.create_task(phone.send(stack.webs[0].url, content, model="sim"))
    await phone.until(lambda p: [n.get("position") for n in p.notices] == [1])
    stack.execute("DELETE FROM generation_replica WHERE name = 'ghost'")
    await phone.until(lambda p: other_model(p) and p.notices[-1].get("position") == 2)
    free()
    await asking
    return phone


_GHOST = """
INSERT INTO generation_replica (name, pool_id, slots, healthy, detail, running, started, heartbeat)
VALUES ('ghost', %s, 1, true, '', 0, now(), now())
"""


def test_a_replica_moves_while_it_answers(stack: Stack, ada: Person) -> None:
    worker = start_worker(stack, "sim")
    hold = stack.hold("middle")
    running = ask(stack, ada, "sim", text="one two three", hold="middle", hold_after=1)
    wait_for(lambda: stack.journal(running), "the answer to begin", worker)
    wanted = ask(stack, ada, "small", text="from small")
    want(stack, worker.replica, "small")
    wait_for(lambda: not replica(stack, worker.replica)["healthy"], "it to leave", worker)
    late = ask(stack, ada, "sim", text="late")
    hold.unlink()

    assert wait_completed(stack, ada, running, worker)["model"] == "sim"
    wait_serves(stack, worker, "small")
    assert wait_completed(stack, ada, wanted, worker)["model"] == "small"
    assert [entry["what"] for entry in stack.journal(running)] == ["started", "finished"]
    # A ticket, not only the sweep, brings it what is sent from now on.
    for _ in range(3):
        wait_completed(stack, ada, ask(stack, ada, "small", tokens=1), worker)
    assert run_of(stack, ada, late)["status"] == "queued", "nobody serves sim any more"

    want(stack, worker.replica, None)
    wait_serves(stack, worker, "sim")
    assert wait_completed(stack, ada, late, worker)["model"] == "sim"
    assert worker.popen.poll() is None
    assert "misplaced" not in worker.log.read_text()


def test_where_it_is_wanted_holds_after_a_restart_and_a_lost_broker(
    stack: Stack, ada: Person, valkey: EmbeddedValkey
) -> None:
    worker = start_worker(stack, "sim")
    want(stack, worker.replica, "small")
    wait_serves(stack, worker, "small")
    assert worker.terminate() == 0
    name = {"GPU_REPLICA": worker.replica}
    again = stack.start_worker(SLOTS, name)
    wait_serves(stack, again, "small", worker.replica)
    wait_completed(stack, ada, ask(stack, ada, "small", tokens=1), again)
    valkey.kill()
    wait_for(lambda: "Connection" in again.tail(), "the worker to notice", again)
    valkey.start()
    wait_completed(stack, ada, _ask_when_built(stack, ada, "small"), again)
    assert replica(stack, worker.replica)["pool"] == "small"


def _ask_when_built(stack: Stack, ada: Person, model: str) -> str:
    """Sends are refused until the queues are rebuilt, and then taken."""
    url = f"{stack.webs[0].url}/v1/conversations/new/messages"
    taken: list[str] = []

    def was_taken() -> bool:
        answer = call("POST", url, ada.headers, {"content": directive(tokens=1), "model": model})
        taken.extend([answer.json()["id"]] if answer.status_code == 202 else [])
        return bool(taken)

    wait_for(was_taken, "a send to be taken")
    return taken[0]


def test_a_pool_that_this_worker_cannot_serve_is_refused(stack: Stack, ada: Person) -> None:
    profiles = json.loads(stack.env["ENGINE_PROFILES"])
    only_sim = {"ENGINE_PROFILES": json.dumps({"sim": profiles["sim"]})}
    worker = stack.start_worker(SLOTS, only_sim)
    wait_serves(stack, worker, "sim")
    want(stack, worker.replica, "small")
    wait_for(lambda: "not moved" in replica(stack, worker.replica)["detail"], "it to say", worker)
    row = replica(stack, worker.replica)
    assert (row["pool"], row["healthy"]) == ("sim", True)
    assert "ENGINE_PROFILES has no profile 'small'" in row["detail"]
    wait_completed(stack, ada, ask(stack, ada, "sim", tokens=1), worker)
