"""The one hub of this process (of each event loop, where tests run several)."""

from __future__ import annotations

import asyncio
import secrets
import time
import weakref

from channels.layers import channel_layers
from django.conf import settings

from generation.gateway.hint_feed import HintFeed
from generation.gateway.hub import Hub
from generation.scheduler import scheduler_async
from generation.token_log.clients import async_client
from generation.token_log.log import TokenLog

_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Hub]]
_hubs = weakref.WeakKeyDictionary()


async def hub() -> Hub:
    """The hub of the running loop, made and subscribed on first use."""
    loop = asyncio.get_running_loop()
    made = _hubs.get(loop)
    if made is None or (made.done() and (made.cancelled() or made.exception())):
        made = _hubs[loop] = loop.create_task(_make())
    return await asyncio.shield(made)


async def _make() -> Hub:
    redis = async_client(settings.REDIS_URL)
    made = Hub(
        TokenLog(redis),
        channel_layers["tokens"],
        scheduler_async(redis),
        HintFeed(channel_layers["default"]),
        channel=f"gateway:{secrets.token_hex(8)}",
    )
    made.at_close(redis.aclose)
    await made.start()
    return made


def deaf_for_s() -> float:
    """For how long a hub of this process has heard nothing at all; 0 while all do. From any thread.

    Its streams go on all the same, from the log, a second or two late.
    """
    hubs = [made.result() for made in list(_hubs.values()) if made.done() and not _failed(made)]
    since = [hub.deaf_since_s for hub in hubs if hub.deaf_since_s is not None]
    return time.monotonic() - min(since) if since else 0.0


def _failed(made: asyncio.Task[Hub]) -> bool:
    return made.cancelled() or made.exception() is not None


async def close_hub() -> None:
    """End this loop's hub: nothing is subscribed, ticking or connected afterwards."""
    task = _hubs.pop(asyncio.get_running_loop(), None)
    if task is not None:
        await (await task).aclose()
