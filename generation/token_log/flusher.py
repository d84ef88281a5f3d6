"""One flusher per worker process: every run's appends in one pipeline, one push per gateway.

Every 40 ms it sends what all runs have to say as ONE pipeline, and then what is new as one payload
per watching gateway, in one pipeline too. So round trips grow with workers and gateways, not with
text. The replies renew leases and bring what readers asked for. A first text, a notice or an end
goes at once, and alone. Where so many runs flow that a flush takes long, ticks lie further apart,
up to 120 ms: a few tokens then share an append, a push and a write to their client.

While Redis is away nothing is dropped: numbered batches are sent again as they are, later text
piles up behind them (at most one answer per run). What Redis lost is opened again with a
`snapshot`, once PostgreSQL has confirmed the epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from generation.events import Event, encode_data, takeover_seq
from generation.token_log import push
from generation.token_log.buffer import RunBuffer
from generation.token_log.commands import AppendReply, Batch, Code, OpenReply
from generation.token_log.errors import Fenced, LogClosed
from generation.token_log.limits import (
    FLUSH_REST,
    FLUSH_S,
    HEARTBEAT_S,
    LONGEST_FLUSH_S,
    RENEWAL_S,
)
from generation.token_log.log import TokenLog
from generation.token_log.tasks import end_task, raise_if_cancelled
from generation.token_log.writer import Recheck, RunWriter

logger = logging.getLogger(__name__)

Publish = Callable[[Sequence[tuple[str, bytes]]], Awaitable[None]]

AWAY: Final = (RedisError, OSError, TimeoutError)
"""What says that Redis, not the caller, has a problem."""

BACKOFF_S: Final = (0.05, 1.0)
"""The first and the longest pause before Redis is tried again; leases (6 s) outlast several."""

CLOCK_S: Final = 0.001
"""uvloop's clock counts whole milliseconds: a timer may wake up to one early."""

PUBLISH_TIMEOUT_S: Final = 1.0
"""A push is a hint: it must not hold up the appends that renew leases."""


def tick_s(cpu_s: float, shortest_s: float = FLUSH_S, longest_s: float = LONGEST_FLUSH_S) -> float:
    """How long from one tick to the next, where a flush of all runs takes `cpu_s`; in seconds."""
    return max(shortest_s, min(FLUSH_REST * cpu_s, longest_s))


class Flusher:
    """Writes the logs of all runs of one worker. `publish` is TokenChannelLayer.publish_many.

    Run it with start() (and aclose()), or await run_forever() in a task of your own.
    """

    def __init__(
        self,
        log: TokenLog,
        publish: Publish,
        *,
        flush_s: float = FLUSH_S,
        longest_flush_s: float = LONGEST_FLUSH_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.away_since_s: float | None = None
        """Since when Redis does not answer (the loop's clock); None while it does."""
        self._log = log
        self._publish = publish
        self._flush_s = flush_s
        self._longest_flush_s = longest_flush_s
        self._heartbeat_s = heartbeat_s
        self._writers: dict[str, RunWriter] = {}
        self._kicked = asyncio.Event()
        self._urgent: set[RunWriter] = set()
        self._failures = 0
        self._not_before_s = 0.0
        self._flushing = asyncio.Lock()
        self._runner: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def open(
        self,
        run: str,
        *,
        epoch: int,
        owner_channel: str,
        recheck: Recheck,
        next_seq: int | None = None,
        text: str = "",
        output_tokens: int = 0,
    ) -> RunWriter:
        """Takes the log of `run` for `epoch` (minted by PostgreSQL) and returns its writer.

        Epoch 1 goes on at `next_seq` (k + 1, where the send wrote 1..k), with an empty `snapshot`
        first if the log is missing or ends before k. A later epoch begins with a `snapshot` of
        `text`, the answer so far (of `output_tokens`), at takeover_seq(epoch). While Redis is away
        the writer takes text all the same. Raises Fenced where a larger epoch is there or the run
        has ended.
        """
        if self._closing:
            raise LogClosed("the flusher is closed")
        first_seq = takeover_seq(epoch) if next_seq is None else next_seq
        buffer = RunBuffer(epoch=epoch, last_seq=first_seq - 1, text=text)
        writer = RunWriter(
            self, run, epoch=epoch, owner_channel=owner_channel, buffer=buffer, recheck=recheck
        )
        writer.output_tokens = output_tokens
        first = Event(first_seq, "snapshot", encode_data({"text": text}))
        try:
            reply = await self._open(writer, first, only_if_behind=epoch == 1)
        except AWAY:
            # It may have held, or may hold yet: that seq names this snapshot, and no later one.
            buffer.spend(first_seq)
            writer.opening_lost = True
            self._attach(writer)
            self._reopen(writer)
            return writer
        if reply.code is Code.FENCED:
            raise Fenced(f"epoch {reply.epoch} owns the run, or it has ended")
        writer.opening_lost = reply.found_seq < first_seq - 1 and epoch == 1
        self._attach(writer)
        self._opened(writer, reply)
        return writer

    def stop(self, run: str) -> None:
        """Tells a run's orchestrator that it was asked to stop, if the run is written here."""
        writer = self._writers.get(run)
        if writer is not None:
            writer.stop_requested.set()

    def on_owner_payload(self, payload: bytes) -> None:
        """For subscribe_raw on the owner's channel: the direct way a stop comes in."""
        with contextlib.suppress(ValueError):
            self.stop(push.decode_stop(payload))

    def start(self) -> None:
        """Runs the flusher in a task of its own."""
        self._runner = asyncio.create_task(self.run_forever(), name="token log flusher")

    async def run_forever(self) -> None:
        """Flushes until cancelled, or until aclose()."""
        self._runner = asyncio.current_task()
        loop = asyncio.get_running_loop()
        next_tick_s = loop.time()
        while True:
            began_s, cpu_s = loop.time(), time.thread_time()
            # After a failure too: what waits then is what the failed flush had to say.
            is_tick = began_s >= next_tick_s - CLOCK_S or self._failures > 0
            try:
                await self.flush_once(urgent_only=not is_tick)
            except Exception:
                # Whatever it was, other runs' text waits behind it.
                logger.exception("token log flush failed", extra={"action": "flush_failed"})
                self._went_away()
            raise_if_cancelled()
            if is_tick:
                # CPU, not time: a Redis that is far away costs nothing more.
                cpu_s = time.thread_time() - cpu_s
                next_tick_s = began_s + tick_s(cpu_s, self._flush_s, self._longest_flush_s)
            await self._until(next_tick_s)

    async def aclose(self, timeout_s: float = 5.0) -> None:
        """Flushes what is left, for `timeout_s` at most, and closes every writer."""
        self._closing = True
        runner, self._runner = self._runner, None
        if runner is not None and runner is not asyncio.current_task():
            await end_task(runner)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(not writer.buffer.idle for writer in self._writers.values()):
                    await self.flush_once()
                    await self._until(asyncio.get_running_loop().time() + self._flush_s)
        for task in list(self._tasks):
            await end_task(task)
        for writer in list(self._writers.values()):
            writer.close()

    # What writers ask.

    def kick(self, writer: RunWriter) -> None:
        """Flush this run now instead of with the next tick."""
        if self._writers.get(writer.run) is not writer:
            return  # closed or fenced meanwhile: it must not renew its lease once more
        self._urgent.add(writer)
        self._kicked.set()

    def detach(self, writer: RunWriter) -> None:
        self._urgent.discard(writer)
        if self._writers.get(writer.run) is writer:
            del self._writers[writer.run]

    async def tell_gone(self, writer: RunWriter) -> None:
        """Tells the gateways that a run has ended whose log is gone, so that they ask elsewhere."""
        told = [(writer.run, writer.seq, ())]
        await self._send_push([(c, p) for p in push.encode_push(told) for c in writer.watchers])

    async def expire_lease(self, writer: RunWriter) -> None:
        batch = Batch(
            writer.run,
            writer.epoch,
            writer.buffer.confirmed_seq,
            lease_ms=0,
            tokens=writer.output_tokens,  # a log that was opened a moment ago does not know yet
        )
        with contextlib.suppress(*AWAY):
            await self._log.append(batch)

    def is_cut(self, writer: RunWriter) -> bool:
        """Whether Redis does not take at this moment what the writer has to say."""
        now_s = asyncio.get_running_loop().time()
        return self.away_since_s is not None or writer.reopening or now_s < writer.not_before_s

    # The flush.

    async def flush_once(self, urgent_only: bool = False) -> None:
        """One pipeline with what is due now, then one push per gateway with what is new."""
        async with self._flushing:
            self._kicked.clear()
            urgent, self._urgent = self._urgent, set()
            due = list(self._batches(urgent if urgent_only else self._writers.values()))
            if not due:
                return
            try:
                replies = await self._log.append_many([batch for _, batch in due])
            except AWAY:
                self._went_away()
                return
            self._came_back()
            news: dict[str, list[bytes]] = {}
            for (writer, batch), reply in zip(due, replies, strict=True):
                if self._heard(writer, batch, reply):
                    self._collect(news, writer, batch)
            await self._send_push(
                [(channel, p) for channel in news for p in push.pack_entries(news[channel])]
            )

    def _due(self, asked: Iterable[RunWriter]) -> list[RunWriter]:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._not_before_s:
            return []
        return [
            writer
            for writer in asked
            if not (writer.reopening or writer.lost)
            and now_s >= writer.not_before_s
            and (not writer.buffer.idle or now_s >= writer.next_heartbeat_s)
        ]

    def _batches(self, asked: Iterable[RunWriter]) -> Iterator[tuple[RunWriter, Batch]]:
        now_s = asyncio.get_running_loop().time()
        for writer in self._due(asked):
            buffer = writer.buffer
            try:
                events = buffer.next_events()
            except Exception:
                # One run's trouble must not end the writing of all others.
                logger.exception("token log batch failed", extra={"action": "batch_failed"})
                writer.close()
                continue
            # Asked for now and then: the lease must be renewed, and who has left is not told.
            known = writer.arrivals if now_s < writer.renewed_s + RENEWAL_S else -1
            yield (
                writer,
                Batch(
                    writer.run,
                    writer.epoch,
                    buffer.confirmed_seq,
                    events,
                    known=known,
                    tokens=writer.output_tokens,
                ),
            )

    def _heard(self, writer: RunWriter, batch: Batch, reply: AppendReply) -> bool:
        """Acts on one reply; True where the batch is in the log."""
        now_s = asyncio.get_running_loop().time()
        if reply.code is None:
            logger.warning(
                "token log append refused: %s", reply.error, extra={"action": "append_refused"}
            )
            writer.not_before_s = now_s + BACKOFF_S[1]
            return False
        if reply.code is Code.FENCED:
            writer.fence()
            return False
        if reply.code is not Code.OK:
            self._reopen(writer)
            return False
        if reply.arrivals >= 0:
            writer.watchers, writer.arrivals = reply.watchers, reply.arrivals
            writer.renewed_s = now_s
        # From the renewal on: a lease must not run out because of text that renewed nothing.
        writer.next_heartbeat_s = writer.renewed_s + self._heartbeat_s
        writer.buffer.confirm(batch.events[-1].seq if batch.events else batch.expected_seq)
        if reply.stop:
            writer.stop_requested.set()
        if reply.resync and not writer.buffer.sealed:
            writer.buffer.want_snapshot()
            self.kick(writer)
        writer.settle()
        if writer.buffer.ended and writer.buffer.idle:
            writer.close()
        elif writer.is_awaited:
            self.kick(writer)  # more than one batch holds, or what an outage has kept back
        return True

    def _collect(self, news: dict[str, list[bytes]], writer: RunWriter, batch: Batch) -> None:
        if not writer.watchers:
            return
        events = batch.events
        if writer.buffer.retracted:
            # A retract that came while this batch was under way: its text must not be shown.
            events = [e for e in events if e.name not in ("delta", "snapshot")]
        entry = push.encode_entry(writer.run, writer.buffer.confirmed_seq, events)
        for channel in writer.watchers:
            news.setdefault(channel, []).append(entry)

    async def _send_push(self, payloads: Sequence[tuple[str, bytes]]) -> None:
        if not payloads:
            return
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                await self._publish(payloads)
        except AWAY as problem:
            # Lost for good, and no harm: the next told seq sends the gateways to the log.
            logger.warning(
                "token log push failed: %s",
                type(problem).__name__,
                extra={"action": "push_failed"},
            )

    # What was lost.

    def _reopen(self, writer: RunWriter) -> None:
        if writer.reopening or writer.closed:
            return
        writer.reopening = True
        self._spawn(self._reopen_patiently(writer))

    async def _reopen_patiently(self, writer: RunWriter) -> None:
        attempts = 0
        while not (writer.closed or writer.fenced.is_set()):
            try:
                if await self._reopen_once(writer):
                    return
            except AWAY:
                self._mark_away()
            except Exception:
                # PostgreSQL cannot be asked: without its word nothing may be opened.
                logger.exception("epoch not rechecked", extra={"action": "recheck_failed"})
            raise_if_cancelled()
            attempts += 1
            await asyncio.sleep(_backoff_s(attempts))

    async def _reopen_once(self, writer: RunWriter) -> bool:
        if writer.buffer.sealed:
            await self._log.delete(writer.run, epoch=writer.epoch)
            writer.reopening = False
            writer.log_gone()
            await self.tell_gone(writer)
            return True
        # Redis first: PostgreSQL need not be asked again and again while nothing can be opened.
        await self._log.states([writer.run])
        checked = await writer.recheck()
        if checked.stop_requested:
            writer.stop_requested.set()
        if checked.epoch != writer.epoch:
            writer.fence()
            return True
        if writer.buffer.sealed:
            return False
        reply = await self._open(writer, writer.buffer.begin_again())
        if reply.code is Code.FENCED:
            writer.fence()
        else:
            self._opened(writer, reply)
        return True

    async def _open(
        self, writer: RunWriter, first: Event, *, only_if_behind: bool = False
    ) -> OpenReply:
        return await self._log.open(
            writer.run,
            epoch=writer.epoch,
            owner=writer.owner_channel,
            events=[first],
            base_seq=first.seq - 1,
            only_if_behind=only_if_behind,
            tokens=writer.output_tokens,
        )

    def _opened(self, writer: RunWriter, reply: OpenReply) -> None:
        writer.reopening = False
        writer.watchers, writer.arrivals = reply.watchers, reply.arrivals
        writer.renewed_s = 0.0
        writer.next_heartbeat_s = 0.0  # tell the watchers of the snapshot at once
        writer.buffer.opened(reply.last_seq)
        if reply.stop:
            writer.stop_requested.set()
        writer.settle()
        self.kick(writer)

    # Small things.

    def _attach(self, writer: RunWriter) -> None:
        older = self._writers.get(writer.run)
        if older is not None:
            older.fence()
        self._writers[writer.run] = writer

    def _went_away(self) -> None:
        self._mark_away()
        self._failures += 1
        self._not_before_s = asyncio.get_running_loop().time() + _backoff_s(self._failures)

    def _mark_away(self) -> None:
        if self.away_since_s is None:
            self.away_since_s = asyncio.get_running_loop().time()
            logger.warning("token log: Redis is away", extra={"action": "redis_away"})

    def _came_back(self) -> None:
        if self.away_since_s is not None:
            logger.warning("token log: Redis is back", extra={"action": "redis_back"})
        self.away_since_s, self._failures = None, 0

    async def _until(self, next_tick_s: float) -> None:
        """Sleeps to the next tick, or to a kick; a kick does not shorten a back-off."""
        now_s = asyncio.get_running_loop().time()
        if self._not_before_s > now_s:
            await asyncio.sleep(self._not_before_s - now_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, next_tick_s - now_s) if self._writers else None):
                await self._kicked.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _backoff_s(failures: int) -> float:
    first, longest = BACKOFF_S
    pause = min(longest, first * 2 ** min(failures, 10))
    return random.uniform(pause / 2, pause)  # noqa: S311  # jitter, no secret
