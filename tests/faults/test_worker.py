"""A worker dies or freezes in mid-answer: the run ends, once, with the text that was seen."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import redis

from tests.phone import Phone, call, get_run, get_thread, post_message, stop, stored_reply, text_of
from tests.stack import Person, Process, Stack, directive, wait_for

SWEEP = "from generation import reaper; reaper.sweep()"
EPOCH_2 = 1_000_000


async def _in_mid_answer(stack: Stack, ada: Person) -> tuple[Phone, asyncio.Task[Any]]:
    phone = Phone(ada.headers)
    content = directive(tokens=10_000, tokens_per_s=40)
    task = asyncio.create_task(phone.send(stack.webs[0].url, content))
    await phone.until(lambda p: len(p.text.split()) >= 20)
    return phone, task


async def _reaped(stack: Stack, phone: Phone, task: asyncio.Task[Any]) -> None:
    """Sweep, as every worker does, until the stream has ended."""
    with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
        client.delete("reaper:paused")  # an earlier test may have lost Redis a moment ago
    began_s = time.monotonic()
    while not task.done():
        await asyncio.to_thread(stack.manage, "shell", "--verbosity", "0", "-c", SWEEP)
        await asyncio.wait([task], timeout=1)
    await task
    print(f"the stream ended {time.monotonic() - began_s:.1f} s after its worker")


def _assert_interrupted(stack: Stack, ada: Person, phone: Phone) -> None:
    assert phone.done is not None
    assert phone.done["finish"] == "interrupted"
    assert phone.error is not None
    assert (phone.error["code"], phone.error["retryable"]) == ("interrupted", True)
    assert phone.text.startswith("w1 w2 w3")
    assert phone.text == stored_reply(stack.webs[0].url, ada.headers, phone.start)
    assert phone.seqs[-3:] == [EPOCH_2 + 1, EPOCH_2 + 2, EPOCH_2 + 3]
    run = get_run(stack.webs[1].url, ada.headers, phone.run)
    assert (run["status"], run["finish"]) == ("failed", "interrupted")


async def test_a_killed_worker(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    phone, task = await _in_mid_answer(breakable, ada)
    breakable.workers[-1].kill()
    await _reaped(breakable, phone, task)
    _assert_interrupted(breakable, ada, phone)
    # The next send waits for a worker, and is answered below the interrupted reply.
    url, conversation = breakable.webs[0].url, phone.start["conversation"]
    sent = post_message(url, ada.headers, directive(tokens=2), conversation)
    breakable.start_worker()
    after = await Phone(ada.headers, sent["id"]).resume(breakable.webs[1].url)
    assert after.text == "w1 w2"
    messages = get_thread(url, ada.headers, conversation)["messages"]
    assert [text_of(message) for message in messages][1::2] == [phone.text, "w1 w2"]


async def test_a_frozen_worker_writes_nothing_more(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    phone, task = await _in_mid_answer(breakable, ada)
    worker = breakable.workers[-1]
    worker.freeze()
    # Nobody lets go of the engine: the stop is recorded, and answered after two seconds.
    asked_s = time.monotonic()
    answer = await asyncio.to_thread(stop, breakable.webs[1].url, ada.headers, phone.run)
    assert answer.status_code == 202, answer.text
    assert time.monotonic() - asked_s > 1.9
    assert answer.json()["status"] == "running"
    await _reaped(breakable, phone, task)
    assert phone.done is not None
    assert phone.done["finish"] == "user_stopped", "as it was asked for"
    assert phone.text == stored_reply(breakable.webs[0].url, ada.headers, phone.start)
    before = _all_of(breakable, ada, phone)
    worker.thaw()
    wait_for(lambda: "another owner" in worker.tail(), "the worker to notice", worker)
    assert _all_of(breakable, ada, phone) == before
    late = await Phone(ada.headers, phone.run).resume(breakable.webs[0].url)
    assert (late.text, late.done) == (phone.text, phone.done)
    _assert_serves(breakable, ada, worker)


def _all_of(stack: Stack, ada: Person, phone: Phone) -> Any:
    run = get_run(stack.webs[0].url, ada.headers, phone.run)
    thread = get_thread(stack.webs[0].url, ada.headers, phone.start["conversation"])
    usage = stack.rows("SELECT count(*), sum(output_tokens) FROM quotas_usageentry")
    return run, thread["messages"], usage


def _assert_serves(stack: Stack, ada: Person, worker: Process) -> None:
    sent = post_message(stack.webs[0].url, ada.headers, directive(tokens=2))
    wait_for(
        lambda: get_run(stack.webs[0].url, ada.headers, sent["id"])["status"] == "completed",
        "the worker to serve on",
        worker,
    )


async def test_a_worker_that_ends_leaves_nothing_running(breakable: Stack) -> None:
    """A deploy: the run is ended or handed over, and a new worker serves on."""
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
    assert short.done["finish"] == "stop", "within the grace time an answer is finished"
    assert call("GET", f"{breakable.webs[0].url}/readyz", {}).status_code == 200
