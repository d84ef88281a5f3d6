"""A client of `WS /v1/ws`: sends frames, and keeps what comes.

async with Socket.open(web.url, token=person.token) as socket:
    await socket.say(type="watch", run=run, after=0)
    await socket.until(lambda s: s.done(run))
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.phone import PATIENCE_S, Frame, Phone


@dataclass(slots=True)
class Socket:
    """One open socket. `phones` holds what a screen would show of each watched run."""

    connection: ClientConnection
    frames: list[dict[str, Any]] = field(default_factory=list)
    phones: dict[str, Phone] = field(default_factory=dict)
    code: int | None = None
    reason: str = ""
    problem: AssertionError | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
        ready: bool = True,
        path: str = "/v1/ws",
        query: str = "",
        **options: Any,
    ) -> AsyncIterator[Self]:
        """Connect; sign in by first frame where there is a token; wait until it is `ready`."""
        options = {"additional_headers": dict(headers or {}), "compression": None, **options}
        address = url.replace("http", "ws", 1) + path + query
        async with connect(address, proxy=None, max_size=None, **options) as connection:
            socket = cls(connection)
            reading = asyncio.create_task(socket._read())
            try:
                if token:
                    await socket.say(type="auth", token=token)
                if ready:
                    await socket.until(lambda s: s.events("ready") or s.code)
                    assert socket.code is None, (socket.code, socket.reason)
                yield socket
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for text in self.connection:
                self._take(json.loads(text))
                self.news.set()
        except ConnectionClosed:
            pass
        except AssertionError as problem:
            self.problem = problem
        finally:
            self.code = self.connection.close_code
            self.reason = self.connection.close_reason or ""
            self.news.set()

    def _take(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        if "run" in frame:
            assert frame.keys() == {"id", "run", "event", "data"}, frame
            phone = self.phones.setdefault(frame["run"], Phone({}, frame["run"]))
            if frame["event"] == "done" and frame["id"] is None:
                assert not phone.frames, "only for a cursor that was at the end"
                phone.done = frame["data"]
                return
            phone.take(Frame(frame["event"], frame["data"], frame["id"]))
        else:
            assert frame.keys() <= {"event", "data"}, frame

    # --- what the test says and sees --------------------------------------------------------------

    async def say(self, **fields: object) -> None:
        await self.connection.send(json.dumps(fields))

    async def until(self, condition: Callable[[Self], Any]) -> None:
        """Wait until what has come fulfils `condition`."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition(self):
                    if self.problem is not None:
                        raise self.problem
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise AssertionError(f"waited in vain: {self.frames[-20:]}, {self.code}") from None

    async def closed(self) -> int:
        """The code with which the server closes it."""
        await self.until(lambda s: s.code is not None)
        return self.code or 0

    async def answer(self) -> None:
        """Wait until everything said so far has been handled."""
        pongs = len(self.events("pong"))
        await self.say(type="ping")
        await self.until(lambda s: len(s.events("pong")) > pongs or s.code)

    async def hinted(self, data: dict[str, str]) -> None:
        """Wait for this hint."""
        await self.until(lambda s: data in s.hints())

    def events(self, name: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["event"] == name]

    def hints(self) -> list[dict[str, Any]]:
        return [frame["data"] for frame in self.events("hint")]

    def text(self, run: str) -> str:
        return self.phones[run].text if run in self.phones else ""

    def done(self, run: str) -> bool:
        return run in self.phones and self.phones[run].done is not None
