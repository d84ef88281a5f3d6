"""Looks for runs of other regions that this replica's idle slots could take over."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from redis.exceptions import RedisError

from accounts.aio import in_database
from accounts.api_errors import AWAY
from generation.borrow import Borrower, borrow, borrower
from generation.worker.sweep import Slots, TicketSweep
from generation.worker_context import WorkerContext

logger = logging.getLogger(__name__)

BORROW_S: Final = 1.0

ALONE_S: Final = 10.0
"""How long a pool that is its model's only region is taken to be so: that changes by hand."""

_AWAY: Final[tuple[type[Exception], ...]] = (*AWAY, RedisError)


class BorrowingWatch:
    """At most once a second, and only for as many runs as there are idle slots that nobody of this
    pool waits for; the burst is kept for its own people.

    A task of its own: PostgreSQL may be slow to answer, and the replica must be heard meanwhile.
    """

    def __init__(self, context: WorkerContext, slots: Slots, sweep: TicketSweep) -> None:
        self._context = context
        self._slots = slots
        self._sweep = sweep
        self._alone = ("", 0.0)  # which pool was found so, and when

    async def run(self) -> None:
        while True:
            await asyncio.sleep(BORROW_S)
            await self.look()

    async def look(self) -> int:
        """Once; returns how many runs were taken over."""
        idle = min(self._sweep.spare, self._slots.count_idle())
        if idle < 1:
            return 0
        # Until the sweep has looked again: the first ones may not have been claimed by then.
        self._sweep.spare = 0
        try:
            by = await self._borrower()
            return await in_database(borrow, by, idle) if by is not None else 0
        except _AWAY as error:
            logger.warning(
                "Nothing could be borrowed: %s",
                type(error).__name__,
                extra={"action": "borrow_failed", "pool": self._context.pool},
            )
            return 0

    async def _borrower(self) -> Borrower | None:
        (alone, since_s), pool = self._alone, self._context.pool
        if alone == pool and time.monotonic() - since_s < ALONE_S:
            return None
        found = await in_database(borrower, pool)
        self._alone = ("", 0.0) if found is not None else (pool, time.monotonic())
        return found
