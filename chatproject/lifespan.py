"""What a web process does when it starts and when it is told to go."""

from __future__ import annotations

import asyncio
import signal
from importlib import import_module
from typing import Any

from django.conf import settings

from accounts import collector, keys
from accounts.aio import in_database
from generation.gateway.hub import Hub
from generation.gateway.process import close_hub, hub
from generation.gateway.stream import Receive, Send


async def lifespan(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """ASGI lifespan: subscribe at the start, drain at SIGTERM, close at the end."""
    await receive()
    try:
        await in_database(keys.check_at_start)
    except keys.KeysUnavailable as problem:
        await send({"type": "lifespan.startup.failed", "message": str(problem)})
        return
    _drain_at_sigterm(asyncio.get_running_loop(), await hub())
    import_module(settings.ROOT_URLCONF)  # the views, which the first request would load
    collector.settle()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await close_hub()
    await send({"type": "lifespan.shutdown.complete"})


def _drain_at_sigterm(loop: asyncio.AbstractEventLoop, made: Hub) -> None:
    """End open streams first, then let the server go on with its own handler.

    The server waits for open connections before it ends the lifespan, so that a stream ended only
    at the lifespan's end would hold up every deploy for the whole grace time.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        previous = signal.getsignal(number)

        def handle(signum: int, frame: Any, previous: Any = previous) -> None:
            loop.call_soon_threadsafe(made.drain)
            if callable(previous):
                previous(signum, frame)

        signal.signal(number, handle)
