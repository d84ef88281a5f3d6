"""The simulated engine with nobody behind it: what it costs by itself, to be taken off.

run    so many answers side by side for so long; how many tokens they had, and the CPU
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

import uvloop

from bench.support.peer import serve
from generation.engines import ChatMessage, Engine, GenerateRequest, build_engine, parse_profiles

SETTLE_S: Final = 2.0


async def run(profile: dict[str, Any], streams: int, seconds: float) -> dict[str, Any]:
    """`profile`: one of ENGINE_PROFILES, of the simulated engine."""
    engine = build_engine(parse_profiles(json.dumps({"sim": profile}))["sim"])
    counts = [0] * streams
    # Begun one after the other, as by people: at one moment, all would be woken together.
    tasks = []
    for at in range(streams):
        tasks.append(asyncio.create_task(_read(engine, counts, at)))
        await asyncio.sleep(SETTLE_S / streams)
    before_s, before = time.process_time(), sum(counts)
    await asyncio.sleep(seconds)
    found = {"cpu_s": time.process_time() - before_s, "tokens": sum(counts) - before}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _read(engine: Engine, counts: list[int], at: int) -> None:
    """One answer after the other, for whoever cancels it."""
    while True:
        request = GenerateRequest(
            run=f"g_{at:032x}",
            model="sim",
            messages=(ChatMessage("user", "Tell me more."),),
            max_tokens=1_000_000,
        )
        async for piece in engine.generate(request):
            counts[at] += piece.tokens


if __name__ == "__main__":
    uvloop.run(serve({"run": run}))
