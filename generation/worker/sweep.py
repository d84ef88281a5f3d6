"""Publishes tickets where some were lost: the queue says who waits, not the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from redis.exceptions import RedisError

from generation.scheduler import publish_ticket
from generation.worker_context import WorkerContext

logger = logging.getLogger(__name__)

SWEEP_S: Final = 1.0

REFILL_S: Final = 0.05
"""A slot that ended its run has the next ticket within about 5 ms. One that is still idle after so
long has none to come, though runs may wait: the sweep looks at once, not after up to a second."""


class TicketSweep:
    """While runs wait and slots are idle, there is a ticket for each.

    Every ticket stands for one claim: a slot that would claim again by itself would leave a ticket
    behind for each run, and a busy evening would fill the broker with them.
    """

    def __init__(
        self,
        context: WorkerContext,
        count_idle: Callable[[], int],
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self._context = context
        self._count_idle = count_idle
        self._is_full = is_full
        self._slot_freed = asyncio.Event()

    def slot_freed(self) -> None:
        """A slot has become idle; if it still is a moment later, look at the queue."""
        self._slot_freed.set()

    async def run(self) -> None:
        while True:
            await self._pause()
            await self.look()

    async def look(self) -> int:
        """Compare once; returns how many tickets were published."""
        pool = self._context.pool
        try:
            depth = await self._context.scheduler.depth(pool)
        except RedisError as error:
            logger.warning(
                "The queue could not be read: %s",
                type(error).__name__,
                extra={"action": "sweep_failed", "pool": pool},
            )
            self._context.is_pressed = False  # nobody knows
            return 0
        idle = self._count_idle()
        self._context.is_pressed = depth > 0 and self._is_full()
        missing = min(idle, depth)
        return await asyncio.to_thread(_publish, pool, missing) if missing > 0 else 0

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(SWEEP_S):
                await self._slot_freed.wait()
        except TimeoutError:
            return
        self._slot_freed.clear()
        await asyncio.sleep(REFILL_S)


def _publish(pool: str, count: int) -> int:
    published = 0
    while published < count and publish_ticket(pool):
        published += 1
    return published
