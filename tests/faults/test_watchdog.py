"""An engine that says nothing, or breaks off: its runs leave it where somebody can go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.phone import Phone, stored_reply
from tests.stack import SILENCE_S, Person, Process, Stack, directive, wait_for
from tests.upstream import (
    DONE,
    Close,
    Hang,
    Reply,
    Reset,
    Step,
    Upstream,
    delta,
    finish,
    frame,
    usage,
)

WHOLE = " ".join(f"w{n}" for n in range(1, 41))
MODELS = "/v1/models"


@pytest.fixture
def ada(breakable: Stack) -> Person:
    return breakable.people["ada"]


@pytest.fixture(autouse=True)
def short_silence(breakable: Stack) -> Iterator[None]:
    breakable.execute("UPDATE generation_pool SET silence_s = 1")
    yield
    breakable.execute("UPDATE generation_pool SET silence_s = %s", SILENCE_S)


@pytest.mark.parametrize("after", [5, 0], ids=["in the middle", "before the first token"])
async def test_replica_silent(breakable: Stack, ada: Person, after: int) -> None:
    """Somebody else is healthy: the run goes on there, and the silent one is probed."""
    breakable.start_worker()
    breakable.wait_ready()
    url = breakable.webs[0].url
    said = [len(worker.log.read_text()) for worker in breakable.workers]
    content = directive(tokens=40, tokens_per_s=100, hang_after=after)
    phone = await Phone(ada.headers).send(url, content)
    # Where nothing was written the other one hangs once too, if it is the other one: each counts
    # its own faults.
    times = len(phone.told)
    assert times in ((1,) if after else (1, 2))
    _assert_went_on(phone, WHOLE, breakable, ada, times)
    how = [line["what"] for line in breakable.journal(phone.run)]
    assert how == ["started", "closed"] * times + ["started", "finished"]
    logs = [
        worker.log.read_text()[before:]
        for worker, before in zip(breakable.workers, said, strict=True)
    ]
    suspected = [log for log in logs if "is probed before it gets another run" in log]
    assert len(suspected) == times
    assert all("somebody else can go on" in log for log in suspected)
    breakable.wait_ready()  # it answers, and is back


async def test_a_silent_engine_that_is_healthy_is_waited_for(breakable: Stack, ada: Person) -> None:
    """Nobody else is there: a slow answer is better than none."""
    hold, worker = breakable.hold("slow"), breakable.workers[-1]
    phone = Phone(ada.headers)
    content = directive(tokens=40, tokens_per_s=100, hold="slow", hold_after=7)
    task = asyncio.create_task(phone.send(breakable.webs[0].url, content))
    await phone.until(lambda p: p.text.endswith("w7"))
    told = "it is healthy, and nobody else can go on"
    before = worker.log.read_text().count(told)
    await asyncio.to_thread(
        wait_for, lambda: worker.log.read_text().count(told) > before + 1, "two looks", worker
    )
    hold.unlink()
    await task
    assert phone.text == WHOLE
    assert phone.told == []
    assert phone.seqs == list(range(1, len(phone.seqs) + 1))


# --- over HTTP ------------------------------------------------------------------------------------


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as running:
        running.answers(Reply.of_json({"data": []}), path=MODELS)
        yield running


@pytest.fixture
async def worker(breakable: Stack, upstream: Upstream) -> AsyncIterator[Process]:
    async with _only_worker(breakable, upstream, can_continue=True) as worker:
        yield worker


@asynccontextmanager
async def _only_worker(
    stack: Stack, upstream: Upstream, *, can_continue: bool
) -> AsyncIterator[Process]:
    """In front of the upstream, which can go on after a partial answer or not."""
    for other in stack.workers:
        other.kill()
    profile = {
        "kind": "openai",
        "url": upstream.url,
        "model": "up",
        "slots": 4,
        "context_tokens": 8192,
        "options": {"can_continue": can_continue},
    }
    env = {"ENGINE_PROFILES": json.dumps({"sim": profile})}
    worker = stack.start_worker(env=env)  # here: children end with the thread that forks
    try:
        await asyncio.to_thread(stack.wait_ready)
        yield worker
    finally:
        worker.kill()


REST = Reply(delta(" three"), delta(" four"), finish(), usage(30, 0, 2), DONE)
ANEW = Reply(delta("three"), delta(" four"), finish(), usage(30, 0, 2), DONE)
BROKEN: dict[str, tuple[Step, ...]] = {
    "reset": (Reset(),),
    "closed": (Close(),),
    "an error in the stream": (frame({"error": {"message": "out of memory", "code": 500}}), DONE),
    "an end without a finish": (DONE,),
    "no end at all": (),
    "not JSON": (b"data: <html>\n\n",),
}


async def test_replica_breaks_off(
    breakable: Stack, ada: Person, upstream: Upstream, worker: Process
) -> None:
    """In every way there is: a failure, and never an end."""
    for how, steps in BROKEN.items():
        before = len(upstream.requests)
        upstream.answers(Reply(delta("one two\n"), *steps), PROBED, REST)
        phone = await Phone(ada.headers).send(breakable.webs[0].url, "Count!")
        _assert_went_on(phone, "one two\n three four", breakable, ada)
        first, _, again = [r.body for r in upstream.requests[before:] if r.method == "POST"]
        begun = {"role": "assistant", "content": "one two"}
        # The white space at the end is kept back, for templates strip it.
        assert again["messages"] == [*first["messages"], begun], how
        assert again["max_tokens"] < first["max_tokens"], how


async def test_replica_that_cannot_continue(
    breakable: Stack, ada: Person, upstream: Upstream
) -> None:
    """The answer begins again, once there is a new one; what was written first is not charged."""
    async with _only_worker(breakable, upstream, can_continue=False):
        upstream.answers(Reply(delta("one two"), Close()), PROBED, Reply(Close()), PROBED, ANEW)
        phone = await Phone(ada.headers).send(breakable.webs[0].url, "Count!")
    _assert_went_on(phone, "three four", breakable, ada, times=2)
    texts = [frame.data["text"] for frame in phone.frames if frame.name == "snapshot"]
    assert texts[:2] == ["one two", "one two"], "kept until a new one begins"
    assert "one two" not in texts[2]
    assert phone.done is not None
    assert phone.done["usage"]["output_tokens"] == 2


async def test_replica_refuses_to_continue(
    breakable: Stack, ada: Person, upstream: Upstream, worker: Process
) -> None:
    """Its template alters the answer's text, for one: the message can still be answered."""
    refusal = Reply.of_json({"error": {"message": "the final message does not end so"}}, 400)
    upstream.answers(Reply(delta("one two"), Close()), PROBED, refusal, ANEW)
    phone = await Phone(ada.headers).send(breakable.webs[0].url, "Count!")
    _assert_went_on(phone, "three four", breakable, ada)


PROBED = Reply(delta("Hi"), finish("length"), DONE)


async def test_replica_silent_and_not_healthy(
    breakable: Stack, ada: Person, upstream: Upstream, worker: Process
) -> None:
    """Alone, and no answer to its health check: the request is given up, and made again later."""
    upstream.answers(Reply(delta("one two"), Hang()), PROBED, REST)
    phone = Phone(ada.headers)
    task = asyncio.create_task(phone.send(breakable.webs[0].url, "Count!"))
    await phone.until(lambda p: p.text)
    upstream.answers(Reply.of_json({}, 503), path=MODELS)
    asked = next(r for r in upstream.requests if r.method == "POST")
    await asked.gone()
    assert not phone.done
    upstream.answers(Reply.of_json({"data": []}), path=MODELS)
    await task
    _assert_went_on(phone, "one two three four", breakable, ada)


async def test_a_suspect_gets_no_run_before_it_answers(
    breakable: Stack, ada: Person, upstream: Upstream, worker: Process
) -> None:
    """Its health check says that all is well; its core hangs."""
    upstream.answers(Reply(delta("one two"), Close()), Reply(Hang()))
    phone = Phone(ada.headers)
    task = asyncio.create_task(phone.send(breakable.webs[0].url, "Count!"))
    await upstream_asked(upstream, 2)
    healthy = "SELECT healthy, detail FROM generation_replica WHERE name = %s"

    def is_out() -> bool:
        ((ok, detail),) = breakable.rows(healthy, worker.replica)
        return not ok and "suspect" in detail

    await asyncio.to_thread(wait_for, is_out, "the replica to be out of rotation", worker)
    assert not phone.done
    upstream.answers(PROBED, REST)
    await task
    _assert_went_on(phone, "one two three four", breakable, ada)


async def upstream_asked(upstream: Upstream, times: int) -> None:
    async with asyncio.timeout(60):
        while len([r for r in upstream.requests if r.method == "POST"]) < times:
            await asyncio.sleep(0.05)


def _assert_went_on(phone: Phone, text: str, stack: Stack, ada: Person, times: int = 1) -> None:
    assert phone.error is None
    assert phone.done is not None
    assert phone.done["finish"] == "stop"
    assert phone.text == text == stored_reply(stack.webs[0].url, ada.headers, phone.start)
    assert phone.told == ["recovered"] * times
