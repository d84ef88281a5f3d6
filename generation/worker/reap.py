"""The reaper in every worker: no single point looks after lost queues and ownerless runs."""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import Final

from accounts.aio import in_database
from accounts.api_errors import AWAY
from generation import reaper

logger = logging.getLogger(__name__)

REAP_S: Final = 2.0


async def reap_forever() -> None:
    """Sweep at once, so that a new deployment has its queues, then every REAP_S."""
    while True:
        try:
            await in_database(partial(reaper.sweep, in_turn=True))
        except AWAY as error:
            logger.warning(
                "A sweep failed: %s", type(error).__name__, extra={"action": "reap_failed"}
            )
        except Exception:
            # A side task that ends takes the worker with it, and the next one would end the same.
            logger.exception("A sweep failed", extra={"action": "reap_failed"})
        # Spread out, so that workers started together do not sweep together.
        await asyncio.sleep(REAP_S * random.uniform(0.75, 1.25))  # noqa: S311 - no secret
