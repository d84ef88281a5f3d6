"""A proxy between one process and its Redis that loses pushed messages, and nothing else.

It reads RESP2 as far as it must: a reply whose first element is `message` on a connection that has
subscribed is one push. Everything else passes as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from tests.servers import close_server


class RedisProxy:
    """`with RedisProxy(url) as proxy:` … `proxy.url`, `proxy.drop = lambda n: n % 3 == 0`.

    `drop(n)` decides over the n-th push, counted from 1. Runs in a thread of its own, so that tests
    may block. `passed` and `dropped` count pushes.
    """

    def __init__(self, url: str) -> None:
        self.drop: Callable[[int], bool] = lambda _: False
        self.passed = self.dropped = 0
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._pushes = asyncio.Event()
        self._pushes.set()
        self._upstream = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user, _, _ = self._upstream.netloc.rpartition("@")
        netloc = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
        return urlunsplit(self._upstream._replace(netloc=netloc))

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        """Meanwhile it takes connections and commands, and answers nothing."""
        self._speaks.clear()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._speaks.set)

    @contextlib.contextmanager
    def deafness(self) -> Iterator[None]:
        """Meanwhile nothing comes on connections that subscribe; all others are served."""
        self._pushes.clear()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._pushes.set)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _end(self) -> None:
        assert self._server is not None
        await close_server(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with _closing(writer):
                await self._pump(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = str(self._upstream.hostname), self._upstream.port or 6379
        redis_reader, redis_writer = await asyncio.open_connection(host, port)
        async with _closing(redis_writer):
            pumps = [
                asyncio.ensure_future(_copy(reader, redis_writer)),
                asyncio.ensure_future(self._copy_replies(redis_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _copy_replies(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        subscribed = False
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                reply = await _read_reply(reader)
                await self._speaks.wait()
                subscribed |= reply.startswith(b"*3\r\n$9\r\nsubscribe\r\n")
                if subscribed:
                    await self._pushes.wait()
                if not (reply.startswith(b"*3\r\n$7\r\nmessage\r\n") and self._lost()):
                    writer.write(reply)
                    await writer.drain()

    def _lost(self) -> bool:
        lost = self.drop(self.passed + self.dropped + 1)
        self.passed += not lost
        self.dropped += lost
        return lost


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()


async def _read_reply(reader: asyncio.StreamReader) -> bytes:
    """One whole RESP2 reply, as bytes."""
    line = await reader.readuntil(b"\r\n")
    kind, size = line[:1], line[1:-2]
    if kind == b"$" and int(size) >= 0:
        return line + await reader.readexactly(int(size) + 2)
    if kind == b"*":
        return line + b"".join([await _read_reply(reader) for _ in range(int(size))])
    return line
