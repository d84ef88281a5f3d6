"""Real Celery workers: drains, lost tickets, a broker that restarts, and wrong configurations."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

from chatproject.embedded import EmbeddedValkey
from tests.phone import call, post_message
from tests.stack import ROOT, Person, Process, Stack, directive, wait_for

SLOTS = 2
GPU_QUEUE = "gpu.sim"


@pytest.fixture(scope="module")
def valkey() -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey.temporary() as server:
        yield server


@pytest.fixture(scope="module")
def _stack(valkey: EmbeddedValkey) -> Iterator[Stack]:
    """A web process and no worker: each test starts those it needs."""
    with Stack.start(webs=1, workers=0, redis_url=valkey.url, slots=SLOTS) as running:
        yield running


@pytest.fixture
def stack(_stack: Stack) -> Iterator[Stack]:
    yield _stack
    for path in _stack.directory.glob("hold*"):
        path.unlink()
    for worker in _stack.workers:
        if worker.popen.poll() is None:
            worker.kill()
    # The next test's runs would have tickets of those who cannot take them, for three seconds.
    with redis.Redis.from_url(_stack.env["REDIS_URL"]) as client:
        client.delete("{pool:sim}:replicas")


@pytest.fixture
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


def start_worker(stack: Stack, **env: str) -> Process:
    worker = stack.start_worker(SLOTS, env)
    stack.wait_ready()
    return worker


def send(stack: Stack, ada: Person, **script: object) -> str:
    return str(post_message(stack.webs[0].url, ada.headers, directive(**script))["id"])


def status_of(stack: Stack, run: str) -> str:
    ((status,),) = stack.rows("SELECT status FROM generation_run WHERE id = %s", run[2:])
    return str(status)


def wait_status(stack: Stack, run: str, status: str) -> None:
    wait_for(lambda: status_of(stack, run) == status, f"{run} to be {status}")


def test_a_lost_ticket_changes_nothing(stack: Stack, ada: Person, valkey: EmbeddedValkey) -> None:
    runs = [send(stack, ada, tokens=2) for _ in range(SLOTS + 1)]
    with redis.Redis.from_url(valkey.url) as client:
        # Some may be for a replica that was there a moment ago.
        queues = list(client.scan_iter(f"{GPU_QUEUE}*"))
        assert sum(client.llen(queue) for queue in queues) >= len(runs), "the tickets were there"
        client.delete(*queues)
    start_worker(stack)
    for run in runs:
        wait_status(stack, run, "completed")


def test_tickets_too_many_change_nothing(stack: Stack, ada: Person, valkey: EmbeddedValkey) -> None:
    run = send(stack, ada, tokens=2)
    with redis.Redis.from_url(valkey.url) as client:
        # It may be for a replica that was there a moment ago.
        tickets = [client.lindex(queue, 0) for queue in client.scan_iter(f"{GPU_QUEUE}*")]
        assert tickets
        client.lpush(GPU_QUEUE, *[tickets[0]] * 20)
        start_worker(stack)
        wait_status(stack, run, "completed")
        wait_for(lambda: client.llen(GPU_QUEUE) == 0, "the tickets to be taken")
    assert [entry["what"] for entry in stack.journal(run)].count("started") == 1


def test_a_slot_that_is_free_takes_the_next_run_at_once(stack: Stack, ada: Person) -> None:
    """Not when Celery happens to look again, which is once a second."""
    runs = [send(stack, ada, tokens=1) for _ in range(6 * SLOTS)]
    start_worker(stack)
    for run in runs:
        wait_status(stack, run, "completed")
    query = """
        SELECT extract(epoch FROM claimed_at), extract(epoch FROM finished_at)
        FROM generation_run WHERE id = ANY(%s::uuid[]) ORDER BY claimed_at
    """
    times = stack.rows(query, [run[2:] for run in runs])
    ends = sorted(float(end) for _, end in times)
    # The one that a slot's next run comes behind, if every slot takes one when it has ended one.
    waits = [float(times[at][0]) - ends[at - SLOTS] for at in range(SLOTS, len(times))]
    assert statistics.median(waits) < 0.4


def test_a_worker_told_to_end_finishes_its_answers_and_claims_no_more(
    stack: Stack, ada: Person
) -> None:
    worker = start_worker(stack, WORKER_GRACE_S="60")
    hold = stack.hold("drain")
    run = send(stack, ada, tokens=3, hold="drain")
    wait_for(lambda: stack.journal(run), "the answer to begin", worker)
    worker.popen.send_signal(signal.SIGTERM)
    wait_for(lambda: "Draining" in worker.tail(), "the drain to begin", worker)
    late = send(stack, ada, tokens=1)
    hold.unlink()
    assert worker.popen.wait(60) == 0
    assert status_of(stack, run) == "completed"
    assert status_of(stack, late) == "queued"
    name = f"sim-{len(stack.workers)}"
    assert stack.rows("SELECT detail FROM generation_replica WHERE name = %s", name) == [
        ("stopped",)
    ]
    start_worker(stack)
    wait_status(stack, late, "completed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_what_does_not_finish_in_time_is_given_back(
    stack: Stack, ada: Person, number: signal.Signals
) -> None:
    """After the grace time, and at once for a cold shutdown, also in the middle of a drain: the run
    is given back, and the next worker goes on with it."""
    grace_s = "0.2" if number == signal.SIGTERM else "600"
    worker = start_worker(stack, WORKER_GRACE_S=grace_s)
    hold = stack.hold("cut")
    run = send(stack, ada, tokens=3, hold="cut", hold_after=2)
    wait_for(lambda: stack.journal(run), "the answer to begin", worker)
    worker.popen.send_signal(signal.SIGTERM)
    if number == signal.SIGQUIT:
        wait_for(lambda: "Draining" in worker.tail(), "the drain to begin", worker)
        worker.popen.send_signal(signal.SIGQUIT)
    worker.popen.wait(60)
    assert [entry["what"] for entry in stack.journal(run)] == ["started", "closed"]
    assert "given back: this worker ends" in worker.tail()
    hold.unlink()
    start_worker(stack)
    wait_status(stack, run, "completed")
    assert [entry["pieces"] for entry in stack.journal(run)] == [0, 2, 0, 1]


def test_a_worker_outlives_its_broker(stack: Stack, ada: Person, valkey: EmbeddedValkey) -> None:
    """The broker, the queues and the logs go, twice; the worker stays the same process."""
    worker = start_worker(stack)
    for _ in range(2):
        first = send(stack, ada, tokens=1)
        wait_status(stack, first, "completed")
        valkey.kill()
        wait_for(lambda: "Connection" in worker.tail(), "the worker to notice", worker)
        valkey.start()
        run = _send_when_built(stack, ada, worker)
        wait_status(stack, run, "completed")
    assert worker.popen.poll() is None


def _send_when_built(stack: Stack, ada: Person, worker: Process) -> str:
    """Sends are refused until the queues are rebuilt, and then taken."""
    sent: list[str] = []

    def was_taken() -> bool:
        url = f"{stack.webs[0].url}/v1/conversations/new/messages"
        reply = call("POST", url, ada.headers, {"content": directive(tokens=1)})
        assert reply.status_code in (202, 503), reply.text
        if reply.status_code == 202:
            sent.append(reply.json()["id"])
        return bool(sent)

    wait_for(was_taken, "a send to be taken", worker)
    return sent[0]


def _celery(stack: Stack, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "celery", "-A", "chatproject", "worker", "-c", "1", *arguments],
        cwd=ROOT,
        env={**stack.env, "GPU_POOL": "sim", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_pool_nobody_knows_ends_the_worker_with_a_reason(stack: Stack) -> None:
    ended = _celery(
        stack,
        *("-P", "custom", "-Q", "gpu.nowhere"),
        GPU_POOL="nowhere",
        CELERY_CUSTOM_WORKER_POOL="generation.worker.pool:TaskPool",
    )
    assert ended.returncode != 0
    assert "there is no pool 'nowhere'" in ended.stdout + ended.stderr


def test_a_pool_that_cannot_cancel_is_refused(stack: Stack) -> None:
    ended = _celery(stack, "-P", "threads", "-Q", GPU_QUEUE)
    assert ended.returncode != 0
    assert "-P custom" in ended.stdout + ended.stderr


def test_a_chores_worker_drives_no_replica(stack: Stack) -> None:
    """It has the same environment, GPU_POOL included."""
    env = {**stack.env, "GPU_POOL": "sim", "GPU_REPLICA": "chores-replica"}
    arguments = ["-P", "threads", "-c", "1", "-Q", "chores", "-l", "INFO", "-n", "chores@%h"]
    chores = stack._spawn(
        "chores", ["-m", "celery", "-A", "chatproject", "worker", *arguments], env
    )
    try:
        wait_for(lambda: " ready." in chores.tail(), "the chores worker", chores)
        os.kill(chores.popen.pid, signal.SIGTERM)
        assert chores.popen.wait(60) == 0
    finally:
        if chores.popen.poll() is None:
            chores.kill()
    assert stack.rows("SELECT 1 FROM generation_replica WHERE name = 'chores-replica'") == []


def test_free_runs_use_the_slots_and_paid_ones_the_burst_too(
    stack: Stack, ada: Person, valkey: EmbeddedValkey
) -> None:
    bob = stack.people["bob"]
    stack.execute(
        "UPDATE quotas_subscription SET plan_id = 'pro' WHERE user_id = "
        "(SELECT id FROM accounts_user WHERE email = %s)",
        bob.email,
    )
    held = stack.hold("burst")
    stack.start_worker(SLOTS + 1, {"GPU_PAID_BURST": "1"})
    stack.wait_ready()
    runs = [send(stack, ada, tokens=2, hold="burst") for _ in range(SLOTS + 1)]
    for run in runs[:SLOTS]:
        wait_status(stack, run, "running")
    paid = send(stack, bob, tokens=2, hold="burst")
    wait_status(stack, paid, "running")
    assert status_of(stack, runs[SLOTS]) == "queued"
    held.unlink()
    for run in [*runs, paid]:
        wait_status(stack, run, "completed")
    ((slots, burst),) = stack.rows(
        "SELECT slots, paid_burst FROM generation_replica WHERE name = %s",
        stack.workers[-1].replica,
    )
    assert (slots, burst) == (SLOTS, 1)
    with redis.Redis.from_url(valkey.url) as client:
        # Every place is free again, and nobody is counted.
        keys = ("{pool:sim}:running", "{pool:sim}:busy", "{pool:sim}:jobs")
        wait_for(lambda: client.exists(*keys) == 0, "the books to be closed")


def test_a_user_at_their_cap_waits_for_their_own_runs(stack: Stack, ada: Person) -> None:
    stack.execute("UPDATE quotas_plan SET concurrent_runs = 1 WHERE slug = 'tests'")
    try:
        held = stack.hold("cap")
        start_worker(stack)
        first, second = (send(stack, ada, tokens=2, hold="cap") for _ in range(2))
        wait_status(stack, first, "running")
        # A slot is idle and looks at the queue every second, in vain.
        replica = stack.workers[-1].replica
        with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
            wait_for(lambda: int(client.hget("{pool:sim}:tags", "owed") or 0) > 0, replica)
        assert status_of(stack, second) == "queued"
        held.unlink()
        wait_status(stack, second, "completed")
        wait_status(stack, first, "completed")
    finally:
        stack.execute("UPDATE quotas_plan SET concurrent_runs = 1000 WHERE slug = 'tests'")


def test_a_burst_without_a_slot_is_refused(stack: Stack) -> None:
    worker = stack.start_worker(SLOTS, {"GPU_PAID_BURST": str(SLOTS)})
    assert worker.popen.wait(60) != 0
    assert "GPU_PAID_BURST must leave one slot for all" in worker.tail()
