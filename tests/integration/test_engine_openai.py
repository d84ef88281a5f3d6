"""The openai engine against a server that does whatever can go wrong on a wire."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from generation.engines import (
    ChatMessage,
    EngineCutOff,
    EngineError,
    EngineProfile,
    EngineRejected,
    EngineUnavailable,
    GenerateRequest,
    Piece,
    Usage,
    build_engine,
)
from generation.engines.openai import OpenAIEngine
from tests.upstream import (
    DONE,
    Close,
    Hang,
    Reply,
    Reset,
    Upstream,
    Wait,
    delta,
    finish,
    frame,
    usage,
)

HARD_TEXT = "漢字 👨‍👩‍👧‍👦 नमस्ते שלום\u2028x\x85y\r\n\ndata: [DONE]\n\ndata: {}\n"
GOOD = Reply(delta("Hello"), finish(), usage(5, 2, 1), DONE)
# The promise is 250 ms; a busy test machine gets more. Without the close it would be for ever.
STOP_REACHES_ENGINE_S = 5.0


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as running:
        yield running


@pytest.fixture
async def engine(upstream: Upstream) -> AsyncIterator[OpenAIEngine]:
    engine = make_engine(upstream)
    yield engine
    await engine.aclose()


def make_engine(upstream: Upstream, slots: int = 4, **options: object) -> OpenAIEngine:
    profile = EngineProfile(
        "p", "openai", upstream.url, api_key="k1", model="their-name", slots=slots, options=options
    )
    engine = build_engine(profile)
    assert isinstance(engine, OpenAIEngine)
    return engine


def request(run: str = "g_1", text: str = "Hi", partial: str = "") -> GenerateRequest:
    messages = (ChatMessage("system", "Be brief."), ChatMessage("user", text))
    return GenerateRequest(run, "our-name", messages, max_tokens=50, partial=partial)


async def collect(engine: OpenAIEngine, asked: GenerateRequest | None = None) -> list[Piece]:
    return [piece async for piece in engine.generate(asked or request())]


async def collect_until_error(engine: OpenAIEngine) -> tuple[str, EngineError]:
    text = ""
    try:
        async for piece in engine.generate(request()):
            assert piece.finish is None, "a broken answer must not look like a whole one"
            text += piece.text
    except EngineError as error:
        return text, error
    raise AssertionError("the stream ended without an error and without a finish")


async def test_it_sends_what_was_asked_and_yields_what_was_answered(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    upstream.answers(Reply(delta("Hel"), delta("lo"), finish(), usage(9, 4, 2), DONE))
    asked = GenerateRequest("g_7", "our-name", (ChatMessage("user", "Hi"),), 50, temperature=0.5)
    pieces = await collect(engine, asked)
    assert pieces == [
        Piece("Hel", 1),
        Piece("lo", 1),
        Piece("", 0, "stop", Usage(9, 4, 2)),
    ]
    (received,) = upstream.requests
    assert received.body == {
        "model": "their-name",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "max_tokens": 50,
        "temperature": 0.5,
        "stream_options": {"include_usage": True},
    }
    assert received.headers["authorization"] == "Bearer k1"
    assert received.headers["x-request-id"] == "g_7"


async def test_options_change_what_is_sent(upstream: Upstream) -> None:
    upstream.answers(GOOD)
    engine = make_engine(upstream, include_usage=False, extra_body={"top_k": 3})
    await collect(engine)
    await engine.aclose()
    body = upstream.requests[0].body
    assert "stream_options" not in body
    assert body["top_k"] == 3


async def test_prompts_may_hold_anything(upstream: Upstream, engine: OpenAIEngine) -> None:
    upstream.answers(GOOD)
    await collect(engine, request(text="a\x00b\ud83d" + HARD_TEXT))
    assert upstream.requests[0].body["messages"][1]["content"] == "a\ufffdb\ufffd" + HARD_TEXT


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
async def test_f32_characters_cut_between_network_reads_stay_whole(
    upstream: Upstream, engine: OpenAIEngine, ascii_only: bool, chunked: bool
) -> None:
    wire = [delta(c, ascii_only=ascii_only) for c in (HARD_TEXT, HARD_TEXT[::-1])]
    upstream.answers(Reply(*wire, finish(), DONE, byte_by_byte=True, chunked=chunked))
    pieces = await collect(engine)
    assert "".join(piece.text for piece in pieces) == HARD_TEXT + HARD_TEXT[::-1]


async def test_a_connection_is_used_again(upstream: Upstream, engine: OpenAIEngine) -> None:
    upstream.answers(GOOD)
    for _ in range(5):
        await collect(engine)
    assert upstream.connections == 1


@pytest.mark.parametrize("ending", [Close(), Reset()], ids=["close", "reset"])
async def test_a_kept_connection_that_just_closed_is_not_a_fault(
    upstream: Upstream, engine: OpenAIEngine, ending: Close | Reset
) -> None:
    upstream.answers(GOOD, Reply(ending, head=False), GOOD)
    for _ in range(2):
        assert "".join(piece.text for piece in await collect(engine)) == "Hello"
    assert (upstream.connections, len(upstream.requests)) == (2, 3)


async def test_health_is_asked_again_where_the_kept_connection_just_closed(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    listed = Reply.of_json({"data": []})
    upstream.answers(listed, Reply(Close(), head=False), listed, path="/v1/models")
    for _ in range(2):
        assert (await engine.health()).ok
    assert upstream.connections == 2


async def test_f04_a_reset_in_mid_answer_is_a_cut_and_keeps_the_text(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    ready = asyncio.Event()
    chunks = [delta(f"w{n} ") for n in range(5)]
    upstream.answers(Reply(*chunks, Wait(ready), Reset()))
    pieces = engine.generate(request())
    assert [(await anext(pieces)).text for _ in range(5)] == [f"w{n} " for n in range(5)]
    # Only now: a reset makes the kernel throw away what was not read yet.
    ready.set()
    with pytest.raises(EngineCutOff) as caught:
        await anext(pieces)
    assert caught.value.retryable


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_close_in_mid_answer_is_a_cut(
    upstream: Upstream, engine: OpenAIEngine, chunked: bool
) -> None:
    """Not chunked, the end of the connection is a proper end of the body: only we can tell."""
    upstream.answers(Reply(delta("a"), delta("b"), Close(), chunked=chunked))
    text, error = await collect_until_error(engine)
    assert (text, type(error)) == ("ab", EngineCutOff)


async def test_done_without_a_finish_is_a_cut(upstream: Upstream, engine: OpenAIEngine) -> None:
    upstream.answers(Reply(delta("a"), DONE))
    text, error = await collect_until_error(engine)
    assert (text, type(error)) == ("a", EngineCutOff)


@pytest.mark.parametrize("end", [Close(), Reset(), DONE])
async def test_after_the_finish_no_fault_spoils_the_answer(
    upstream: Upstream, engine: OpenAIEngine, end: Close | Reset | bytes
) -> None:
    last = Wait(asyncio.Event())
    upstream.answers(Reply(delta("whole"), finish(), delta("x"), last, end))
    pieces = []
    async for piece in engine.generate(request()):
        pieces.append(piece)
        last.event.set()
    assert "".join(piece.text for piece in pieces) == "whole"
    assert pieces[-1].finish == "stop"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(Reset(), head=False),
        Reply(Close(), head=False),
        Reply(Reset()),
        Reply(Close()),
        Reply(DONE),
        Reply(),
        Reply(chunked=False),
        Reply(usage(3, 0, 0), DONE),
    ],
    ids=["reset", "close", "head reset", "head close", "done", "empty", "eof", "usage"],
)
async def test_f05_a_fault_before_the_first_text_is_never_an_empty_stop(
    upstream: Upstream, engine: OpenAIEngine, reply: Reply
) -> None:
    upstream.answers(reply)
    for _ in range(25):
        text, error = await collect_until_error(engine)
        assert text == ""
        assert error.retryable
        assert isinstance(error, EngineCutOff | EngineUnavailable)


async def test_an_error_frame_in_the_stream_is_an_error(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    broken = frame({"error": {"message": "CUDA out of memory at 0x7f", "code": 500}})
    upstream.answers(Reply(delta("a"), broken, finish(), DONE))
    text, error = await collect_until_error(engine)
    assert (text, type(error), error.retryable) == ("a", EngineError, True)
    assert "CUDA" not in error.message


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (302, EngineRejected, False),
        (400, EngineRejected, False),
        (401, EngineRejected, False),
        (429, EngineUnavailable, True),
        (500, EngineError, True),
        (503, EngineUnavailable, True),
    ],
)
async def test_a_refusal_tells_its_kind_and_nothing_of_its_body(
    upstream: Upstream, engine: OpenAIEngine, status: int, kind: type[EngineError], retryable: bool
) -> None:
    upstream.answers(Reply.of_json({"error": {"message": "key k1, prompt Hi"}}, status))
    _, error = await collect_until_error(engine)
    assert (type(error), error.retryable) == (kind, retryable)
    assert "k1" not in error.message
    assert "Hi" not in error.message


async def test_a_prompt_that_is_too_long_is_said_so(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    """As llama.cpp says it."""
    refusal = {
        "error": {
            "code": 400,
            "message": "request (8030 tokens) exceeds the available context size (4096 tokens)",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 8030,
            "n_ctx": 4096,
        }
    }
    upstream.answers(Reply.of_json(refusal, 400))
    _, error = await collect_until_error(engine)
    assert type(error) is EngineRejected
    assert error.message == "The prompt is longer than the engine's context."


async def test_a_huge_refusal_is_not_read_to_its_end(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    upstream.answers(Reply(*[b"x" * 60_000] * 40, Hang(), status=400))
    _, error = await collect_until_error(engine)
    assert type(error) is EngineRejected
    await upstream.requests[0].gone()


async def test_a_server_that_does_not_stream_is_an_error(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    upstream.answers(Reply.of_json({"choices": [{"message": {"content": "x"}}]}))
    _, error = await collect_until_error(engine)
    assert "stream" in error.message


async def test_an_endless_line_is_refused(upstream: Upstream, engine: OpenAIEngine) -> None:
    upstream.answers(Reply(*[b"x" * 100_000] * 12, Hang()))
    _, error = await collect_until_error(engine)
    assert "too long" in error.message
    await upstream.requests[0].gone()


async def test_nobody_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    engine = build_engine(EngineProfile("p", "openai", f"http://127.0.0.1:{port}"))
    assert isinstance(engine, OpenAIEngine)
    _, error = await collect_until_error(engine)
    assert type(error) is EngineUnavailable
    assert not (await engine.health()).ok
    await engine.aclose()


@pytest.mark.parametrize("before", ["head", "text"])
async def test_silence_is_a_cut_only_where_it_was_asked_for(
    upstream: Upstream, before: str
) -> None:
    upstream.answers(Reply(Hang(), head=before == "text"))
    engine = make_engine(upstream, silence_s=0.1)
    _, error = await collect_until_error(engine)
    assert isinstance(error, EngineCutOff | EngineUnavailable)
    assert error.retryable
    await upstream.requests[0].gone()
    await engine.aclose()


STOP_PLACES = {
    "before the head": Reply(Hang(), head=False),
    "before the first text": Reply(Hang()),
    "after six pieces": Reply(*[delta("x")] * 6, Hang()),
}


@pytest.mark.parametrize("place", STOP_PLACES)
@pytest.mark.parametrize("how", ["cancel", "abort"])
async def test_f11_f14_a_stop_reaches_the_engine_at_once(
    upstream: Upstream, engine: OpenAIEngine, place: str, how: str
) -> None:
    upstream.answers(STOP_PLACES[place])
    loop = asyncio.get_running_loop()
    for number in range(1, 11):
        task = loop.create_task(collect(engine))
        received = await upstream.request(number)
        if place == "after six pieces":
            await _let_text_arrive()
        stopped_at = loop.time()
        if how == "cancel":
            task.cancel()
        else:
            await engine.abort("g_1")
        gone_at = await asyncio.wait_for(received.gone(), STOP_REACHES_ENGINE_S)
        with pytest.raises(EngineCutOff if how == "abort" else asyncio.CancelledError):
            await task
        assert gone_at - stopped_at < STOP_REACHES_ENGINE_S
    assert not engine._calls, "a call that is not forgotten holds its slot for ever"


async def _let_text_arrive() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_closing_the_iterator_reaches_the_engine(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    upstream.answers(Reply(delta("a"), Hang()))
    async with aclosing(engine.generate(request())) as pieces:
        assert (await anext(pieces)).text == "a"
    await upstream.requests[0].gone()


async def test_abort_also_ends_a_reader_that_is_not_waiting(
    upstream: Upstream, engine: OpenAIEngine
) -> None:
    upstream.answers(Reply(delta("a") + delta("b"), Hang()))
    pieces = engine.generate(request())
    assert (await anext(pieces)).text == "a"
    await engine.abort("g_1")
    await upstream.requests[0].gone()
    with pytest.raises(EngineCutOff):
        await anext(pieces)


async def test_abort_ends_only_the_run_it_names(upstream: Upstream, engine: OpenAIEngine) -> None:
    go_on = asyncio.Event()
    upstream.answers(Reply(delta("a"), Wait(go_on), finish(), DONE))
    one = asyncio.create_task(collect(engine, request("g_1")))
    other = asyncio.create_task(collect(engine, request("g_2")))
    await upstream.request(2)
    await engine.abort("g_1")
    await engine.abort("g_unknown")
    with pytest.raises(EngineCutOff):
        await one
    go_on.set()
    assert (await other)[-1].finish == "stop"


async def test_closing_the_engine_ends_what_runs(upstream: Upstream) -> None:
    engine = make_engine(upstream)
    upstream.answers(Reply(delta("a"), Hang()))
    task = asyncio.create_task(collect(engine))
    received = await upstream.request()
    await engine.aclose()
    with pytest.raises(EngineError):
        await task
    await received.gone()


async def test_a_stopped_request_gives_its_connection_back(upstream: Upstream) -> None:
    """More stops than the pool has connections, then an answer."""
    engine = make_engine(upstream, slots=1)
    upstream.answers(*[Reply(Hang())] * 40, GOOD)
    for number in range(1, 41):
        task = asyncio.create_task(collect(engine))
        await upstream.request(number)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert (await collect(engine))[-1].finish == "stop"
    await engine.aclose()


async def test_f14_parallel_runs_do_not_mix(upstream: Upstream, engine: OpenAIEngine) -> None:
    """F23's kind at the engine: equal requests, answers of their own."""
    gates = [asyncio.Event() for _ in range(4)]
    upstream.answers(
        *[
            Reply(delta(f"{n}-"), Wait(gate), delta(f"{n}."), finish(), DONE)
            for n, gate in enumerate(gates)
        ]
    )
    tasks = []
    for number in range(4):
        tasks.append(asyncio.create_task(collect(engine, request(f"g_{number}"))))
        await upstream.request(number + 1)
    for gate in reversed(gates):
        gate.set()
    texts = ["".join(piece.text for piece in await task) for task in tasks]
    assert texts == [f"{n}-{n}." for n in range(4)]


async def test_it_refuses_to_continue_unless_told_that_the_server_can(upstream: Upstream) -> None:
    upstream.answers(GOOD)
    engine = make_engine(upstream)
    with pytest.raises(EngineRejected):
        await collect(engine, request(partial="So far"))
    await engine.aclose()
    assert not upstream.requests
    engine = make_engine(upstream, can_continue=True)
    await collect(engine, request(partial="So far"))
    await engine.aclose()
    assert upstream.requests[0].body["messages"][-1] == {"role": "assistant", "content": "So far"}


async def test_health_asks_for_the_models(upstream: Upstream, engine: OpenAIEngine) -> None:
    upstream.answers(Reply.of_json({"data": []}), path="/v1/models")
    assert (await engine.health()).ok
    upstream.answers(Reply.of_json({}, 503), path="/v1/models")
    health = await engine.health()
    assert (health.ok, health.detail) == (False, "HTTP 503")


async def test_the_estimate_grows_with_the_text(engine: OpenAIEngine) -> None:
    short = await engine.count_tokens([ChatMessage("user", "Hi")])
    longer = await engine.count_tokens([ChatMessage("user", "Hi" * 1000)])
    assert longer - short == 999  # 1,998 more letters, two per token
    assert await engine.count_tokens([]) == 0
