"""Redis connections made for token logs: RESP2, bytes, short time-outs, no retries of their own.

A retry inside the client would hide an outage for seconds; the flusher keeps the batch, backs
off and sends again itself.
"""

from __future__ import annotations

from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry as SyncRetry

AsyncRedis = redis.asyncio.Redis
SyncRedis = redis.Redis

TIMEOUT_S: Final = 5.0
"""How long one command may take: longer than any pause of a healthy Redis, shorter than a lease."""

CONNECT_TIMEOUT_S: Final = 2.0


def async_client(url: str) -> AsyncRedis:
    """An asyncio client for token logs. The caller closes it (`aclose`)."""
    return redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **client_options())


def sync_client(url: str) -> SyncRedis:
    """A client for token logs in sync code; it may be shared by threads."""
    # A request can afford one quick second try on a connection that went stale while it was idle.
    return redis.Redis.from_url(url, retry=SyncRetry(NoBackoff(), 1), **client_options())


def client_options() -> dict[str, Any]:
    """Connection arguments that every client here shares."""
    return {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
    }
