"""What the vllm engine asks for, byte by byte, from a server that notes it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from generation.engines import (
    ChatMessage,
    EngineError,
    EngineProfile,
    EngineUnavailable,
    GenerateRequest,
    Load,
    Usage,
    build_engine,
    vllm,
)
from generation.engines.profiles import InvalidProfiles
from generation.engines.protocol import Engine
from tests.upstream import DONE, Hang, Reply, Upstream, delta, finish, frame, usage

GOOD = Reply(delta("Hello"), finish(), usage(50, 32, 1), DONE)
TURNS = (ChatMessage("system", "Be brief."), ChatMessage("user", "Hi\0!"))


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as running:
        yield running


def make_engine(url: str, **options: object) -> Engine:
    return build_engine(EngineProfile("p", "vllm", url, model="demo", options=options))


async def ask(upstream: Upstream, request: GenerateRequest, **options: object) -> dict[str, Any]:
    """The body of the request that the engine sent."""
    upstream.answers(GOOD)
    engine = make_engine(upstream.url, **options)
    try:
        pieces = [piece async for piece in engine.generate(request)]
    finally:
        await engine.aclose()
    assert pieces[-1].usage == Usage(50, 32, 1)
    return (await upstream.request()).body


async def test_a_fresh_answer(upstream: Upstream) -> None:
    body = await ask(upstream, GenerateRequest("g_1", "m", TURNS, 20, priority=3))
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    # A server without priority scheduling refuses them, and no salt is no salt.
    for absent in ("priority", "cache_salt", "continue_final_message", "add_generation_prompt"):
        assert absent not in body


async def test_a_continued_answer_with_salt_and_priority(upstream: Upstream) -> None:
    request = GenerateRequest(
        "g_1", "m", TURNS, 20, partial="Once upon", cache_salt="o_1", priority=-2
    )
    body = await ask(upstream, request, priority_scheduling=True)
    assert body["messages"][-1] == {"role": "assistant", "content": "Once upon"}
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False
    assert (body["cache_salt"], body["priority"]) == ("o_1", -2)


async def test_tokens_of_a_piece_are_those_that_the_server_counts(upstream: Upstream) -> None:
    def running(text: str, count: int) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        counts = {"prompt_tokens": 9, "completion_tokens": count}
        return frame({"choices": [choice], "usage": counts})

    upstream.answers(Reply(running("a", 1), running("bcd", 4), finish(), usage(9, 0, 4), DONE))
    engine = make_engine(upstream.url)
    pieces = [p async for p in engine.generate(GenerateRequest("g_1", "m", TURNS, 9))]
    await engine.aclose()
    assert [(p.text, p.tokens) for p in pieces] == [("a", 1), ("bcd", 3), ("", 0)]


async def test_tokens_are_counted_by_the_server(upstream: Upstream) -> None:
    counted = [Reply.of_json({"count": 31, "tokens": [1]}), Reply.of_json({"count": 33})]
    upstream.answers(*counted, path="/tokenize")
    engine = make_engine(upstream.url)
    try:
        assert await engine.count_tokens(TURNS) == 31
        assert await engine.count_tokens((*TURNS, ChatMessage("assistant", "Once"))) == 33
    finally:
        await engine.aclose()
    fresh, begun = upstream.requests[0].body, upstream.requests[1].body
    assert fresh["model"] == "demo"
    assert fresh["messages"][1] == {"role": "user", "content": "Hi\ufffd!"}
    assert "continue_final_message" not in fresh
    assert (begun["continue_final_message"], begun["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize("answer", [{}, {"count": "3"}, {"count": -1}, {"count": True}])
async def test_a_count_that_is_none_is_an_error(upstream: Upstream, answer: object) -> None:
    upstream.answers(Reply.of_json(answer), path="/tokenize")
    engine = make_engine(upstream.url)
    with pytest.raises(EngineError, match="count"):
        await engine.count_tokens(TURNS)
    await engine.aclose()


async def test_health_brings_the_load(upstream: Upstream) -> None:
    page = 'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting 1.0\n'
    upstream.answers(Reply.of_json({}), path="/health")
    upstream.answers(Reply(page.encode()), path="/metrics")
    engine = make_engine(upstream.url)
    health = await engine.health()
    await engine.aclose()
    assert health.ok
    assert health.load == Load(2, 1, 0.0, 0, 0)


async def test_a_dead_core_is_not_healthy_and_lacking_metrics_are_no_illness(
    upstream: Upstream,
) -> None:
    upstream.answers(Reply.of_json({}, 503), Reply.of_json({}), path="/health")
    upstream.answers(Reply.of_json({}, 404), path="/metrics")
    engine = make_engine(upstream.url)
    dead, alive = await engine.health(), await engine.health()
    await engine.aclose()
    assert (dead.ok, dead.detail, dead.load) == (False, "HTTP 503", None)
    assert (alive.ok, alive.load) == (True, None)


async def test_metrics_that_never_come_are_no_illness(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "LOAD_TIMEOUT_S", 0.2)
    upstream.answers(Reply.of_json({}), path="/health")
    upstream.answers(Reply(Hang()), path="/metrics")
    engine = make_engine(upstream.url)
    health = await engine.health()
    await engine.aclose()
    assert (health.ok, health.load) == (True, None)


async def test_over_a_unix_socket() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "e.sock"
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + delta("a"))
            await reader.read()  # to the end: the client has closed its side
            gone.set()
            writer.close()

        engine = make_engine(f"unix://{path}")
        with pytest.raises(EngineUnavailable):
            await anext(engine.generate(GenerateRequest("g_1", "m", TURNS, 9)))
        async with await asyncio.start_unix_server(serve, path):
            answer = engine.generate(GenerateRequest("g_2", "m", TURNS, 9))
            assert (await anext(answer)).text == "a"
            await answer.aclose()
            await asyncio.wait_for(gone.wait(), 60)
        await engine.aclose()


async def test_nothing_is_sent_to_a_socket_that_others_may_have_put_there() -> None:
    came: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.read(1))
        writer.close()

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "e.sock"
        engine = make_engine(f"unix://{path}")
        async with await asyncio.start_unix_server(serve, path):
            path.parent.chmod(0o777)
            health = await engine.health()
            assert (health.ok, health.detail) == (False, "cannot be reached: UnsafeSocket")
            with pytest.raises(EngineUnavailable, match="UnsafeSocket"):
                await anext(engine.generate(GenerateRequest("g_1", "m", TURNS, 9)))
        await engine.aclose()
    assert came == []


def test_a_priority_option_that_is_no_flag_is_refused() -> None:
    with pytest.raises(InvalidProfiles, match="priority_scheduling"):
        make_engine("http://h", priority_scheduling="yes")
