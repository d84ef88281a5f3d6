"""Schedulers as the settings want them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from django.conf import settings
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.backoff import NoBackoff
from redis.retry import Retry

from generation.scheduler.calls import Limits
from generation.scheduler.observer import Observer
from generation.scheduler.queue import Scheduler, SchedulerSync

CONNECT_TIMEOUT_S: Final = 1.0
CALL_TIMEOUT_S: Final = 2.0
"""A person waits for the answer of a send: better a quick 503 than a slow one."""
LOOK_TIMEOUT_S: Final = 0.5


@lru_cache(maxsize=1)
def scheduler_sync() -> SchedulerSync:
    """This process' scheduler for sync callers, with a connection pool of its own."""
    redis = Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=CALL_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        # One more try at once, for pooled connections that died with the last Redis. Every verb may
        # run twice; a pop whose reply was lost leaves a queued run that the reaper finds.
        retry=Retry(NoBackoff(), 1),
    )
    return SchedulerSync(redis, _limits())


@lru_cache(maxsize=1)
def observer() -> Observer:
    """Who looks on in this process: figures for administrators and for Prometheus. It gives up
    sooner than a send does, for nothing waits for it, and tries once."""
    redis = Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=LOOK_TIMEOUT_S,
        socket_connect_timeout=LOOK_TIMEOUT_S,
        retry=Retry(NoBackoff(), 1),
    )
    return Observer(redis)


def scheduler_async(redis: AsyncRedis) -> Scheduler:
    """A scheduler on the caller's client: an event loop shares one."""
    return Scheduler(redis, _limits())


def _limits() -> Limits:
    return Limits(settings.MAX_QUEUED_PER_POOL, settings.MAX_LIVE_RUNS_PER_USER)
