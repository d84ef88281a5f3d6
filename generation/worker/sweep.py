"""Announces the replica, and publishes tickets where some were lost: the queue says who waits, not
the broker."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol

from redis.exceptions import RedisError

from generation.scheduler import drop_tickets, publish_ticket
from generation.worker_context import WorkerContext

logger = logging.getLogger(__name__)

SWEEP_S: Final = 1.0

REFILL_S: Final = 0.05
"""A slot that ended its run has the next ticket within about 5 ms. One that is still idle after so
long has none to come, though runs may wait: the sweep looks at once, not after up to a second."""


class Slots(Protocol):
    """What the sweep must know of the replica; the service tells it."""

    def may_claim(self) -> bool:
        """Whether the replica begins runs at all."""
        ...

    def count_idle(self) -> int:
        """Slots that could begin a run now."""
        ...

    def count_idle_burst(self) -> int:
        """Places of the paid burst that could."""
        ...

    def is_full(self) -> bool:
        """Whether every slot is at work."""
        ...


class TicketSweep:
    """While runs wait and slots are idle, there is a ticket for each, in this replica's own queue.

    Every ticket stands for one claim: a slot that would claim again by itself would leave a ticket
    behind for each run, and a busy evening would fill the broker with them.
    """

    def __init__(self, context: WorkerContext, slots: Slots) -> None:
        self._context = context
        self._slots = slots
        self.spare = 0  # idle slots that nobody of this pool waits for, at the last look
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
        context = self._context
        pool, replica = context.pool, context.replica
        may_claim = self._slots.may_claim()
        try:
            beat = await context.scheduler.beat(
                pool,
                replica,
                at_work=context.at_work,
                slots=context.slots if may_claim else 0,
                paid_burst=context.paid_burst if may_claim else 0,
            )
        except RedisError as error:
            logger.warning(
                "The queue could not be read: %s",
                type(error).__name__,
                extra={"action": "sweep_failed", "pool": pool},
            )
            context.is_pressed, self.spare = False, 0  # nobody knows
            return 0
        context.is_pressed = beat.ready > 0 and self._slots.is_full()
        for name in beat.lost:
            await asyncio.to_thread(drop_tickets, pool, name)
        self.spare = self._slots.count_idle() if beat.built and beat.waiting == 0 else 0
        missing = min(self._slots.count_idle(), beat.waiting)
        missing += min(self._slots.count_idle_burst(), max(0, beat.paid - missing))
        return await asyncio.to_thread(_publish, pool, replica, missing) if missing > 0 else 0

    async def leave(self, pool: str) -> None:
        """The replica serves this pool no more: nobody shall wait for it, or send it tickets."""
        with suppress(RedisError):  # it is forgotten after some seconds
            await self._context.scheduler.leave(pool, self._context.replica)
        await asyncio.to_thread(drop_tickets, pool, self._context.replica)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(SWEEP_S):
                await self._slot_freed.wait()
        except TimeoutError:
            return
        self._slot_freed.clear()
        await asyncio.sleep(REFILL_S)


def _publish(pool: str, replica: str, count: int) -> int:
    published = 0
    while published < count and publish_ticket(pool, replica):
        published += 1
    return published
