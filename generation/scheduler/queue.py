"""The queue of each pool, behind the interface that fairness will come to: first in, first out.

`Scheduler` is for event loops (workers, gateways), `SchedulerSync` for Django's threads; they have
the same verbs and differ in how they wait. Everything that changes a queue is one atomic script.
Redis may lose it all at any moment: a queue without its `built` marker refuses (NOT_BUILT) until
`rebuild` has filled it from PostgreSQL. Where Redis is away, calls raise `redis.RedisError`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, cast

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from generation.scheduler import calls
from generation.scheduler.calls import LOCK_MS, SCRIPTS, Call, Limits
from generation.scheduler.entries import (
    EnqueueResult,
    PopResult,
    QueueEntry,
    Room,
    pool_keys,
)
from generation.scheduler.tickets import publish_ticket


class _Script(Protocol):
    """A redis-py script: runs by its digest, and sends its text where the server has lost it."""

    def __call__(self, keys: Sequence[str], args: Sequence[str]) -> Any: ...


class SchedulerSync:
    """For sync callers. `redis` must not decode responses."""

    def __init__(self, redis: Redis, limits: Limits) -> None:
        self._redis = redis
        self._limits = limits
        self._scripts: dict[str, _Script] = {
            name: redis.register_script(calls.source(name)) for name in SCRIPTS
        }

    def room(self, pool: str, user: str) -> Room:
        """Whether one more run of this user may wait there. Ask before anything is saved: what is
        saved is queued whatever the limits say, so twins may go over them by a few.

        It also writes a little: a Redis that takes no writes (its memory is full, a replica)
        refuses here, and nothing is saved that could not be queued."""
        keys = pool_keys(pool)
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(keys.built)
        pipe.zcard(keys.queue)
        pipe.hget(keys.users, user)
        pipe.hincrby(keys.ends, "asked", 1)
        return self._limits.room(pipe.execute())

    def enqueue(
        self,
        run: str,
        *,
        pool: str,
        user: str,
        cost_tokens: int,
        preferred_replica: str | None = None,
    ) -> EnqueueResult:
        """Put a run at the end, once, and publish a ticket if it was not there. Commit its row
        before: a worker may claim it at once. A lost ticket never fails the call."""
        entry = QueueEntry(run, user, cost_tokens, preferred_replica)
        result = calls.enqueued(self._call(calls.enqueue(pool, entry, "back")))
        if result.added:
            publish_ticket(pool)
        return result

    def requeue_front(self, entry: QueueEntry, *, pool: str) -> EnqueueResult:
        """Put a run that was popped, or lost its owner, before all others; with a ticket."""
        result = calls.enqueued(self._call(calls.enqueue(pool, entry, "front")))
        if result.added:
            publish_ticket(pool)
        return result

    def pop(self, pool: str, replica: str) -> PopResult:
        """Take the run whose turn it is. Whoever pops must claim it or put it back."""
        return calls.popped(self._call(calls.pop(pool, replica)))

    def remove(self, run: str, pool: str) -> bool:
        """Take a run out wherever it stands; False where it did not wait."""
        return bool(self._call(calls.remove(pool, run)))

    def position(self, run: str, pool: str) -> int | None:
        """Its place, from 1; None where it does not wait."""
        return self.positions([(pool, run)])[0]

    def positions(self, waiting: Sequence[tuple[str, str]]) -> list[int | None]:
        """Places of (pool, run) pairs in one pipeline, in their order. Changes nothing."""
        pipe = self._redis.pipeline(transaction=False)
        for pool, run in waiting:
            pipe.zrank(pool_keys(pool).queue, run)
        return calls.positions(pipe.execute())

    def depth(self, pool: str) -> int:
        """How many runs wait."""
        return int(cast("int", self._redis.zcard(pool_keys(pool).queue)))

    def length_by_user(self, pool: str) -> dict[str, int]:
        """How many runs of each user wait; users with none are left out."""
        return calls.by_user(cast("dict[bytes, bytes]", self._redis.hgetall(pool_keys(pool).users)))

    def is_built(self, pool: str) -> bool:
        """Whether the queue may be trusted; a marker that another server set is taken away."""
        return bool(self._call(calls.check(pool)))

    def rebuild(self, pool: str, read: Callable[[], Iterable[QueueEntry]]) -> bool:
        """Fill the queue with what `read` finds in PostgreSQL, in its order, and set the marker.

        `read` is called under the lock. False: another process rebuilds, or the lock was lost on
        the way; then nothing is built and the next try starts from nothing. A send that committed
        after `read` and was refused by the missing marker is not in: whoever rebuilds enqueues
        again, afterwards, every queued run that has no position.
        """
        token = secrets.token_hex(16)
        if not self._redis.set(pool_keys(pool).lock, token, nx=True, px=LOCK_MS):
            return False
        return all(self._call(call) for call in calls.rebuild(pool, read(), token))

    def _call(self, call: Call) -> Any:
        return self._scripts[call.script](keys=call.keys, args=call.args)


class Scheduler:
    """For event loops; see `SchedulerSync` for what each verb promises (keep the two alike)."""

    def __init__(self, redis: AsyncRedis, limits: Limits) -> None:
        self._redis = redis
        self._limits = limits
        self._scripts: dict[str, _Script] = {
            name: cast("_Script", redis.register_script(calls.source(name))) for name in SCRIPTS
        }

    async def room(self, pool: str, user: str) -> Room:
        keys = pool_keys(pool)
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(keys.built)
        pipe.zcard(keys.queue)
        pipe.hget(keys.users, user)
        pipe.hincrby(keys.ends, "asked", 1)
        return self._limits.room(await pipe.execute())

    async def enqueue(
        self,
        run: str,
        *,
        pool: str,
        user: str,
        cost_tokens: int,
        preferred_replica: str | None = None,
    ) -> EnqueueResult:
        entry = QueueEntry(run, user, cost_tokens, preferred_replica)
        result = calls.enqueued(await self._call(calls.enqueue(pool, entry, "back")))
        if result.added:
            await asyncio.to_thread(publish_ticket, pool)
        return result

    async def requeue_front(self, entry: QueueEntry, *, pool: str) -> EnqueueResult:
        result = calls.enqueued(await self._call(calls.enqueue(pool, entry, "front")))
        if result.added:
            await asyncio.to_thread(publish_ticket, pool)
        return result

    async def pop(self, pool: str, replica: str) -> PopResult:
        return calls.popped(await self._call(calls.pop(pool, replica)))

    async def remove(self, run: str, pool: str) -> bool:
        return bool(await self._call(calls.remove(pool, run)))

    async def position(self, run: str, pool: str) -> int | None:
        return (await self.positions([(pool, run)]))[0]

    async def positions(self, waiting: Sequence[tuple[str, str]]) -> list[int | None]:
        pipe = self._redis.pipeline(transaction=False)
        for pool, run in waiting:
            pipe.zrank(pool_keys(pool).queue, run)
        return calls.positions(await pipe.execute())

    async def depth(self, pool: str) -> int:
        return int(await self._redis.zcard(pool_keys(pool).queue))

    async def length_by_user(self, pool: str) -> dict[str, int]:
        reply = self._redis.hgetall(pool_keys(pool).users)
        return calls.by_user(await cast("Awaitable[dict[bytes, bytes]]", reply))

    async def is_built(self, pool: str) -> bool:
        return bool(await self._call(calls.check(pool)))

    async def rebuild(self, pool: str, read: Callable[[], Awaitable[Iterable[QueueEntry]]]) -> bool:
        token = secrets.token_hex(16)
        if not await self._redis.set(pool_keys(pool).lock, token, nx=True, px=LOCK_MS):
            return False
        for call in calls.rebuild(pool, await read(), token):
            if not await self._call(call):
                return False
        return True

    async def _call(self, call: Call) -> Any:
        return await self._scripts[call.script](keys=call.keys, args=call.args)
