"""The embedded engine with the real demo model: what llama.cpp's server truly does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from generation.engines import (
    ChatMessage,
    EngineProfile,
    EngineRejected,
    GenerateRequest,
    Piece,
    build_engine,
)
from generation.engines.llamacpp import LlamaCppEngine
from generation.engines.openai import estimate_tokens
from tests.phone import PATIENT

pytestmark = pytest.mark.model

REPOSITORY = Path(__file__).parents[2]
API_KEY = "only-for-this-test"
SLOTS = 2
CONTEXT_TOKENS = 320
END_TIMEOUT_S = 100.0

COUNT = (
    ChatMessage("system", "You count."),
    ChatMessage("user", "Count from one to ten in English words, separated by commas."),
)
COUNTED = "One, two, three, four,"


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    url: str


@pytest.fixture(scope="module")
def server(demo_model_path: Path) -> Iterator[Server]:
    with running_server(demo_model_path) as running:
        yield running


class running_server:  # noqa: N801 - used like a function
    """The server in a process of its own, ready."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "generation.engines.llamacpp_server"]
        command += ["--model", str(self._model), "--port", str(self._port)]
        command += ["--slots", str(SLOTS), "--context-tokens", str(CONTEXT_TOKENS)]
        environment = {**os.environ, "ENGINE_API_KEY": API_KEY}
        return subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Server:
        self._process = self.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == f"engine: ready on {self.url}\n", line
        return Server(self._process, self.url)

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    assert isinstance(port, int)
    return port


@pytest.fixture
async def engine(server: Server) -> AsyncIterator[LlamaCppEngine]:
    engine = make_engine(server)
    yield engine
    await engine.aclose()


def make_engine(server: Server, api_key: str = API_KEY) -> LlamaCppEngine:
    profile = EngineProfile("demo", "llamacpp", server.url, api_key, "demo", CONTEXT_TOKENS, SLOTS)
    engine = build_engine(profile)
    assert isinstance(engine, LlamaCppEngine)
    return engine


def request(*messages: ChatMessage, max_tokens: int = 30, partial: str = "") -> GenerateRequest:
    return GenerateRequest("g_1", "demo", messages, max_tokens, temperature=0.0, partial=partial)


async def collect(engine: LlamaCppEngine, asked: GenerateRequest) -> list[Piece]:
    return [piece async for piece in engine.generate(asked)]


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


async def requests_in_work(server: Server) -> int:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {API_KEY}"}) as client:
        metrics = (await client.get(f"{server.url}/metrics", timeout=60)).text
    values = dict(line.split(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    return int(float(values["llamacpp:requests_processing"]))


async def nothing_in_work(server: Server) -> None:
    async with asyncio.timeout(END_TIMEOUT_S):
        # Each question waits for the server's next step, so this does not spin.
        while await requests_in_work(server):
            pass


async def test_it_answers_and_tells_the_usage(engine: LlamaCppEngine) -> None:
    pieces = await collect(engine, request(*COUNT))
    assert text_of(pieces).lower().startswith("one, two, three")
    assert pieces[-1].finish in ("stop", "length")
    usage = pieces[-1].usage
    assert usage is not None
    assert usage.prompt_tokens == await engine.count_tokens(COUNT)
    # The end-of-turn token is counted by the server and has no text.
    assert 0 <= usage.output_tokens - sum(1 for piece in pieces if piece.text) <= 3
    assert sum(piece.tokens for piece in pieces) == usage.output_tokens


async def test_the_next_turn_takes_the_last_one_from_the_cache(engine: LlamaCppEngine) -> None:
    first = await collect(engine, request(*COUNT))
    turns = (*COUNT, ChatMessage("assistant", text_of(first)), ChatMessage("user", "Thanks!"))
    usage = (await collect(engine, request(*turns, max_tokens=3)))[-1].usage
    assert usage is not None
    assert usage.cached_tokens >= await engine.count_tokens(COUNT) - 8
    assert usage.cached_tokens < usage.prompt_tokens


async def test_it_goes_on_after_a_partial_answer_and_repeats_nothing(
    engine: LlamaCppEngine,
) -> None:
    assert engine.can_continue
    assert text_of(await collect(engine, request(*COUNT, partial=COUNTED))).startswith(" five")


@pytest.mark.parametrize(
    "partial",
    [
        "  spaces first",
        "<think>\nHm",
        "<tool_call>\n",
        "ends with space ",
        "ends with lines\n\n",
        "```python\nprint(",
        "👨‍👩‍👧‍👦",
        '{"a": ',
    ],
)
async def test_no_partial_is_ever_repeated(engine: LlamaCppEngine, partial: str) -> None:
    asked = request(*COUNT, max_tokens=8, partial=partial)
    pieces = await collect(engine, asked)
    usage = pieces[-1].usage
    assert usage is not None
    assert not text_of(pieces).startswith(partial)
    assert text_of(pieces) or usage.output_tokens <= 1, "text was taken for something else"
    assert usage.prompt_tokens > await engine.count_tokens(COUNT)


async def test_characters_of_several_output_tokens_come_whole(engine: LlamaCppEngine) -> None:
    family = "👨‍👩‍👧‍👦"
    asked = request(ChatMessage("user", f"Repeat ten times: {family}"), partial=f"{family} " * 3)
    pieces = await collect(engine, asked)
    assert family in text_of(pieces)
    assert "\ufffd" not in text_of(pieces)
    # A family has more output tokens than characters: some pieces waited for their last byte.
    assert sum(1 for piece in pieces if piece.text) < sum(piece.tokens for piece in pieces)


async def test_a_prompt_longer_than_the_context_is_rejected(engine: LlamaCppEngine) -> None:
    with pytest.raises(EngineRejected, match="longer than the engine's context"):
        await collect(engine, request(ChatMessage("user", "hello world " * CONTEXT_TOKENS)))


async def test_the_context_is_per_slot(engine: LlamaCppEngine) -> None:
    """Just fits one slot; if the slots shared the context's half, it would be refused."""
    messages = [ChatMessage("user", "tree " * (CONTEXT_TOKENS - 60))]
    assert CONTEXT_TOKENS / SLOTS < await engine.count_tokens(messages) < CONTEXT_TOKENS
    pieces = await collect(engine, request(*messages, max_tokens=2))
    assert pieces[-1].finish == "length"


@pytest.mark.parametrize("place", ["while the prompt is read", "in mid-answer"])
async def test_a_stop_frees_the_slot(engine: LlamaCppEngine, server: Server, place: str) -> None:
    if place == "in mid-answer":
        asked = request(ChatMessage("user", "Tell a long story."), max_tokens=900)
        async with aclosing(engine.generate(asked)) as pieces:
            for _ in range(3):
                await anext(pieces)
            assert await requests_in_work(server) == 1
    else:
        long = ChatMessage("user", "river house tree " * 80)
        task = asyncio.create_task(collect(engine, request(long, max_tokens=900)))
        while await requests_in_work(server) == 0:
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await nothing_in_work(server)


async def test_two_answers_at_once_do_not_mix(engine: LlamaCppEngine) -> None:
    letters = (ChatMessage("user", "Say the English alphabet, letters separated by commas."),)
    counted, spelt = await asyncio.gather(
        collect(engine, request(*COUNT, partial=COUNTED)),
        collect(engine, request(*letters, partial="A, B, C, D,")),
    )
    assert text_of(counted).startswith(" five, six")
    assert text_of(spelt).startswith(" E, F")


async def test_the_estimate_is_never_below_the_count(engine: LlamaCppEngine) -> None:
    texts = [
        "",
        "The quick brown fox jumps over the lazy dog. " * 5,
        "Donaudampfschifffahrtsgesellschaftskapitän, Rindfleischetikettierung",
        "3.14159265358979323846264338327950288",
        "漢字かな交じり文 नमस्ते שלום 👨‍👩‍👧‍👦 " * 3,
        "def f(x):\n    return [y ** 2 for y in x if y % 3]\n" * 3,
        "xqzjkvwpbm qzxjkw QZXJKW zqxj",
        "!!!???;;;,,,((([[[{{{",
    ]
    for text in texts:
        messages = [ChatMessage("system", "x"), ChatMessage("user", text)]
        assert estimate_tokens(messages) >= await engine.count_tokens(messages), text


async def test_health_needs_no_key_and_answers_do(server: Server) -> None:
    stranger = make_engine(server, api_key="")
    assert (await stranger.health()).ok
    with pytest.raises(EngineRejected, match="key"):
        await collect(stranger, request(*COUNT))
    with pytest.raises(EngineRejected, match="key"):
        await stranger.count_tokens(COUNT)
    await stranger.aclose()


def test_it_ignores_sigint_and_ends_at_sigterm(demo_model_path: Path) -> None:
    with running_server(demo_model_path) as server:
        server.process.send_signal(signal.SIGINT)
        assert httpx.get(f"{server.url}/health", **PATIENT).json() == {"status": "ok"}
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(END_TIMEOUT_S) == 0


def test_sigterm_does_not_wait_for_the_model_to_load(demo_model_path: Path) -> None:
    # A small model is loaded soon, on a busy machine sooner than it is noticed or told to end.
    assert any(end_while_loading(demo_model_path) == -signal.SIGTERM for _ in range(5))


def end_while_loading(model: Path) -> int:
    """The exit status of a server told to end while it loads: 0 where it had loaded by then."""
    starting = running_server(model)
    process = starting.start()
    try:
        while (status := health_status(starting.url)) is None:
            assert process.poll() is None
        assert status in (httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.OK)
        process.send_signal(signal.SIGTERM)
        ended = process.wait(END_TIMEOUT_S)
        assert ended in (0, -signal.SIGTERM)
        return ended
    finally:
        process.kill()
        process.communicate()


def health_status(url: str) -> int | None:
    """None where nobody answers yet."""
    try:
        return httpx.get(f"{url}/health", **PATIENT).status_code
    except httpx.TransportError:
        return None


def test_a_hindrance_is_one_line_and_exit_status_2(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 64)
    for model, key in ((tmp_path / "missing.gguf", API_KEY), (broken, API_KEY), (broken, "")):
        command = [sys.executable, "-m", "generation.engines.llamacpp_server"]
        command += ["--model", str(model), "--port", str(free_port())]
        ended = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "ENGINE_API_KEY": key},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ended.returncode == 2, ended.stderr
        assert ended.stderr.splitlines()[-1].startswith("engine: ")
        assert "Traceback" not in ended.stderr
        assert not ended.stdout
