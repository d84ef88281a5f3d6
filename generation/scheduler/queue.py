"""The queue of each pool: who is next, and who is at work.

    plans share by start-time fair queueing, in tokens by weight
      users of a plan take turns, one run each
        runs of a user go first in, first out

`Scheduler` is for event loops (workers, gateways), `SchedulerSync` for Django's threads; they have
the same verbs and differ in how they wait. Everything that changes a queue is one atomic script.
Redis may lose it all at any moment: a queue without its `built` marker refuses (NOT_BUILT) until
`rebuild` has filled it from PostgreSQL. Where Redis is away, calls raise `redis.RedisError`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Final, cast

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import NoScriptError, RedisError

from generation.scheduler import calls
from generation.scheduler.calls import LOCK_MS, Call, Limits
from generation.scheduler.entries import (
    Asker,
    AtWork,
    Beat,
    EnqueueResult,
    Loan,
    Outlook,
    Place,
    PopResult,
    QueueEntry,
    Record,
    Room,
    pool_keys,
)
from generation.scheduler.figures import count_commands
from generation.scheduler.tickets import publish_ticket

RECORDS: Final = 200
"""Records that are read at once."""

ClockMs = Callable[[], int]
"""A time of its own for a simulation; without one, Redis' time is asked."""

Publish = Callable[[str, str | None], object]
"""What becomes of a ticket, where that is not the broker's business: of a pool, for a replica."""


class SchedulerSync:
    """For sync callers. `redis` must not decode responses."""

    def __init__(
        self,
        redis: Redis,
        limits: Limits,
        clock_ms: ClockMs | None = None,
        publish: Publish | None = None,
    ) -> None:
        self._redis = redis
        self._limits = limits
        self._clock_ms = clock_ms
        self._publish = publish

    # --- before a run is queued -------------------------------------------------------------------

    def room(self, pool: str, user: str) -> Room:
        """Whether one more run of this user may wait there. Ask before anything is saved: what is
        saved is queued whatever the limits say, so twins may go over them by a few.

        It also writes a little: a Redis that takes no writes (its memory is full, a replica)
        refuses here, and nothing is saved that could not be queued."""
        keys = pool_keys(pool)
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(keys.built)
        pipe.zcard(keys.jobs)
        pipe.hget(keys.users, user)
        pipe.hincrby(keys.tags, "asked", 1)
        return self._limits.room(pipe.execute())

    def outlook(self, pools: Sequence[str], asker: Asker) -> list[Outlook]:
        """What one more run of this user would meet in each of these pools, in their order; all in
        one round trip. Includes what `room` says, and writes a little as it does."""
        asked = [calls.outlook(pool, asker, self._now()) for pool in pools]
        return [self._limits.outlook(reply, is_paid=asker.is_paid) for reply in self._all(asked)]

    # --- waiting ----------------------------------------------------------------------------------

    def enqueue(self, entry: QueueEntry, *, pool: str) -> EnqueueResult:
        """Put a run at the end of its user's line, once, and publish a ticket if it was not there.
        Commit its row before: a worker may claim it at once. A lost ticket never fails the call."""
        result = calls.enqueued(self._call(calls.enqueue(pool, entry, "back", self._now())))
        if result.added:
            self._tell(pool, result.replica)
        return result

    def requeue_front(self, entry: QueueEntry, *, pool: str, replica: str = "") -> EnqueueResult:
        """Put a run that was popped, or lost its owner, before all others of its plan; with a
        ticket. It is at work no more; `replica`: only if that one has popped it last."""
        call = calls.enqueue(pool, entry, "front", self._now(), replica)
        result = calls.enqueued(self._call(call))
        if result.added:
            self._tell(pool, result.replica)
        return result

    def remove(self, run: str, pool: str) -> bool:
        """Take a run out wherever it stands; False where it did not wait."""
        return bool(self._call(calls.remove(pool, run)))

    def position(self, run: str, pool: str) -> int | None:
        """Its place, from 1; None where it does not wait."""
        return self.positions([(pool, run)])[0]

    def positions(self, waiting: Sequence[tuple[str, str]]) -> list[int | None]:
        """The positions of `places`."""
        return calls.positions(self.places(waiting))

    def places(self, waiting: Sequence[tuple[str, str]]) -> list[Place | None]:
        """Where (pool, run) pairs stand, in their order, in one round trip. Changes nothing."""
        asked = calls.places(waiting, self._now())
        return calls.placed(len(waiting), asked, self._all([call for call, _ in asked]))

    def depth(self, pool: str) -> int:
        """How many runs wait."""
        return int(cast("int", self._redis.zcard(pool_keys(pool).jobs)))

    def length_by_user(self, pool: str) -> dict[str, int]:
        """How many runs of each user wait; users with none are left out."""
        return calls.by_user(cast("dict[bytes, bytes]", self._redis.hgetall(pool_keys(pool).users)))

    def waiting(self, pool: str) -> Iterator[list[str]]:
        """The runs that wait, some at a time, in no order; of one that comes or goes meanwhile
        nothing is certain, and one may come twice."""
        cursor, key = 0, pool_keys(pool).entries
        while True:
            reply: Any = self._redis.hscan(key, cursor, count=RECORDS)
            cursor, part = reply
            yield [run.decode("ascii") for run in part]
            if not int(cursor):
                return

    # --- other regions ----------------------------------------------------------------------------

    def borrowable(self, pools: Sequence[str], *, most: int, trip_ms: int) -> list[list[Loan]]:
        """For each pool, at most so many runs that would wait there for longer than the trip, those
        that come first in front; none that is pinned. They still wait there."""
        asked = [calls.borrowable(pool, most, trip_ms, self._now()) for pool in pools]
        return [calls.loans(reply) for reply in self._all(asked)]

    def at_work_of(self, users: Sequence[str], pool: str) -> list[int]:
        """How many runs of each of these users are at work in the pool."""
        fields = [f"u:{user}" for user in users]
        reply: Any = self._redis.hmget(pool_keys(pool).busy, fields) if fields else []
        return [int(count or 0) for count in reply]

    # --- at work ----------------------------------------------------------------------------------

    def pop(
        self, pool: str, replica: str, *, at_work: int = 0, slots: int = 1, paid_burst: int = 0
    ) -> PopResult:
        """Take the run whose turn it is, for a replica that has so many at work: free ones below
        its `slots`, paid ones below `slots + paid_burst`. Where others have the room that it lacks,
        one of them is sent a ticket.

        Whoever pops must claim it, and say so when it has `ended`, or put it back."""
        room = (at_work, slots, paid_burst)
        result = calls.popped(self._call(calls.pop(pool, replica, room, self._now())))
        if result.passed_to is not None:
            self._tell(pool, result.passed_to)
        return result

    def ended(
        self,
        run: str,
        pool: str,
        spent_tokens: int | None = None,
        *,
        replica: str = "",
        is_open: bool = True,
    ) -> bool:
        """A popped run is at work no more; False where it was not. `spent_tokens` is what it has
        used instead of what was charged; None: unknown. `replica`: only if that one has popped it
        last. May be repeated. Publishes a ticket where one was spent in vain for want of room: for
        this replica, or where it begins no runs now (`is_open` false) for any of the pool."""
        call = calls.ended(pool, run, spent_tokens, replica, self._now())
        released, ticket = self._call(call)
        if ticket:
            self._tell(pool, replica if replica and is_open else None)
        return bool(released)

    def records(self, pool: str) -> Iterator[list[Record]]:
        """Those at work, some at a time; of one that begins or ends meanwhile nothing is certain,
        and one may come twice."""
        cursor, key = 0, pool_keys(pool).running
        while True:
            reply: Any = self._redis.hscan(key, cursor, count=RECORDS)
            cursor, part = reply
            yield calls.records(part)
            if not int(cursor):
                return

    def lost(self, runs: Sequence[str], pool: str) -> list[str]:
        """Those of these queued runs that neither wait nor were popped a moment ago."""
        return [run.decode("ascii") for run in self._call(calls.lost(pool, runs, self._now()))]

    # --- replicas and pools -----------------------------------------------------------------------

    def beat(self, pool: str, replica: str, *, at_work: int, slots: int, paid_burst: int) -> Beat:
        """Announce a replica, every second; `slots` 0: it begins no run now."""
        room = (at_work, slots, paid_burst)
        return calls.heard(self._call(calls.beat(pool, replica, room, self._now())))

    def leave(self, pool: str, replica: str) -> None:
        """The replica is there no more."""
        self._redis.hdel(pool_keys(pool).replicas, replica)

    def configure(
        self, pool: str, *, paused: bool | None = None, chores_paused: bool | None = None
    ) -> None:
        """Whether no run, or no chore, is begun there; None: as it is. Survives a rebuild, and not
        a lost Redis: the sweep repeats what PostgreSQL says."""
        if flags := calls.flags(paused, chores_paused):
            self._redis.hset(pool_keys(pool).tags, mapping=cast("Any", flags))

    def weigh(self, pools: Sequence[str], plan: str, weight: int) -> None:
        """Give a plan another share in these pools, for those of it that wait too. What is queued
        afterwards brings its own weight along."""
        self._all([calls.weigh(pool, plan, weight) for pool in pools])

    def count(self, pool: str, more: Mapping[str, int]) -> None:
        """Add to what was counted there: "admitted.<plan>.<step>", "refused.<plan>.<reason>" and
        others (figures.py). Raises ValueError for what is no count. Lost with Redis."""
        pipe: Any = self._redis.pipeline(transaction=False)
        for command in count_commands(pool, more, self._now()):
            pipe.execute_command(*command)
        pipe.execute()

    def are_chores_paused(self, pool: str) -> bool:
        """As `configure` was told last."""
        return cast("bytes | None", self._redis.hget(pool_keys(pool).tags, "chores_paused")) == b"1"

    def is_built(self, pool: str) -> bool:
        """Whether the queue may be trusted; a marker that another server set is taken away."""
        return bool(self._call(calls.check(pool)))

    def rebuild(
        self,
        pool: str,
        read: Callable[[], Iterable[QueueEntry | AtWork]],
        *,
        if_lost: bool = False,
    ) -> bool:
        """Fill the queue with what `read` finds in PostgreSQL, in its order, and set the marker.
        Those at work come first, so that no cap is passed.

        `read` is called under the lock. False: another process rebuilds, or the lock was lost on
        the way; then nothing is built and the next try starts from nothing. A send that committed
        after `read` and was refused by the missing marker is not in: whoever rebuilds enqueues
        again, afterwards, every queued run that has no position.

        `if_lost`: do nothing, and answer False, where it is built. Asked under the lock, for
        another may have built it since the caller looked; what it charged since would be lost.
        """
        token = secrets.token_hex(16)
        if not self._redis.set(pool_keys(pool).lock, token, nx=True, px=LOCK_MS):
            return False
        if if_lost and self.is_built(pool):
            self._call(calls.let_go(pool, token))
            return False
        return all(self._call(call) for call in calls.rebuild(pool, read(), token, self._now()))

    def _tell(self, pool: str, replica: str | None = None) -> None:
        (self._publish or publish_ticket)(pool, replica)

    def _now(self) -> str:
        return str(self._clock_ms()) if self._clock_ms is not None else ""

    def _call(self, call: Call) -> Any:
        redis: Any = self._redis
        try:
            return redis.execute_command(*call.words())
        except NoScriptError:
            return redis.execute_command(*call.words_with_source())

    def _all(self, asked: Sequence[Call]) -> list[Any]:
        if len(asked) < 2:
            return [self._call(call) for call in asked]
        pipe: Any = self._redis.pipeline(transaction=False)
        for call in asked:
            pipe.execute_command(*call.words())
        replies = pipe.execute(raise_on_error=False)
        return [self._or_again(call, reply) for call, reply in zip(asked, replies, strict=True)]

    def _or_again(self, call: Call, reply: Any) -> Any:
        if isinstance(reply, NoScriptError):
            return self._call(call)
        if isinstance(reply, RedisError):
            raise reply
        return reply


class Scheduler:
    """For event loops; see `SchedulerSync` for what each verb promises (keep the two alike)."""

    def __init__(self, redis: AsyncRedis, limits: Limits, clock_ms: ClockMs | None = None) -> None:
        self._redis = redis
        self._limits = limits
        self._clock_ms = clock_ms

    async def room(self, pool: str, user: str) -> Room:
        keys = pool_keys(pool)
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(keys.built)
        pipe.zcard(keys.jobs)
        pipe.hget(keys.users, user)
        pipe.hincrby(keys.tags, "asked", 1)
        return self._limits.room(await pipe.execute())

    async def outlook(self, pools: Sequence[str], asker: Asker) -> list[Outlook]:
        asked = [calls.outlook(pool, asker, self._now()) for pool in pools]
        replies = await self._all(asked)
        return [self._limits.outlook(reply, is_paid=asker.is_paid) for reply in replies]

    async def enqueue(self, entry: QueueEntry, *, pool: str) -> EnqueueResult:
        result = calls.enqueued(await self._call(calls.enqueue(pool, entry, "back", self._now())))
        if result.added:
            await asyncio.to_thread(publish_ticket, pool, result.replica)
        return result

    async def requeue_front(
        self, entry: QueueEntry, *, pool: str, replica: str = ""
    ) -> EnqueueResult:
        call = calls.enqueue(pool, entry, "front", self._now(), replica)
        result = calls.enqueued(await self._call(call))
        if result.added:
            await asyncio.to_thread(publish_ticket, pool, result.replica)
        return result

    async def remove(self, run: str, pool: str) -> bool:
        return bool(await self._call(calls.remove(pool, run)))

    async def position(self, run: str, pool: str) -> int | None:
        return (await self.positions([(pool, run)]))[0]

    async def positions(self, waiting: Sequence[tuple[str, str]]) -> list[int | None]:
        return calls.positions(await self.places(waiting))

    async def places(self, waiting: Sequence[tuple[str, str]]) -> list[Place | None]:
        asked = calls.places(waiting, self._now())
        return calls.placed(len(waiting), asked, await self._all([call for call, _ in asked]))

    async def depth(self, pool: str) -> int:
        return int(await self._redis.zcard(pool_keys(pool).jobs))

    async def length_by_user(self, pool: str) -> dict[str, int]:
        reply = self._redis.hgetall(pool_keys(pool).users)
        return calls.by_user(await cast("Awaitable[dict[bytes, bytes]]", reply))

    async def waiting(self, pool: str) -> AsyncIterator[list[str]]:
        cursor, key = 0, pool_keys(pool).entries
        while True:
            reply: Any = await self._redis.hscan(key, cursor, count=RECORDS)
            cursor, part = reply
            yield [run.decode("ascii") for run in part]
            if not int(cursor):
                return

    async def borrowable(
        self, pools: Sequence[str], *, most: int, trip_ms: int
    ) -> list[list[Loan]]:
        asked = [calls.borrowable(pool, most, trip_ms, self._now()) for pool in pools]
        return [calls.loans(reply) for reply in await self._all(asked)]

    async def at_work_of(self, users: Sequence[str], pool: str) -> list[int]:
        fields = [f"u:{user}" for user in users]
        asked: Any = self._redis.hmget(pool_keys(pool).busy, fields) if fields else None
        return [int(count or 0) for count in (await asked if asked is not None else [])]

    async def pop(
        self, pool: str, replica: str, *, at_work: int = 0, slots: int = 1, paid_burst: int = 0
    ) -> PopResult:
        room = (at_work, slots, paid_burst)
        result = calls.popped(await self._call(calls.pop(pool, replica, room, self._now())))
        if result.passed_to is not None:
            await asyncio.to_thread(publish_ticket, pool, result.passed_to)
        return result

    async def ended(
        self,
        run: str,
        pool: str,
        spent_tokens: int | None = None,
        *,
        replica: str = "",
        is_open: bool = True,
    ) -> bool:
        call = calls.ended(pool, run, spent_tokens, replica, self._now())
        released, ticket = await self._call(call)
        if ticket:
            whose = replica if replica and is_open else None
            await asyncio.to_thread(publish_ticket, pool, whose)
        return bool(released)

    async def records(self, pool: str) -> AsyncIterator[list[Record]]:
        cursor, key = 0, pool_keys(pool).running
        while True:
            reply: Any = await self._redis.hscan(key, cursor, count=RECORDS)
            cursor, part = reply
            yield calls.records(part)
            if not int(cursor):
                return

    async def lost(self, runs: Sequence[str], pool: str) -> list[str]:
        missing = await self._call(calls.lost(pool, runs, self._now()))
        return [run.decode("ascii") for run in missing]

    async def beat(
        self, pool: str, replica: str, *, at_work: int, slots: int, paid_burst: int
    ) -> Beat:
        room = (at_work, slots, paid_burst)
        return calls.heard(await self._call(calls.beat(pool, replica, room, self._now())))

    async def leave(self, pool: str, replica: str) -> None:
        reply = self._redis.hdel(pool_keys(pool).replicas, replica)
        await cast("Awaitable[int]", reply)

    async def configure(
        self, pool: str, *, paused: bool | None = None, chores_paused: bool | None = None
    ) -> None:
        if flags := calls.flags(paused, chores_paused):
            reply = self._redis.hset(pool_keys(pool).tags, mapping=cast("Any", flags))
            await cast("Awaitable[int]", reply)

    async def weigh(self, pools: Sequence[str], plan: str, weight: int) -> None:
        await self._all([calls.weigh(pool, plan, weight) for pool in pools])

    async def count(self, pool: str, more: Mapping[str, int]) -> None:
        pipe: Any = self._redis.pipeline(transaction=False)
        for command in count_commands(pool, more, self._now()):
            pipe.execute_command(*command)
        await pipe.execute()

    async def are_chores_paused(self, pool: str) -> bool:
        reply = self._redis.hget(pool_keys(pool).tags, "chores_paused")
        return await cast("Awaitable[bytes | None]", reply) == b"1"

    async def is_built(self, pool: str) -> bool:
        return bool(await self._call(calls.check(pool)))

    async def rebuild(
        self,
        pool: str,
        read: Callable[[], Awaitable[Iterable[QueueEntry | AtWork]]],
        *,
        if_lost: bool = False,
    ) -> bool:
        token = secrets.token_hex(16)
        if not await self._redis.set(pool_keys(pool).lock, token, nx=True, px=LOCK_MS):
            return False
        if if_lost and await self.is_built(pool):
            await self._call(calls.let_go(pool, token))
            return False
        for call in calls.rebuild(pool, await read(), token, self._now()):
            if not await self._call(call):
                return False
        return True

    def _now(self) -> str:
        return str(self._clock_ms()) if self._clock_ms is not None else ""

    async def _call(self, call: Call) -> Any:
        redis: Any = self._redis
        try:
            return await redis.execute_command(*call.words())
        except NoScriptError:
            return await redis.execute_command(*call.words_with_source())

    async def _all(self, asked: Sequence[Call]) -> list[Any]:
        if len(asked) < 2:
            return [await self._call(call) for call in asked]
        pipe: Any = self._redis.pipeline(transaction=False)
        for call in asked:
            pipe.execute_command(*call.words())
        replies = await pipe.execute(raise_on_error=False)
        return [
            await self._or_again(call, reply) for call, reply in zip(asked, replies, strict=True)
        ]

    async def _or_again(self, call: Call, reply: Any) -> Any:
        if isinstance(reply, NoScriptError):
            return await self._call(call)
        if isinstance(reply, RedisError):
            raise reply
        return reply
