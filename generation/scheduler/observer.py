"""Reads how pools stand, and keeps samples of it. For sync callers; changes no queue."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from generation.scheduler import calls
from generation.scheduler.calls import Call
from generation.scheduler.figures import (
    SAMPLE_MS,
    SAMPLES,
    Counts,
    PoolFigures,
    counts,
    counts_key,
    history_key,
    pool_figures,
    sampled_key,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """One pool at one moment; `samples` are packed, the newest first."""

    figures: PoolFigures
    counts: Counts
    samples: list[bytes]


class Observer:
    """`redis` must not decode responses; where it is away, calls raise `redis.RedisError`."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def look(
        self, pools: Sequence[str], plans: Sequence[tuple[str, int, bool]] = (), *, newest: int = 0
    ) -> list[Look | None]:
        """How these pools stand, in their order, with what was counted there and that many of their
        newest samples; all in one round trip. None for one whose keys hold something else.
        `plans` (slug, weight, whether it pays) are told also where nobody of them waits."""
        asked = [calls.figures(pool, plans, "") for pool in pools]
        pipe: Any = self._redis.pipeline(transaction=False)
        for call in asked:
            pipe.execute_command(*call.words())
            pipe.hgetall(counts_key(call.pool))
            pipe.lrange(history_key(call.pool), *((0, newest - 1) if newest else (1, 0)))
        replies = iter(pipe.execute(raise_on_error=False))
        return [self._look(call, *itertools.islice(replies, 3)) for call in asked]

    def _look(self, call: Call, stands: Any, counted: Any, samples: Any) -> Look | None:
        try:
            stands = self._checked(stands, call)
            return Look(
                pool_figures(stands), counts(self._checked(counted)), self._checked(samples)
            )
        except ResponseError:
            log.exception("%s has no figures", call.pool, extra={"action": "no_figures"})
            return None

    def take_sample_turns(self, pools: Sequence[str]) -> list[str]:
        """Those of these pools whose next sample is this caller's to take: of many who ask at once
        one has it, and nobody before the next SAMPLE_MS have begun."""
        rest_ms = SAMPLE_MS - time.time_ns() // 1_000_000 % SAMPLE_MS
        pipe: Any = self._redis.pipeline(transaction=False)
        for pool in pools:
            pipe.set(sampled_key(pool), 1, nx=True, px=rest_ms)
        return [pool for pool, taken in zip(pools, pipe.execute(), strict=True) if taken]

    def keep_sample(self, pool: str, sample: bytes) -> None:
        """As the newest; those beyond SAMPLES go."""
        key = history_key(pool)
        pipe: Any = self._redis.pipeline(transaction=True)
        pipe.lpush(key, sample).ltrim(key, 0, SAMPLES - 1).execute()

    def samples(self, pools: Sequence[str], most: int = SAMPLES) -> list[list[bytes]]:
        """Of each of these pools, the newest first; all in one round trip."""
        pipe: Any = self._redis.pipeline(transaction=False)
        for pool in pools:
            pipe.lrange(history_key(pool), 0, most - 1)
        found: list[list[bytes]] = pipe.execute()
        return found

    def ping(self) -> None:
        """Raises RedisError where Redis is away."""
        self._redis.ping()

    def _checked(self, reply: Any, call: Call | None = None) -> Any:
        if isinstance(reply, NoScriptError) and call is not None:
            redis: Any = self._redis
            return redis.execute_command(*call.words_with_source())
        if isinstance(reply, RedisError):
            raise reply
        return reply
