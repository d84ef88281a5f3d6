"""Writes the token logs of many runs as a GPU worker does: the product's own flusher and layer.

open   takes the logs of runs
feed   gives each of them a piece of text so many times a second, until the next `feed`
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from typing import Any, Final

import uvloop

from bench.support.peer import serve
from generation.token_log import Flusher, RecheckReply, RunWriter, TokenLog, async_client
from generation.token_log.layer import TokenChannelLayer
from generation.token_log.limits import FLUSH_S

OPENERS: Final = 64
STEP_S: Final = 0.010
"""The pieces of all runs are spread over a second in steps of this."""


class Feeder:
    """All runs of one worker."""

    def __init__(self) -> None:
        redis = async_client(os.environ["REDIS_URL"])
        layer = TokenChannelLayer(hosts=[os.environ["REDIS_URL"]], prefix="tokens")
        # As often as a worker with few runs: what a web process can take is to be seen, not how
        # much a busy worker spares it.
        self._flusher = Flusher(TokenLog(redis), layer.publish_many, longest_flush_s=FLUSH_S)
        self._writers: list[RunWriter] = []
        self._words = itertools.count(1)
        self._feeding: asyncio.Task[None] | None = None

    async def open(self, runs: list[str]) -> dict[str, Any]:
        if not self._writers:
            self._flusher.start()
        at_once = asyncio.Semaphore(OPENERS)

        async def one(run: str) -> RunWriter:
            async with at_once:
                return await self._flusher.open(
                    run, epoch=1, next_seq=2, owner_channel="worker:bench", recheck=_recheck
                )

        self._writers += await asyncio.gather(*(one(run) for run in runs))
        return {"opened": len(self._writers)}

    async def feed(self, rate: float) -> dict[str, Any]:
        """`rate`: pieces a second for each run; 0 stops."""
        if self._feeding is not None:
            self._feeding.cancel()
            self._feeding = None
        if rate:
            self._feeding = asyncio.create_task(self._feed(rate))
        return {"cpu_s": time.process_time()}

    async def _feed(self, rate: float) -> None:
        """Evenly, and on time: what is late is made up for."""
        began_s, given, at = time.monotonic(), 0, 0
        while True:
            due = int((time.monotonic() - began_s) * rate * len(self._writers))
            for _ in range(given, due):
                self._writers[at].text(f" w{next(self._words) % 1000}")
                at = (at + 1) % len(self._writers)
            given = due
            await asyncio.sleep(STEP_S)


async def _recheck() -> RecheckReply:
    return RecheckReply(1, stop_requested=False)


async def main() -> None:
    feeder = Feeder()
    await serve({"open": feeder.open, "feed": feeder.feed})


if __name__ == "__main__":
    uvloop.run(main())
