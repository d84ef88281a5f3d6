"""Any server that speaks OpenAI's chat completions: llama.cpp, vLLM, Ollama, a gateway."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import httpx

from generation.engines.answer import AnswerReader, error_for
from generation.engines.errors import (
    EngineCutOff,
    EngineError,
    EngineRejected,
    EngineUnavailable,
)
from generation.engines.keeper_lock import Place, UnsafeDirectory
from generation.engines.protocol import (
    ChatMessage,
    EngineProfile,
    GenerateRequest,
    Health,
    Piece,
)
from generation.engines.text import clean_text

CONNECT_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 10.0
# Wait for a free connection; beyond it the replica has more callers than slots.
POOL_TIMEOUT_S = 5.0
# Health checks and token counts: short questions.
QUESTION_TIMEOUT_S = 5.0
# After the finish only usage and [DONE] come. A server that sends neither is not waited for.
TAIL_TIMEOUT_S = 5.0
# After [DONE]: reading the end of the body lets the connection be used again.
LAST_CHUNK_TIMEOUT_S = 0.05
# Connections beyond the slots, for health checks, counts and paid burst.
SPARE_CONNECTIONS = 16
# Below the 5 s after which llama.cpp's server closes idle connections, so that a request rarely
# meets one that is just being closed.
KEEPALIVE_S = 3.0
ERROR_BODY_BYTES_MAX = 64 * 1024
QUESTION_BODY_BYTES_MAX = 8 * 1024 * 1024
TEMPLATE_TOKENS_PER_MESSAGE = 16

_CONNECTION_ENDED = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)

_CHEAP = re.compile(r"[A-Za-z ]+")

T = TypeVar("T")


class UnsafeSocket(httpx.ConnectError):
    """The directory of the engine's socket is not ours alone: nothing is sent there."""


class _SocketTransport(httpx.AsyncHTTPTransport):
    """Looks at the directory before each request: one that is not there yet may be made by anybody,
    and whoever puts another socket there reads every prompt."""

    def __init__(self, socket: Path, limits: httpx.Limits) -> None:
        super().__init__(uds=str(socket), limits=limits)
        self._place = Place(socket)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            self._place.check()
        except UnsafeDirectory as error:
            raise UnsafeSocket(str(error), request=request) from None
        except OSError as error:
            raise httpx.ConnectError(type(error).__name__, request=request) from None
        return await super().handle_async_request(request)


class _Call:
    """One request on the wire. Its waits end when `abort` is called or the engine stays silent."""

    def __init__(self) -> None:
        self.response: httpx.Response | None = None
        self.aborted = False
        self._timer: asyncio.Timeout | None = None

    async def wait(self, step: Callable[[], Awaitable[T]], timeout_s: float | None) -> T:
        """Await `step()`. Raises EngineCutOff when aborted, TimeoutError when it takes too long."""
        self.check()
        try:
            async with asyncio.timeout(timeout_s) as self._timer:
                return await step()
        except (TimeoutError, httpx.HTTPError):
            self.check()
            raise
        finally:
            self._timer = None

    def check(self) -> None:
        if self.aborted:
            raise EngineCutOff("The request was aborted.") from None

    async def abort(self) -> None:
        self.aborted = True
        if self._timer is not None:
            # Cancels the pending read in its own task, and httpcore then closes the socket.
            if not self._timer.expired():
                self._timer.reschedule(0.0)
        elif self.response is not None:
            await self.response.aclose()


class OpenAIEngine:
    """See `Engine`. Options of the profile:

    - `silence_s`: no byte for so long is a cut; unset: wait for ever (a watchdog comes elsewhere)
    - `include_usage` (true): false for servers that refuse `stream_options`
    - `can_continue` (false): true for servers that go on after a trailing assistant message
    - `trust_env` (false): use the proxies named in the environment
    - `extra_body`: further keys of the request body

    Raises ValueError for options it does not know.
    """

    _options: ClassVar[frozenset[str]] = frozenset(
        {"silence_s", "include_usage", "can_continue", "trust_env", "extra_body"}
    )
    _can_continue_default: ClassVar[bool] = False

    def __init__(self, profile: EngineProfile) -> None:
        options = _Options(profile.options, self._options)
        self._profile = profile
        self._silence_s = options.seconds("silence_s")
        self._include_usage = options.flag("include_usage", True)
        self._extra_body = options.mapping("extra_body")
        self.can_continue = options.flag("can_continue", self._can_continue_default)
        self._calls: dict[str, list[_Call]] = {}
        self._client = _client(profile, trust_env=options.flag("trust_env", False))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Piece, None]:
        """See `Engine.generate`."""
        if request.partial and not self.can_continue:
            raise EngineRejected("The engine cannot continue a partial answer.")
        with self._call_of(request.run) as call:
            async with self._open(call, request) as response:
                answer = AnswerReader()
                chunks = response.aiter_bytes()
                while not answer.done:
                    chunk = await self._read(call, chunks, answer)
                    if chunk is None:
                        break
                    events = answer.events
                    for piece in answer.feed(chunk):
                        yield piece
                        call.check()
                    if request.signs is not None and answer.events > events:
                        (request.signs.over if answer.finished else request.signs.heard)()
                last = answer.end(_prompt_estimate(request))
                await self._read_to_end(call, chunks)
            yield last

    @contextmanager
    def _call_of(self, run: str) -> Iterator[_Call]:
        call = _Call()
        self._calls.setdefault(run, []).append(call)
        try:
            yield call
        finally:
            calls = self._calls[run]
            calls.remove(call)
            if not calls:
                del self._calls[run]

    @asynccontextmanager
    async def _open(self, call: _Call, request: GenerateRequest) -> AsyncIterator[httpx.Response]:
        response = await self._send(call, request)
        call.response = response
        try:
            if response.status_code != httpx.codes.OK:
                raise await _refusal(response)
            if "json" in response.headers.get("content-type", ""):
                raise EngineError("The engine does not stream its answers.")
            yield response
        finally:
            # Closes the connection unless the body was read to its end: that is how the engine
            # learns of a stop.
            await response.aclose()

    async def _send(self, call: _Call, request: GenerateRequest) -> httpx.Response:
        http_request = self._client.build_request(
            "POST",
            "/v1/chat/completions",
            content=_encode(self._body(request)),
            headers={"content-type": "application/json", "x-request-id": request.run},
        )
        try:
            return await call.wait(partial(self._begin, http_request), self._silence_s)
        except TimeoutError:
            raise EngineUnavailable("The engine did not begin to answer in time.") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Also a reset before the first byte: nothing was answered, another try is safe.
            raise EngineUnavailable(f"The engine cannot be reached: {_kind(error)}.") from None

    async def _begin(self, http_request: httpx.Request) -> httpx.Response:
        """The head of the answer. A connection that ended before it is tried once more.

        A server may close a kept connection just as it is used again (RFC 9112, 9.3.1); the second
        try takes another, and nothing was answered yet that could be answered twice.
        """
        try:
            return await self._client.send(http_request, stream=True)
        except _CONNECTION_ENDED:
            return await self._client.send(http_request, stream=True)

    def _body(self, request: GenerateRequest) -> dict[str, object]:
        messages = [{"role": m.role, "content": clean_text(m.text)} for m in request.messages]
        if request.partial:
            messages.append({"role": "assistant", "content": clean_text(request.partial)})
        body: dict[str, object] = {
            "model": self._profile.model or request.model,
            "messages": messages,
            "stream": True,
            "max_tokens": request.max_tokens,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if self._include_usage:
            body["stream_options"] = {"include_usage": True}
        return body | self._extra_body

    async def _read(
        self, call: _Call, chunks: AsyncIterator[bytes], answer: AnswerReader
    ) -> bytes | None:
        """The next bytes; None at the end of the body, however it ended."""
        timeout_s = TAIL_TIMEOUT_S if answer.finished else self._silence_s
        try:
            return await call.wait(lambda: _next(chunks), timeout_s)
        except TimeoutError:
            if answer.finished:
                return None
            raise EngineCutOff(f"The engine was silent for {timeout_s} s.") from None
        except httpx.HTTPError as error:
            if answer.finished:
                return None
            raise EngineCutOff(f"The engine's stream broke: {_kind(error)}.") from None

    async def _read_to_end(self, call: _Call, chunks: AsyncIterator[bytes]) -> None:
        try:
            await call.wait(lambda: _next(chunks), LAST_CHUNK_TIMEOUT_S)
        except (TimeoutError, httpx.HTTPError, EngineCutOff):
            # The answer is whole; all that is lost is a connection.
            return

    async def abort(self, run: str) -> None:
        """See `Engine.abort`."""
        for call in tuple(self._calls.get(run, ())):
            await call.abort()

    async def health(self) -> Health:
        """Whether the server lists its models."""
        return await self._health_at("/v1/models")

    async def _health_at(self, path: str) -> Health:
        try:
            async with asyncio.timeout(QUESTION_TIMEOUT_S):
                status, _ = await self._question(self._client.build_request("GET", path))
        except (TimeoutError, httpx.HTTPError) as error:
            return Health(False, f"cannot be reached: {_kind(error)}")
        except ValueError:
            return Health(False, "its answer is too long")
        return Health(True, "ok") if status == httpx.codes.OK else Health(False, f"HTTP {status}")

    async def _question(self, request: httpx.Request) -> tuple[int, bytes]:
        """Status and whole body of a short question.

        Raises httpx.HTTPError, and ValueError where the body is too long.
        """
        async with aclosing(await self._begin(request)) as response:
            return response.status_code, await read_body(response, QUESTION_BODY_BYTES_MAX)

    async def _ask(
        self, path: str, question: Mapping[str, object], timeout_s: float = QUESTION_TIMEOUT_S
    ) -> Mapping[str, object]:
        """The JSON object that the server answers. Raises `EngineUnavailable` or `EngineError`."""
        try:
            async with asyncio.timeout(timeout_s):
                request = self._client.build_request("POST", path, json=question)
                status, body = await self._question(request)
            payload = json.loads(body)
        except (TimeoutError, httpx.HTTPError) as error:
            raise EngineUnavailable(
                f"The engine cannot be asked: {type(error).__name__}."
            ) from None
        except (ValueError, RecursionError):
            raise EngineError("The engine's answer is not readable.") from None
        if status != httpx.codes.OK or not isinstance(payload, dict):
            raise error_for(status, payload)
        return cast("Mapping[str, object]", payload)

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """A conservative estimate: these servers have no common call that counts."""
        return estimate_tokens(messages)

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        for run in tuple(self._calls):
            await self.abort(run)
        await self._client.aclose()


def estimate_tokens(messages: Sequence[ChatMessage]) -> int:
    """At least as many tokens as real text has; about twice what English has.

    Tokenizers of today fall back to bytes, so no text has more tokens than UTF-8 bytes. Letters and
    spaces come in runs of at least two per token, so they count half.
    """
    return sum(_estimate(m.text) + TEMPLATE_TOKENS_PER_MESSAGE for m in messages)


def _estimate(text: str) -> int:
    cheap_bytes = sum(len(run) for run in _CHEAP.findall(text))
    return len(text.encode("utf-8", "replace")) - cheap_bytes // 2


def _client(profile: EngineProfile, *, trust_env: bool) -> httpx.AsyncClient:
    # No bound on connections: the slots bound them already, and one that httpx loses at a
    # cancellation would otherwise make the replica refuse everything in the end.
    limits = httpx.Limits(
        max_connections=None,
        max_keepalive_connections=profile.slots + SPARE_CONNECTIONS,
        keepalive_expiry=KEEPALIVE_S,
    )
    socket = profile.socket
    headers = {"accept-encoding": "identity"}
    if profile.api_key:
        headers["authorization"] = f"Bearer {profile.api_key}"
    return httpx.AsyncClient(
        base_url="http://localhost" if socket else profile.url,
        transport=_SocketTransport(socket, limits) if socket else None,
        headers=headers,
        trust_env=trust_env,
        timeout=httpx.Timeout(
            connect=CONNECT_TIMEOUT_S, read=None, write=WRITE_TIMEOUT_S, pool=POOL_TIMEOUT_S
        ),
        limits=limits,
    )


def _encode(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _refusal(response: httpx.Response) -> EngineError:
    payload: object = None
    try:
        async with asyncio.timeout(QUESTION_TIMEOUT_S):
            payload = json.loads(await read_body(response, ERROR_BODY_BYTES_MAX))
    except (TimeoutError, httpx.HTTPError, ValueError, RecursionError):
        # The status alone says enough.
        pass
    return error_for(response.status_code, payload)


async def read_body(response: httpx.Response, bytes_max: int) -> bytes:
    """The whole body; raises ValueError where it is longer than `bytes_max`."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > bytes_max:
            raise ValueError(f"body longer than {bytes_max} bytes")
    return bytes(body)


def _kind(error: Exception) -> str:
    """The error's class alone: its text may hold an address with a key in it."""
    return type(error).__name__


class _Options:
    """Reads a profile's options; raises ValueError that names the option, never its value."""

    def __init__(self, options: Mapping[str, object], known: frozenset[str]) -> None:
        if unknown := sorted(options.keys() - known):
            raise ValueError(f"unknown option {unknown[0][:64]!r}")
        self._options = options

    def flag(self, key: str, default: bool) -> bool:
        value = self._options.get(key, default)
        if not isinstance(value, bool):
            raise _wrong(key, "true or false")
        return value

    def seconds(self, key: str) -> float | None:
        value = self._options.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise _wrong(key, "a number of seconds above 0")
        return float(value)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._options.get(key, {})
        if not isinstance(value, dict):
            raise _wrong(key, "a JSON object")
        return cast("dict[str, Any]", value)


def _wrong(key: str, expected: str) -> ValueError:
    return ValueError(f"option {key!r} must be {expected}")


def _prompt_estimate(request: GenerateRequest) -> int:
    """For a server that tells no usage."""
    if request.partial_tokens:
        return estimate_tokens(request.messages) + request.partial_tokens
    return estimate_tokens((*request.messages, *_begun(request.partial)))


def _begun(partial: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage("assistant", partial),) if partial else ()
