"""This process' Redis clients, as the settings want them.

Sync ones for Django's threads (connection pools, shared by all threads); async ones per event loop.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from django.conf import settings
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from generation.token_log.clients import SyncRedis, sync_client
from generation.token_log.log import TokenLogSync

PAUSE_KEY: Final = "reaper:paused"
PAUSE_MS: Final = 15_000
PROBE_KEY: Final = "reaper:probe"
TURN_KEY: Final = "reaper:turn:"
"""With the pool's slug."""
TURN_MS: Final = 1_400
"""Less than a worker's shortest pause between sweeps, so that one alone has each turn."""


@lru_cache(maxsize=1)
def token_log() -> TokenLogSync:
    """The token log for sync callers. Redis' errors pass through."""
    return TokenLogSync(sync_client(settings.REDIS_URL))


@lru_cache(maxsize=1)
def _redis() -> SyncRedis:
    return sync_client(settings.REDIS_URL)


def pause_reaping() -> None:
    """After a loss of Redis nobody reaps for PAUSE_MS: owners open their logs again first."""
    _redis().set(PAUSE_KEY, b"1", px=PAUSE_MS)


def reaping_paused() -> bool:
    return bool(_redis().exists(PAUSE_KEY))


def takes_turn(pool: str) -> bool:
    """Whether the next sweep of this pool is the caller's; then nobody else's for TURN_MS."""
    return bool(_redis().set(TURN_KEY + pool, b"1", nx=True, px=TURN_MS))


def takes_writes() -> bool:
    """Whether Redis takes what leases are renewed with. Full (`maxmemory`) or read-only it refuses
    every owner's, and still says that their leases have run out."""
    try:
        _redis().set(PROBE_KEY, b"1", px=1_000)
    except (OutOfMemoryError, ReadOnlyError):
        return False
    return True
