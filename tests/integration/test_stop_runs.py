"""Stop: heard by the engine at once, wherever the run is; what was written is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.phone import (
    Phone,
    get_run,
    get_thread,
    post_message,
    stop,
    stopped,
    stored_reply,
    text_of,
)
from tests.stack import Person, Stack, directive, wait_for

SLOTS = 8
BOUND_MS = 20_000
"""What a busy test machine is allowed for one stop: far less than an answer here would take."""
AIM_MS = 250
"""What the best of some tries must keep: the way to the engine, without the machine's other
business."""
TRIES = 20


@pytest.fixture
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


@pytest.fixture
def hold(stack: Stack) -> Iterator[Path]:
    path = stack.hold("stop")
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def full_slots(stack: Stack, hold: Path) -> Iterator[list[str]]:
    """Every slot holds a run that does not go on before `hold` is gone."""
    bob = stack.people["bob"]
    content = directive(tokens=1, hold="stop")
    runs = [post_message(stack.webs[0].url, bob.headers, content)["id"] for _ in range(SLOTS)]
    wait_for(lambda: all(stack.journal(run) for run in runs), "every slot to be taken")
    yield runs
    hold.unlink(missing_ok=True)
    for run in runs:
        wait_for(lambda run=run: _status(stack, bob, run) == "completed", "the slots to be free")


def _status(stack: Stack, person: Person, run: str) -> Any:
    return get_run(stack.webs[0].url, person.headers, run)["status"]


def _closed_ms(stack: Stack, run: str, asked_ms: float) -> float:
    """How long after `asked_ms` the engine's request was closed."""
    wait_for(lambda: len(stack.journal(run)) == 2, "the engine to let go")
    started, closed = stack.journal(run)
    assert (started["what"], closed["what"]) == ("started", "closed")
    return float(closed["at_ms"] - asked_ms)


def _now_ms() -> float:
    return time.time() * 1_000


class Stopped(NamedTuple):
    """The phone at the stream's end; when the engine had let go; what the stop was answered."""

    phone: Phone
    took_ms: float
    status: int


async def _stopped_while_streaming(stack: Stack, ada: Person, content: str, ready: Any) -> Stopped:
    """Send at the first process, stop through the second once `ready`."""
    phone = Phone(ada.headers)
    task = asyncio.create_task(phone.send(stack.webs[0].url, content))
    await phone.until(ready)
    run = phone.run
    await asyncio.to_thread(wait_for, lambda: stack.journal(run), "the engine to begin")
    asked_ms = _now_ms()
    answer = await asyncio.to_thread(stop, stack.webs[1].url, ada.headers, run)
    took_ms = _closed_ms(stack, run, asked_ms)
    await task
    found = get_run(stack.webs[1].url, ada.headers, run)
    assert (found["status"], found["finish"]) == ("stopped", "user_stopped")
    _assert_fits(answer, found)
    return Stopped(phone, took_ms, answer.status_code)


def _assert_fits(answer: httpx.Response, ended: dict[str, Any]) -> None:
    """A stop is answered with the run as it ended, or that it had not after two seconds.

    Two seconds are not enough for a busy machine.
    """
    assert answer.status_code in (200, 202), answer.text
    if answer.status_code == 200:
        assert answer.json() == ended
    else:
        assert (answer.json()["id"], answer.json()["status"]) == (ended["id"], "running")


async def test_stop_before_the_first_token(stack: Stack, ada: Person) -> None:
    content = directive(tokens=5, ttft_s=600)
    phone, took_ms, _ = await _stopped_while_streaming(stack, ada, content, lambda p: p.start)
    print(f"stop before the first token: engine closed after {took_ms:.0f} ms")
    assert took_ms < BOUND_MS
    assert phone.text == ""
    assert phone.done is not None
    assert phone.done["finish"] == "user_stopped"
    _assert_goes_on(stack, ada, phone, content)


async def test_stop_at_token_20(stack: Stack, ada: Person) -> None:
    content = directive(tokens=10_000, tokens_per_s=20)
    phone, took_ms, _ = await _stopped_while_streaming(
        stack, ada, content, lambda p: len(p.text.split()) >= 20
    )
    print(f"stop at token 20: engine closed after {took_ms:.0f} ms")
    assert took_ms < BOUND_MS
    assert phone.text.startswith("w1 w2 w3")
    assert phone.done is not None
    assert phone.done["finish"] == "user_stopped"
    assert phone.done["usage"]["output_tokens"] == stack.journal(phone.run)[1]["pieces"]
    _assert_goes_on(stack, ada, phone, content)


async def test_a_stop_reaches_the_engine_within_250_ms(stack: Stack, ada: Person) -> None:
    """Of many tries one was not held up: the engine let go at once, and 200 told of the end."""
    best_ms, statuses = BOUND_MS * 1.0, set()
    for _ in range(TRIES):
        _, took_ms, status = await _stopped_while_streaming(
            stack, ada, directive(tokens=5, ttft_s=600), lambda p: p.start
        )
        best_ms = min(best_ms, took_ms)
        statuses.add(status)
        if best_ms < AIM_MS and 200 in statuses:
            break
    print(f"best stop: engine closed after {best_ms:.0f} ms")
    assert best_ms < AIM_MS
    assert 200 in statuses


def _assert_goes_on(stack: Stack, ada: Person, phone: Phone, content: str) -> None:
    """What both saw is stored, and the next send stands below the stopped answer."""
    url, conversation = stack.webs[0].url, phone.start["conversation"]
    before = get_thread(url, ada.headers, conversation)
    assert [text_of(message) for message in before["messages"]] == [content, phone.text]
    assert before["live_runs"] == []
    sent = post_message(url, ada.headers, directive(tokens=2), conversation)
    wait_for(lambda: _status(stack, ada, sent["id"]) == "completed", "the next answer")
    after = get_thread(url, ada.headers, conversation)
    parents = [message["parent_id"] for message in after["messages"]]
    assert parents == [None, *(message["id"] for message in after["messages"][:-1])]
    assert len(parents) == 4


async def test_stop_of_a_queued_run(stack: Stack, ada: Person, full_slots: list[str]) -> None:
    phone = Phone(ada.headers)
    task = asyncio.create_task(phone.send(stack.webs[0].url, directive(tokens=3)))
    await phone.until(lambda p: p.notices)
    answer = await asyncio.to_thread(stop, stack.webs[1].url, ada.headers, phone.run)
    assert answer.status_code == 200
    assert answer.json()["status"] == "stopped"
    await task
    assert [frame.name for frame in phone.frames if frame.id] == ["start", "done"]
    assert phone.cursor == 2
    url = stack.webs[0].url
    assert stored_reply(url, ada.headers, phone.start) == ""
    assert stack.journal(phone.run) == [], "the engine never saw it"
    position = get_run(url, ada.headers, phone.run)["position"]
    assert position is None
    usage = stack.rows(
        "SELECT prompt_tokens, output_tokens FROM quotas_usageentry WHERE run_id::text = %s",
        _uuid(phone.run),
    )
    assert usage == [(0, 0)]


def _uuid(run: str) -> str:
    digits = run.removeprefix("g_")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


async def test_stop_twice_and_after_the_end(stack: Stack, ada: Person) -> None:
    content = directive(tokens=10_000, tokens_per_s=20)
    phone, _, _ = await _stopped_while_streaming(stack, ada, content, lambda p: p.text)
    first = get_run(stack.webs[0].url, ada.headers, phone.run)
    again = stop(stack.webs[0].url, ada.headers, phone.run)
    assert again.status_code == 200
    assert again.json() == first
    finished = await Phone(ada.headers).send(stack.webs[0].url, directive(tokens=2))
    late = stop(stack.webs[1].url, ada.headers, finished.run)
    assert (late.status_code, late.json()["finish"]) == (200, "stop")
    rows = stack.rows(
        "SELECT count(*) FROM quotas_usageentry WHERE run_id::text = ANY(%s)",
        [_uuid(phone.run), _uuid(finished.run)],
    )
    assert rows == [(2,)]


async def test_many_stops_at_once(stack: Stack, ada: Person) -> None:
    """Ten stops through both processes are one: one finish, one `done`."""
    phone = Phone(ada.headers)
    content = directive(tokens=10_000, tokens_per_s=30)
    task = asyncio.create_task(phone.send(stack.webs[0].url, content))
    await phone.until(lambda p: p.text)
    answers = await asyncio.gather(
        *(
            asyncio.to_thread(stop, stack.webs[number % 2].url, ada.headers, phone.run)
            for number in range(10)
        )
    )
    await task
    found = get_run(stack.webs[0].url, ada.headers, phone.run)
    assert found["finish"] == "user_stopped"
    for answer in answers:
        _assert_fits(answer, found)
    assert stored_reply(stack.webs[0].url, ada.headers, phone.start) == phone.text


async def test_stop_the_moment_it_is_sent(stack: Stack, ada: Person) -> None:
    """Between send, claim and the first token there is no gap a stop could fall into."""
    url, other = stack.webs[0].url, stack.webs[1].url
    for _ in range(6):
        sent = post_message(url, ada.headers, directive(tokens=10_000, tokens_per_s=20))
        found = await asyncio.to_thread(stopped, other, ada.headers, sent["id"])
        assert found["finish"] == "user_stopped"


async def test_a_client_that_leaves_stops_nothing(stack: Stack, ada: Person) -> None:
    for events in (1, 2):
        phone, held = Phone(ada.headers), stack.hold("leaves")
        content = directive(tokens=20, tokens_per_s=40, hold="leaves", hold_after=5)
        await phone.send(stack.webs[0].url, content, events=events)
        assert phone.done is None
        held.unlink()
        await asyncio.to_thread(
            wait_for, lambda p=phone: len(stack.journal(p.run)) == 2, "the answer to end"
        )
        assert stack.journal(phone.run)[1]["pieces"] == 20
        await phone.follow(stack.webs[1].url)
        assert phone.text == stored_reply(stack.webs[0].url, ada.headers, phone.start)
        assert phone.text.endswith("w20")
