"""The verbs of the token log, for asyncio (TokenLog) and for sync code (TokenLogSync).

The twins have the same names, arguments and replies; keep them alike. What is sent and how it is
read stands in commands.py. Redis' errors pass through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from generation.events import Event
from generation.token_log import commands, push
from generation.token_log.clients import AsyncRedis, SyncRedis
from generation.token_log.commands import (
    AppendReply,
    Batch,
    LogPage,
    LogState,
    LogStatus,
    OpenReply,
    Registered,
)
from generation.token_log.limits import MAX_READ_EVENTS
from generation.token_log.scripts import Call, run_calls, run_calls_sync


class TokenLog:
    """Token logs over an asyncio client (decode_responses=False; see clients.async_client)."""

    def __init__(self, redis: AsyncRedis) -> None:
        self._redis = redis
        self._client: Any = redis  # where the library's own types stand in the way

    async def open(
        self,
        run: str,
        *,
        epoch: int,
        owner: str = "",
        events: Sequence[Event] = (),
        status: LogStatus = "running",
        base_seq: int = 0,
        only_if_behind: bool = False,
        tokens: int = -1,
    ) -> OpenReply:
        """Creates the log for an epoch PostgreSQL has minted, or takes it over (see open.lua).

        `base_seq` is the last seq already spoken for; `only_if_behind` adds `events` only where
        the log is missing or ends before it. `tokens`: see Batch. May be repeated. Code: OK or
        FENCED.
        """
        call = commands.open_call(
            run,
            epoch=epoch,
            owner=owner,
            status=status,
            events=events,
            base_seq=base_seq,
            only_if_behind=only_if_behind,
            tokens=tokens,
        )
        return commands.parse_open(await self._call(call))

    async def append(self, batch: Batch) -> AppendReply:
        """One append; see append_many."""
        return (await self.append_many([batch]))[0]

    async def append_many(self, batches: Sequence[Batch]) -> list[AppendReply]:
        """The replies to `batches` (one run each), sent as ONE pipeline.

        A reply whose `code` is None was refused by Redis (`error` says why); the others hold.
        """
        calls = [commands.append_call(batch) for batch in batches]
        return [commands.parse_append(reply) for reply in await run_calls(self._redis, calls)]

    async def read(
        self, run: str, after: int = 0, limit: int = MAX_READ_EVENTS // 2
    ) -> LogPage | None:
        """Up to `limit` entries with a seq above `after`; None where there is no log."""
        return (await self.read_many([(run, after)], limit))[0]

    async def read_many(
        self, cursors: Sequence[tuple[str, int]], limit: int = MAX_READ_EVENTS // 2
    ) -> list[LogPage | None]:
        """read() for many (run, after), as one pipeline."""
        if not cursors:
            return []
        async with self._client.pipeline(transaction=False) as pipeline:
            for run, after in cursors:
                for words in commands.read_words(run, after, limit):
                    pipeline.execute_command(*words)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return [commands.parse_read(*pair) for pair in _pairs(replies)]

    async def request_stop(self, run: str) -> str | None:
        """Sets the stop flag; the owner's channel ('' while nobody owns it), None without a log."""
        return commands.parse_channel(await self._call(commands.stop_call(run)))

    async def request_snapshot(self, run: str) -> bool:
        """Asks the owner for a snapshot; False where no owner will hear of it."""
        return commands.parse_flag(await self._call(commands.resync_call(run)))

    async def register(self, runs: Sequence[str], channel: str) -> list[Registered | None]:
        """Notes, in one pipeline, that a gateway watches `runs`; None where a run has no log yet.

        Register first, read afterwards: what comes between is pushed.
        """
        replies = await run_calls(
            self._redis, [commands.register_call(run, channel) for run in runs]
        )
        return [commands.parse_registered(reply) for reply in replies]

    async def unregister(self, run: str, channel: str) -> None:
        """The gateway's last client of `run` has left."""
        await self._client.hdel(commands.watchers_key(run), channel)

    async def delete(self, run: str, *, epoch: int = commands.MAX_EPOCH) -> bool:
        """Deletes the log; False (and nothing done) where a larger epoch than `epoch` owns it."""
        return commands.parse_flag(await self._call(commands.delete_call(run, epoch)))

    async def states(self, runs: Sequence[str]) -> list[LogState | None]:
        """Where the logs of `runs` stand, in one pipeline; None where there is none."""
        replies = await run_calls(self._redis, [commands.state_call(run) for run in runs])
        return [commands.parse_state(reply) for reply in replies]

    async def tell(
        self, watchers: Mapping[str, int], run: str, last_seq: int, events: Sequence[Event] = ()
    ) -> None:
        """Tells the gateways a reply named what is new in one run's log."""
        payloads = push.encode_push([(run, last_seq, events)]) if watchers else []
        for channel in watchers:
            for payload in payloads:
                await self._redis.publish(channel, payload)

    async def tell_stop(self, channel: str, run: str) -> None:
        """Tells a run's owner directly that it was asked to stop."""
        await self._redis.publish(channel, push.encode_stop(run))

    async def _call(self, call: Call) -> Any:
        return (await run_calls(self._redis, [call]))[0]


class TokenLogSync:
    """The same verbs over a sync client (clients.sync_client); TokenLog documents them."""

    def __init__(self, redis: SyncRedis) -> None:
        self._redis = redis
        self._client: Any = redis  # where the library's own types stand in the way

    def open(
        self,
        run: str,
        *,
        epoch: int,
        owner: str = "",
        events: Sequence[Event] = (),
        status: LogStatus = "running",
        base_seq: int = 0,
        only_if_behind: bool = False,
        tokens: int = -1,
    ) -> OpenReply:
        call = commands.open_call(
            run,
            epoch=epoch,
            owner=owner,
            status=status,
            events=events,
            base_seq=base_seq,
            only_if_behind=only_if_behind,
            tokens=tokens,
        )
        return commands.parse_open(self._call(call))

    def append(self, batch: Batch) -> AppendReply:
        return self.append_many([batch])[0]

    def append_many(self, batches: Sequence[Batch]) -> list[AppendReply]:
        calls = [commands.append_call(batch) for batch in batches]
        return [commands.parse_append(reply) for reply in run_calls_sync(self._redis, calls)]

    def read(self, run: str, after: int = 0, limit: int = MAX_READ_EVENTS // 2) -> LogPage | None:
        return self.read_many([(run, after)], limit)[0]

    def read_many(
        self, cursors: Sequence[tuple[str, int]], limit: int = MAX_READ_EVENTS // 2
    ) -> list[LogPage | None]:
        if not cursors:
            return []
        with self._client.pipeline(transaction=False) as pipeline:
            for run, after in cursors:
                for words in commands.read_words(run, after, limit):
                    pipeline.execute_command(*words)
            replies: list[Any] = pipeline.execute(raise_on_error=False)
        return [commands.parse_read(*pair) for pair in _pairs(replies)]

    def request_stop(self, run: str) -> str | None:
        return commands.parse_channel(self._call(commands.stop_call(run)))

    def request_snapshot(self, run: str) -> bool:
        return commands.parse_flag(self._call(commands.resync_call(run)))

    def register(self, runs: Sequence[str], channel: str) -> list[Registered | None]:
        calls = [commands.register_call(run, channel) for run in runs]
        return [commands.parse_registered(reply) for reply in run_calls_sync(self._redis, calls)]

    def unregister(self, run: str, channel: str) -> None:
        self._client.hdel(commands.watchers_key(run), channel)

    def delete(self, run: str, *, epoch: int = commands.MAX_EPOCH) -> bool:
        return commands.parse_flag(self._call(commands.delete_call(run, epoch)))

    def states(self, runs: Sequence[str]) -> list[LogState | None]:
        replies = run_calls_sync(self._redis, [commands.state_call(run) for run in runs])
        return [commands.parse_state(reply) for reply in replies]

    def tell(
        self, watchers: Mapping[str, int], run: str, last_seq: int, events: Sequence[Event] = ()
    ) -> None:
        payloads = push.encode_push([(run, last_seq, events)]) if watchers else []
        for channel in watchers:
            for payload in payloads:
                self._redis.publish(channel, payload)

    def tell_stop(self, channel: str, run: str) -> None:
        self._redis.publish(channel, push.encode_stop(run))

    def _call(self, call: Call) -> Any:
        return run_calls_sync(self._redis, [call])[0]


def _pairs(replies: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(replies[::2], replies[1::2], strict=True))
