"""A worker dies, freezes or is replaced in mid-answer: another goes on where it was."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import redis

from tests.phone import Phone, call, get_run, get_thread, post_message, stop, stored_reply, text_of
from tests.stack import Person, Process, Stack, directive, wait_for

SWEEP = "from generation import reaper; reaper.sweep()"
EPOCH_2 = 1_000_000
TOKENS = 160
WHOLE = " ".join(f"w{n}" for n in range(1, TOKENS + 1))
ENDLESS = 10_000
PAUSED_S = 20


async def _in_mid_answer(
    stack: Stack, ada: Person, tokens: int = TOKENS
) -> tuple[Phone, asyncio.Task[Any]]:
    stack.let_reap()  # an earlier test may have lost Redis
    phone = Phone(ada.headers)
    content = directive(tokens=tokens, tokens_per_s=40)
    task = asyncio.create_task(phone.send(stack.webs[0].url, content))
    await phone.until(lambda p: len(p.text.split()) >= 20)
    return phone, task


async def _reaped(stack: Stack, task: asyncio.Task[Any]) -> None:
    """Sweep, as every worker does, until the stream has ended."""
    while not task.done():
        await asyncio.to_thread(stack.manage, "shell", "--verbosity", "0", "-c", SWEEP)
        await asyncio.wait([task], timeout=1)
    await task


def _assert_whole(stack: Stack, ada: Person, phone: Phone, epoch: int = 2) -> None:
    """As if nothing had happened, but for a notice; and charged once."""
    assert phone.done is not None
    assert (phone.done["finish"], phone.error) == ("stop", None)
    assert phone.text == WHOLE == stored_reply(stack.webs[0].url, ada.headers, phone.start)
    names = [frame.name for frame in phone.frames]
    assert names.count("snapshot") == epoch - 1
    assert phone.told == ["recovered"] * (epoch - 1)
    assert phone.seqs[-1] > (epoch - 1) * EPOCH_2
    usage = phone.done["usage"]
    assert usage["output_tokens"] == TOKENS
    assert usage["prompt_tokens"] < 60, "what was written is no part of the prompt"
    counted = "SELECT count(*), sum(output_tokens) FROM quotas_usageentry WHERE run_id = %s::uuid"
    assert stack.rows(counted, phone.run.removeprefix("g_")) == [(1, TOKENS)]
    run = get_run(stack.webs[1].url, ada.headers, phone.run)
    assert (run["status"], run["usage"]) == ("completed", usage)
    assert stack.kept(phone.run) == 0


async def test_worker_dies(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    phone, task = await _in_mid_answer(breakable, ada)
    breakable.workers[-1].kill()
    killed_s = time.monotonic()
    breakable.start_worker()
    await phone.until(lambda p: p.told)
    print(f"it went on {time.monotonic() - killed_s:.1f} s after the kill")
    await task
    _assert_whole(breakable, ada, phone)
    # The next send is answered below it.
    url, conversation = breakable.webs[0].url, phone.start["conversation"]
    sent = post_message(url, ada.headers, directive(tokens=2), conversation)
    after = await Phone(ada.headers, sent["id"]).resume(breakable.webs[1].url)
    assert after.text == "w1 w2"
    messages = get_thread(url, ada.headers, conversation)["messages"]
    assert [text_of(message) for message in messages][1::2] == [WHOLE, "w1 w2"]


async def test_worker_dies_while_the_run_has_no_other(breakable: Stack) -> None:
    """Nobody is there for a minute: what was written is kept, and the run ends."""
    ada = breakable.people["ada"]
    phone, task = await _in_mid_answer(breakable, ada, ENDLESS)
    breakable.workers[-1].kill()
    breakable.execute("DELETE FROM generation_replica")
    await asyncio.to_thread(_age_lease, breakable, phone.run)
    await _reaped(breakable, task)
    assert phone.done is not None
    assert phone.done["finish"] == "interrupted"
    assert phone.error is not None
    assert (phone.error["code"], phone.error["retryable"]) == ("interrupted", True)
    assert phone.text.startswith("w1 w2 w3")
    assert phone.text == stored_reply(breakable.webs[0].url, ada.headers, phone.start)
    assert phone.seqs[-3:] == [EPOCH_2 + 1, EPOCH_2 + 2, EPOCH_2 + 3]


def _age_lease(stack: Stack, run: str) -> None:
    """As if its owner had gone over a minute ago."""
    key = f"run:{{{run}}}:m"
    with redis.Redis.from_url(stack.env["REDIS_URL"], decode_responses=True) as client:
        until = int(str(client.hget(key, "lease_until_ms")))
        client.hset(key, "lease_until_ms", until - 120_000)
    stack.execute(
        "UPDATE generation_run SET claimed_at = claimed_at - interval '3 minutes' WHERE id = %s",
        run.removeprefix("g_"),
    )


async def test_a_stop_of_a_run_that_has_lost_its_worker(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    phone, task = await _in_mid_answer(breakable, ada, ENDLESS)
    breakable.workers[-1].kill()
    answer = await asyncio.to_thread(stop, breakable.webs[1].url, ada.headers, phone.run)
    assert answer.status_code == 202, answer.text
    await _reaped(breakable, task)
    assert phone.done is not None
    assert (phone.done["finish"], phone.error) == ("user_stopped", None)
    assert phone.text == stored_reply(breakable.webs[0].url, ada.headers, phone.start)


async def test_worker_was_only_paused(breakable: Stack) -> None:
    """Another goes on meanwhile. When it wakes it writes nothing, says so, and serves on."""
    ada = breakable.people["ada"]
    phone, task = await _in_mid_answer(breakable, ada)
    paused = breakable.workers[-1]
    noticed = _noticed(paused)
    paused.freeze()
    frozen_s = time.monotonic()
    other = breakable.start_worker()
    await task
    _assert_whole(breakable, ada, phone)
    before = _all_of(breakable, ada, phone)
    await asyncio.sleep(frozen_s + PAUSED_S - time.monotonic())
    paused.thaw()
    wait_for(lambda: _noticed(paused) > noticed, "the worker to notice", paused)
    other.kill()
    _assert_serves(breakable, ada, paused)
    assert _all_of(breakable, ada, phone) == before
    late = await Phone(ada.headers, phone.run).resume(breakable.webs[0].url)
    assert (late.text, late.done) == (phone.text, phone.done)


async def test_a_paused_worker_and_a_stop(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    phone, task = await _in_mid_answer(breakable, ada, ENDLESS)
    worker = breakable.workers[-1]
    noticed = _noticed(worker)
    worker.freeze()
    # Nobody lets go of the engine: the stop is recorded, and answered after two seconds.
    asked_s = time.monotonic()
    answer = await asyncio.to_thread(stop, breakable.webs[1].url, ada.headers, phone.run)
    assert answer.status_code == 202, answer.text
    assert time.monotonic() - asked_s > 1.9
    assert answer.json()["status"] == "running"
    await _reaped(breakable, task)
    assert phone.done is not None
    assert phone.done["finish"] == "user_stopped", "as it was asked for"
    before = _all_of(breakable, ada, phone)
    worker.thaw()
    wait_for(lambda: _noticed(worker) > noticed, "the worker to notice", worker)
    assert _all_of(breakable, ada, phone) == before
    _assert_serves(breakable, ada, worker)


def _noticed(worker: Process) -> int:
    """How often it has said that a run of its own has another owner."""
    return worker.log.read_text().count("another owner")


def _all_of(stack: Stack, ada: Person, phone: Phone) -> Any:
    run = get_run(stack.webs[0].url, ada.headers, phone.run)
    thread = get_thread(stack.webs[0].url, ada.headers, phone.start["conversation"])
    counted = "SELECT count(*), sum(output_tokens) FROM quotas_usageentry WHERE run_id = %s::uuid"
    return run, thread["messages"], stack.rows(counted, phone.run.removeprefix("g_"))


def _assert_serves(stack: Stack, ada: Person, worker: Process) -> None:
    sent = post_message(stack.webs[0].url, ada.headers, directive(tokens=2))
    wait_for(
        lambda: get_run(stack.webs[0].url, ada.headers, sent["id"])["status"] == "completed",
        "the worker to serve on",
        worker,
    )


async def test_deploy_of_workers_finishes_what_fits_in_the_grace_time(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    short = Phone(ada.headers)
    quick = asyncio.create_task(
        short.send(breakable.webs[0].url, directive(tokens=60, tokens_per_s=40))
    )
    await short.until(lambda p: len(p.text.split()) >= 5)
    worker = breakable.workers[-1]
    await asyncio.to_thread(worker.terminate)
    await quick
    assert short.done is not None
    assert (short.done["finish"], short.told) == ("stop", [])
    assert call("GET", f"{breakable.webs[0].url}/readyz", {}).status_code == 200


async def test_deploy_of_workers_hands_over_the_rest(breakable: Stack) -> None:
    """At once: nobody waits for a lease to run out."""
    ada = breakable.people["ada"]
    breakable.workers.pop().kill()
    workers = [breakable.start_worker(env={"WORKER_GRACE_S": "1"}) for _ in range(2)]
    breakable.wait_ready()
    phone, task = await _in_mid_answer(breakable, ada)
    owner = "SELECT replica FROM generation_run WHERE id = %s::uuid"
    ((name,),) = breakable.rows(owner, phone.run.removeprefix("g_"))
    (leaving,) = [worker for worker in workers if worker.replica == name]
    given_s = time.monotonic()
    assert await asyncio.to_thread(leaving.terminate) == 0
    await phone.until(lambda p: p.told)
    print(f"another went on {time.monotonic() - given_s:.1f} s after the SIGTERM")
    await task
    _assert_whole(breakable, ada, phone)
    assert "given back: this worker ends" in leaving.log.read_text()
