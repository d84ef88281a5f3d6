"""What waits to be written to one socket beside the runs it watches: a few small frames."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from generation.gateway.socket_frames import LOOK_AGAIN

MAX_REPLIES: Final = 100
"""Replies that may wait. A client that asks for more and reads none of them is closed."""

MAX_HINTS: Final = 50
"""Different hints that may wait; beyond that the client is told to look again at everything."""


class Outbox:
    """Replies in their order, and each hint once."""

    __slots__ = ("_hints", "_replies", "_wake")

    def __init__(self) -> None:
        self._replies: deque[str] = deque()
        self._hints: dict[str, None] = {}
        self._wake = asyncio.Event()

    def reply(self, frame: str) -> bool:
        """False where too many wait already."""
        if len(self._replies) >= MAX_REPLIES:
            return False
        self._replies.append(frame)
        self._wake.set()
        return True

    def hint(self, frame: str) -> None:
        """The same hint again says nothing new; too many say: look at everything."""
        if LOOK_AGAIN in self._hints:
            return
        if frame == LOOK_AGAIN or len(self._hints) >= MAX_HINTS:
            self._hints, frame = {}, LOOK_AGAIN
        self._hints[frame] = None
        self._wake.set()

    async def take(self) -> str:
        """The next frame, as soon as there is one."""
        while not (self._replies or self._hints):
            self._wake.clear()
            await self._wake.wait()
        if self._replies:
            return self._replies.popleft()
        frame = next(iter(self._hints))
        del self._hints[frame]
        return frame
