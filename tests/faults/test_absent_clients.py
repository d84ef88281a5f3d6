"""Clients that read slowly, or leave in mid-answer, cost a web process no memory that stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.phone import Connection, Phone, post_message
from tests.stack import Person, Process, Stack, directive, wait_for

STREAMS = 2_000
AT_ONCE = 40
SLOW = 50


@pytest.fixture
def web(breakable: Stack) -> Iterator[Process]:
    """One that nothing else uses."""
    web = breakable.start_web()
    breakable.wait_ready()
    yield web
    web.kill()
    breakable.webs.remove(web)


def _kib(web: Process) -> int:
    """What is the process' own: the rest are pages of files."""
    lines = Path(f"/proc/{web.popen.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_D", "Swap:")))


async def _read_ended_runs(web: Process, ada: Person, runs: list[str], count: int) -> None:
    """Short streams, a third of them left in the middle."""
    numbers = iter(range(count))

    async def read() -> None:
        for number in numbers:
            phone = Phone(ada.headers, runs[number % len(runs)])
            await phone.resume(web.url, max_bytes=200 if number % 3 == 0 else None)
            assert phone.status == 200, phone.body

    await asyncio.gather(*(read() for _ in range(AT_ONCE)))


async def test_two_thousand_short_streams(breakable: Stack, web: Process) -> None:
    ada = breakable.people["ada"]
    content = directive(tokens=200)
    runs = [(await Phone(ada.headers).send(breakable.webs[0].url, content)).run for _ in range(8)]
    # What a process needs once, it has after some hundred of them.
    await _read_ended_runs(web, ada, runs, 400)
    before = _kib(web)
    await _read_ended_runs(web, ada, runs, STREAMS)
    after = _kib(web)
    print(f"{before} KiB before, {after} KiB after {STREAMS} streams")
    assert after < before * 1.1


@pytest.fixture
def long_answers(breakable: Stack) -> Iterator[None]:
    (before,) = breakable.rows(
        "SELECT answer_tokens, context_tokens FROM generation_model WHERE slug = 'sim'"
    )
    update = (
        "UPDATE generation_model SET answer_tokens = %s, context_tokens = %s WHERE slug = 'sim'"
    )
    breakable.execute(update, 16_000, 32_768)
    yield
    breakable.execute(update, *before)


async def test_slow_phone(breakable: Stack, web: Process, long_answers: None) -> None:
    """Fifty of them read next to nothing of an answer that is larger than their buffers."""
    ada = breakable.people["ada"]
    content = directive(tokens=16_000, tokens_per_s=5_000)
    run = post_message(breakable.webs[0].url, ada.headers, content)["id"]
    url, headers = f"{web.url}/v1/runs/{run}/stream", {**ada.headers, "Accept": "text/event-stream"}
    await Phone(ada.headers).send(web.url, directive(tokens=5))
    before = _kib(web)
    slow = [
        await Connection.open("GET", url, headers, receive_buffer_bytes=2_048) for _ in range(SLOW)
    ]
    for connection in slow:
        await connection.reader.read(1)
    ended = "SELECT 1 FROM generation_run WHERE id = %s::uuid AND status = 'completed'"
    await asyncio.to_thread(
        wait_for, lambda: breakable.rows(ended, run.removeprefix("g_")), "the answer to be written"
    )
    after = _kib(web)
    whole = await Phone(ada.headers, run).resume(breakable.webs[0].url)
    answer_kib = len(whole.text) / 1024
    print(f"{(after - before) / SLOW:.0f} KiB for each slow phone, of {answer_kib:.0f} KiB")
    assert after - before < SLOW * answer_kib / 2
    for connection in slow:
        await connection.drop()
