"""Open streams hold nothing: no thread, no database connection, no growing buffer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.phone import Connection, FrameParser, Phone, call, stored_reply
from tests.stack import Process, Stack, directive, wait_for

STREAMS = 200
POOL = 5


@pytest.fixture(scope="module")
def narrow(stack: Stack) -> Iterator[Process]:
    """A web process with five threads and five database connections."""
    env = {
        "DATABASE_POOL_SIZE": str(POOL),
        "WEB_THREADS": str(POOL),
        "PGAPPNAME": "narrow",
    }
    web = stack.start_web(env=env)
    try:
        stack.wait_ready()
        yield web
    finally:
        web.kill()
        stack.webs.remove(web)


def _connections(stack: Stack) -> dict[str, int]:
    """How many the narrow process holds: to the contents, and to the keys."""
    query = (
        "SELECT datname, count(*) FROM pg_stat_activity"
        " WHERE application_name = 'narrow' GROUP BY datname"
    )
    return dict(stack.rows(query))


def _status(web: Process, name: str) -> int:
    lines = Path(f"/proc/{web.popen.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


async def test_many_open_streams(stack: Stack, narrow: Process) -> None:
    ada, bob = stack.people["ada"], stack.people["bob"]
    hold = stack.hold("idle")
    content = directive(tokens=4, hold="idle", hold_after=1)
    # One person may have a hundred open.
    phones = [Phone(who.headers) for who in (ada, bob) for _ in range(STREAMS // 2)]
    tasks = [asyncio.create_task(phone.send(narrow.url, content)) for phone in phones]
    for phone in phones:
        await phone.until(lambda p: p.start)
    assert {phone.status for phone in phones} == {200}
    began_s = time.monotonic()
    for _ in range(20):
        for path in ("/v1/models", "/v1/conversations", "/healthz"):
            answer = await asyncio.to_thread(call, "GET", narrow.url + path, ada.headers)
            assert answer.status_code == 200
    took_s = time.monotonic() - began_s
    print(f"60 calls beside {STREAMS} streams: {took_s:.1f} s")
    assert took_s < 60, "a second each, on a machine that does much else"
    assert max(_connections(stack).values()) <= POOL
    # Django's threads and the gateway's, the event loop, and what libraries keep.
    assert _status(narrow, "Threads") <= 3 * POOL + 8
    # Some leave; the others are held to the end.
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks[::2], return_exceptions=True)
    hold.unlink()
    await asyncio.gather(*tasks[1::2])
    assert {phone.text for phone in phones[1::2]} == {"w1 w2 w3 w4"}
    for phone in phones[::2]:
        await phone.follow(stack.webs[0].url)
        assert phone.text == "w1 w2 w3 w4"
    await asyncio.to_thread(_until_unwatched, stack, [phone.run for phone in phones])


def _until_unwatched(stack: Stack, runs: list[str]) -> None:
    with redis.Redis.from_url(stack.env["REDIS_URL"]) as client:
        wait_for(
            lambda: not any(client.hlen(f"run:{{{run}}}:w") for run in runs),
            "the gateways to forget what nobody views",
        )


async def test_heartbeats_in_silence(stack: Stack) -> None:
    """Before the first token and in mid-answer, on a send and on a resume."""
    ada = stack.people["ada"]
    hold = stack.hold("silent")
    phones = [Phone(ada.headers) for _ in range(3)]
    before = directive(tokens=2, hold="silent")
    within = directive(tokens=2, hold="silent", hold_after=1)
    tasks = [
        asyncio.create_task(phone.send(web.url, content))
        for phone, web, content in zip(phones, stack.webs, (before, within), strict=False)
    ]
    await phones[1].until(lambda p: p.text)
    phones[2].run = phones[1].run
    tasks.append(asyncio.create_task(phones[2].resume(stack.webs[0].url)))
    began_s = time.monotonic()
    for phone in phones:
        await phone.until(lambda p: p.comments)
    assert time.monotonic() - began_s > 5, "one in ten seconds, not more"
    hold.unlink()
    await asyncio.gather(*tasks)
    assert [phone.text for phone in phones] == ["w1 w2"] * 3


async def test_a_slow_reader_misses_nothing(stack: Stack, long_answers: None) -> None:
    """It reads a byte now and then while the whole answer is written; then it hurries."""
    ada, web = stack.people["ada"], stack.webs[0]
    witness = Phone(ada.headers)
    content = directive(tokens=30_000, tokens_per_s=8_000)
    task = asyncio.create_task(witness.send(stack.webs[1].url, content))
    await witness.until(lambda p: p.start)
    headers = {**ada.headers, "Accept": "text/event-stream"}
    url = f"{web.url}/v1/runs/{witness.run}/stream"
    slow = await Connection.open("GET", url, headers, receive_buffer_bytes=2_048)
    chunks = slow.chunks()
    early = [await anext(chunks)]
    await task
    assert len(witness.text) > 100_000, "more than the buffers on the way can hold"
    parser, phone = FrameParser(), Phone(ada.headers, witness.run)
    for chunk in early + [chunk async for chunk in chunks]:
        for frame in parser.feed(chunk):
            phone.take(frame)
    await slow.drop()
    assert (phone.text, phone.done) == (witness.text, witness.done)
    assert stored_reply(web.url, ada.headers, witness.start) == witness.text


@pytest.fixture
def long_answers(stack: Stack) -> Iterator[None]:
    """The default model may write as much as its context holds."""
    with psycopg.connect(stack.env["DATABASE_URL"], autocommit=True) as connection:
        query = "SELECT answer_tokens, context_tokens FROM generation_model WHERE is_default"
        before = connection.execute(query).fetchone()
        update = "UPDATE generation_model SET answer_tokens = %s, context_tokens = %s"
        connection.execute(f"{update} WHERE is_default", [31_000, 32_768])
        yield
        connection.execute(f"{update} WHERE is_default", before)
