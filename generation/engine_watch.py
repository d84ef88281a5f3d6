"""Notices that an engine says nothing, and decides whether a run must leave it.

An engine that is silent is not given up while it answers its health check and nobody else could
serve: a slow answer is better than none. A loop that is asked to watch costs one timer, not one for
each token.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from django.db import Error as DatabaseError
from django.utils import timezone

from accounts.aio import in_database
from generation.catalogue import has_other_replica
from generation.engines import EngineError
from generation.worker_context import SILENT, WorkerContext, cancel_once

log = logging.getLogger(__name__)

PREFILL_FACTOR: Final = 4
"""How many times the pool's silence an engine gets for its first piece: nothing comes while it
reads the prompt, and a cold prompt of 3,600 tokens took 60 s on two CPU cores."""

ASK_S: Final = 5.0
"""An engine that does not answer its health check for so long is not healthy."""

AGAIN_S: Final = 5.0
"""How often a silent engine is asked, at most; more often where the pool has less patience."""


class EngineWatch:
    """Watches the engine that writes one answer: cancels `task` with SILENT where it must leave."""

    def __init__(self, context: WorkerContext, silence_s: float, task: asyncio.Task[bool]) -> None:
        self._context = context
        self._silence_s = silence_s
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._deadline_s = 0.0
        self._since = timezone.now()
        self._watching: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        """The engine has been asked, perhaps once more."""
        self.end()
        self._deadline_s = self._loop.time() + PREFILL_FACTOR * self._silence_s
        self._watching = asyncio.create_task(self._watch())

    def heard(self) -> None:
        """It has given a piece, or another sign that it works."""
        now_s = self._loop.time()
        self._deadline_s, self._context.heard_s = now_s + self._silence_s, now_s

    def over(self) -> None:
        """The answer is whole."""
        self.end()

    def end(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            deadline_s = self._deadline_s
            left_s = deadline_s - self._loop.time()
            if left_s > 0:
                await asyncio.sleep(left_s)
            elif await self._must_leave() and deadline_s == self._deadline_s:
                cancel_once(self._task, SILENT)
                return
            else:
                # Still silent, or a piece came while it was asked.
                await asyncio.sleep(min(AGAIN_S, self._silence_s))

    async def _must_leave(self) -> bool:
        # Not side by side: an engine that is gone answers its health check after ASK_S, by silence.
        if await self._is_served_elsewhere():
            self._say("somebody else can go on")
            return True
        healthy = await self._is_healthy()
        self._say(f"it is {'' if healthy else 'not '}healthy, and nobody else can go on")
        return not healthy

    def _say(self, what: str) -> None:
        log.warning(
            "The engine says nothing: %s",
            what,
            extra={"action": "engine_silent", "replica": self._context.replica},
        )

    async def _is_served_elsewhere(self) -> bool:
        try:
            return await in_database(
                has_other_replica, self._context.pool, self._context.replica, self._since
            )
        except DatabaseError:
            return False

    async def _is_healthy(self) -> bool:
        try:
            async with asyncio.timeout(ASK_S):
                return (await self._context.engine.health()).ok
        except (TimeoutError, EngineError):
            return False
