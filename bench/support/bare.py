"""A bare ASGI application that writes event streams: the floor under what a gateway costs.

Each stream is a coroutine that waits to be woken and sends the frames that are due, RATE of them a
second. Every FLUSH_S, as a worker's flusher would push, one loop wakes those whose turn it is. No
log, no Redis, no cursor, no queue, no Django.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]

RATE = float(os.environ.get("BARE_RATE", "20"))
FLUSH_S = 0.040
# As long as the product's.
FRAME = b"id: g_%s:%d\nevent: delta\ndata: " + b'{"text":" w%d"}\n\n'
RUN = b"0" * 32


Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Turn:
    """How many frames one stream is to write now."""

    def __init__(self) -> None:
        self.frames = 0
        self.woken = asyncio.Event()

    def comes(self) -> None:
        self.frames += 1
        self.woken.set()

    async def take(self) -> int:
        await self.woken.wait()
        self.woken.clear()
        frames, self.frames = self.frames, 0
        return frames


streams: list[Turn] = []


async def application(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["path"] == "/stream":
        await _stream(receive, send)
    else:
        await _begin(send)
        await send({"type": "http.response.body", "body": b"ok"})


async def _lifespan(receive: Receive, send: Send) -> None:
    await receive()
    waking = asyncio.create_task(_wake_forever())
    await send({"type": "lifespan.startup.complete"})
    await receive()
    waking.cancel()
    await send({"type": "lifespan.shutdown.complete"})


async def _begin(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _stream(receive: Receive, send: Send) -> None:
    await _begin(send)
    await send({"type": "http.response.body", "body": b"retry: 2000\n\n", "more_body": True})
    turn = Turn()
    streams.append(turn)
    writing = asyncio.create_task(_write(turn, send))
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        writing.cancel()
        streams.remove(turn)


async def _write(turn: Turn, send: Send) -> None:
    seq = 1
    while True:
        frames = await turn.take()
        body = b"".join(FRAME % (RUN, seq + n, (seq + n) % 1000) for n in range(1, frames + 1))
        seq += frames
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _wake_forever() -> None:
    loop = asyncio.get_running_loop()
    began_s, sent, count = loop.time(), 0, 0
    while True:
        await asyncio.sleep(FLUSH_S)
        if len(streams) != count:
            began_s, sent, count = loop.time(), 0, len(streams)  # others came or went: count anew
        due = int((loop.time() - began_s) * RATE * count)
        for number in range(sent, due):
            streams[number % count].comes()
        sent = due
