"""A scriptable OpenAI-compatible server on 127.0.0.1, over raw sockets.

A test decides every byte: where network writes are cut, when the server is silent, how the
connection ends. What it received, and when the client went away, is recorded.

    async with Upstream() as upstream:
        upstream.answers(Reply(delta("Hel"), delta("lo"), finish(), DONE))
        … upstream.requests[0].body["messages"] …
        await upstream.requests[0].gone()
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tests.servers import close_server

CHAT_PATH = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"


def frame(payload: object, *, ascii_only: bool = False) -> bytes:
    """One `data:` event."""
    return b"data: " + json.dumps(payload, ensure_ascii=ascii_only).encode() + b"\n\n"


def delta(text: str, *, ascii_only: bool = False) -> bytes:
    """A piece of the answer. `ascii_only`: escaped, so that lone surrogates can be sent."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return frame({"object": "chat.completion.chunk", "choices": [choice]}, ascii_only=ascii_only)


def finish(reason: str = "stop") -> bytes:
    """The chunk that ends the answer."""
    choice = {"index": 0, "delta": {}, "finish_reason": reason}
    return frame({"object": "chat.completion.chunk", "choices": [choice]})


def usage(prompt: int, cached: int, output: int) -> bytes:
    """The chunk with usage and no choices."""
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return frame({"object": "chat.completion.chunk", "choices": [], "usage": counts})


class Reset:
    """Step: the connection ends with a TCP reset."""


class Close:
    """Step: the connection is closed, without the end of the HTTP body."""


class Hang:
    """Step: silence until the client goes away."""


@dataclass(frozen=True)
class Wait:
    """Step: go on when the test sets the event."""

    event: asyncio.Event


Step = bytes | Reset | Close | Hang | Wait


class Reply:
    """What the server does with one request: steps after the HTTP head.

    `chunked` false: the body has no length and ends with the connection, as some servers do.
    `byte_by_byte`: each byte is a network write of its own. `head` false: steps before any head.
    """

    def __init__(
        self,
        *steps: Step,
        status: int = 200,
        content_type: str = "text/event-stream",
        headers: Mapping[str, str] | None = None,
        chunked: bool = True,
        byte_by_byte: bool = False,
        head: bool = True,
    ) -> None:
        self.steps = steps
        self.status = status
        self.headers = {"Content-Type": content_type, **(headers or {})}
        self.chunked = chunked
        self.byte_by_byte = byte_by_byte
        self.head = head

    @classmethod
    def of_json(cls, payload: object, status: int = 200) -> Reply:
        """A plain JSON answer."""
        body = json.dumps(payload).encode()
        return cls(body, status=status, content_type="application/json")

    def head_bytes(self) -> bytes:
        framing = "Transfer-Encoding: chunked" if self.chunked else "Connection: close"
        lines = [f"HTTP/1.1 {self.status} X", framing]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def body_bytes(self, data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data


@dataclass
class Received:
    """One request. `gone_at` (loop time, seconds) is set when its client closed the connection
    before the reply was complete."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    connection: int
    gone_at: float | None = None
    complete: bool = False
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def body(self) -> dict[str, Any]:
        loaded = json.loads(self.raw)
        assert isinstance(loaded, dict)
        return loaded

    async def gone(self) -> float:
        """Wait until the client has closed; the loop time of it."""
        await self._over.wait()
        assert self.gone_at is not None, "the reply was complete before the client went"
        return self.gone_at

    def end(self, gone_at: float | None = None) -> None:
        if not self._over.is_set():
            self.gone_at = gone_at
            self.complete = gone_at is None
            self._over.set()


class Upstream:
    """The server. Replies per path, in order; the last one is given again and again."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self._replies: dict[str, list[Reply]] = {}
        self._open: set[_Connection] = set()
        self._arrived = asyncio.Condition()

    def answers(self, *replies: Reply, path: str = CHAT_PATH) -> None:
        """Set the replies of a path; of the chat by default."""
        self._replies[path] = list(replies)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await close_server(self._server)
        for connection in tuple(self._open):
            await connection.end()
        await self._server.wait_closed()

    async def request(self, number: int = 1) -> Received:
        """Wait for the nth request, counted from 1."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def _reply_to(self, received: Received) -> Reply:
        async with self._arrived:
            self.requests.append(received)
            self._arrived.notify_all()
        replies = self._replies.get(received.path)
        if not replies:
            return Reply.of_json({"error": {"message": "no such path"}}, 404)
        return replies.pop(0) if len(replies) > 1 else replies[0]


class _Connection(asyncio.Protocol):
    """One client connection; asyncio tells a close at once, also while a reply is being played."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._buffer = b""
        self._current: Received | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upstream.connections += 1
        self._number = self._upstream.connections
        self._upstream._open.add(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._serve_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._upstream._open.discard(self)
        if self._current is not None:
            self._current.end(gone_at=asyncio.get_running_loop().time())

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._transport.abort()
        await self._closed.wait()

    def _serve_next(self) -> None:
        if self._task is not None and not self._task.done():
            return
        if (received := self._take_request()) is not None:
            self._current = received
            self._task = asyncio.get_running_loop().create_task(self._serve(received))

    def _take_request(self) -> Received | None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        if len(rest) < size:
            return None
        self._buffer = rest[size:]
        method, path, _ = first.split(" ")
        return Received(method, path, headers, rest[:size], self._number)

    async def _serve(self, received: Received) -> None:
        reply = await self._upstream._reply_to(received)
        if reply.head:
            await self._write(reply.head_bytes(), reply)
        for step in reply.steps:
            if not await self._play(step, reply):
                return
        if reply.chunked:
            self._transport.write(b"0\r\n\r\n")
        received.end()
        self._current = None
        if not reply.chunked:
            self._transport.close()
        else:
            asyncio.get_running_loop().call_soon(self._serve_next)

    async def _play(self, step: Step, reply: Reply) -> bool:
        """Whether the reply goes on after this step."""
        if isinstance(step, bytes):
            await self._write(reply.body_bytes(step), reply)
        elif isinstance(step, Wait):
            await step.event.wait()
        elif isinstance(step, Hang):
            await self._closed.wait()
        else:
            self._cut(reset=isinstance(step, Reset))
        return not self._transport.is_closing()

    async def _write(self, data: bytes, reply: Reply) -> None:
        if not reply.byte_by_byte:
            self._transport.write(data)
            await asyncio.sleep(0)
            return
        for at in range(len(data)):
            self._transport.write(data[at : at + 1])
            await asyncio.sleep(0)

    def _cut(self, *, reset: bool) -> None:
        if not reset:
            self._transport.close()
            return
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
