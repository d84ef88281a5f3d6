"""The runs watched by this web process: one subscription for all of them, the log as repair.

A gateway registers as a watcher of a run first, then reads the log from the client's cursor, then
passes on what is pushed. A run it hears nothing of for SILENT_S is registered and looked up again;
where its log is gone or unended, PostgreSQL says whether to wait or to give the stored text. So a
lost message costs a read, never a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from django.conf import settings
from redis.exceptions import RedisError

from generation.gateway.closing import close_ended_forever
from generation.gateway.hint_feed import HintFeed
from generation.gateway.lookup import GONE, Gatherer, run_ends, waiting_pools
from generation.gateway.positions import queued_frame
from generation.gateway.viewer import INBOX_LIMIT_BYTES, Viewer
from generation.open_connections import OPEN, Why
from generation.scheduler import Place, Scheduler
from generation.token_log.commands import LogPage
from generation.token_log.layer import TokenChannelLayer
from generation.token_log.log import TokenLog
from generation.token_log.push import decode_push
from generation.token_log.subscriber import RawSubscriber
from generation.token_log.tasks import end_task

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
SILENT_S: Final = 2.5
"""An owner tells its seq every second; this much silence means that messages were lost."""
RENEW_S: Final = 10.0
"""Watching is renewed this often; Redis forgets a gateway after 25 s."""
POSITIONS_S: Final = 1.0
READS_AT_ONCE: Final = 32
"""After a hiccup of Redis all viewers read at once; each read in flight costs a connection."""


class Feed:
    """One watched run: who views it here, and when it was last heard of."""

    __slots__ = ("heard_at_s", "place", "pool", "queued", "ready", "registered_at_s", "viewers")

    def __init__(self, pool: str, now_s: float) -> None:
        self.pool = pool
        self.viewers: set[Viewer] = set()
        self.heard_at_s = now_s
        self.registered_at_s = now_s
        self.queued = False
        self.place: Place | None = None
        self.ready = asyncio.Event()


class Hub:
    """All viewers of one event loop. `channel` is this process' own; nobody else listens there."""

    def __init__(
        self,
        token_log: TokenLog,
        layer: TokenChannelLayer,
        scheduler: Scheduler,
        hints: HintFeed,
        channel: str,
    ) -> None:
        self._log = token_log
        self._layer = layer
        self._scheduler = scheduler
        self.hints = hints
        self._channel = channel
        self._feeds: dict[str, Feed] = {}
        self._unresolved = Gatherer()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
        self._loop = asyncio.get_running_loop()
        self._subscriber: RawSubscriber
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self.draining = False

    async def start(self) -> None:
        self._subscriber = await self._layer.subscribe_raw(
            self._channel, self._on_push, on_resubscribed=self._on_resubscribed
        )
        await self.hints.start()
        self.at_close(self._subscriber.aclose)
        self.at_close(self.hints.aclose)
        self._spawn(self._tick_forever())
        self._spawn(close_ended_forever(OPEN))

    async def aclose(self) -> None:
        for task in list(self._tasks):
            await end_task(task)
        while self._closers:
            await self._closers.pop()()

    def at_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """What `aclose` closes too, the last one first."""
        self._closers.append(closer)

    @property
    def deaf_since_s(self) -> float | None:
        """Since when this process hears nothing of runs, or of hints (time.monotonic())."""
        both = (self._subscriber.deaf_since_s, self.hints.deaf_since_s)
        return min((since for since in both if since is not None), default=None)

    def drain(self) -> None:
        """End every open stream and socket; the clients go on at another process."""
        self.draining = True
        for feed in self._feeds.values():
            for viewer in feed.viewers:  # also those of requests that wait for an end
                viewer.close()
        OPEN.close_all(Why.RESTART)

    @property
    def open_streams(self) -> int:
        return sum(len(feed.viewers) for feed in self._feeds.values())

    # --- viewers come and go ----------------------------------------------------------------------

    async def attach(
        self, run: str, pool: str, after: int, inbox_limit_bytes: int = INBOX_LIMIT_BYTES
    ) -> Viewer:
        """A viewer that goes on after seq `after`. Registers first, so that nothing falls between.

        Whoever attaches must detach.
        """
        viewer = Viewer(run, after, self._read, inbox_limit_bytes)
        feed = self._feeds.get(run)
        first = feed is None
        if feed is None:
            feed = self._feeds[run] = Feed(pool, self._loop.time())
        feed.viewers.add(viewer)
        try:
            await self._wait_registered(run, feed, first=first)
        except BaseException:
            self.detach(viewer)
            raise
        if self.draining:
            viewer.close()
        if feed.queued and feed.place is not None:
            viewer.say(queued_frame(feed.place))  # the others were told when it last changed
        return viewer

    async def _wait_registered(self, run: str, feed: Feed, *, first: bool) -> None:
        if not first:
            await feed.ready.wait()
            return
        try:
            await self._register([run])
        finally:
            feed.ready.set()

    def detach(self, viewer: Viewer) -> None:
        feed = self._feeds.get(viewer.run)
        if feed is None:
            return
        feed.viewers.discard(viewer)
        if not feed.viewers:
            del self._feeds[viewer.run]
            self._spawn(self._unregister(viewer.run))

    async def _unregister(self, run: str) -> None:
        with contextlib.suppress(RedisError):
            await self._log.unregister(run, self._channel)
        if run in self._feeds:  # somebody came back in the meantime
            await self._register([run])

    async def _read(self, run: str, after: int, limit: int) -> LogPage | None:
        try:
            async with self._reads:
                page = await self._log.read(run, after, limit)
        except RedisError:
            page = None
        if page is None and self._unresolved.add(run):
            self._spawn(self._resolve_gathered())
        return page

    # --- what is pushed ---------------------------------------------------------------------------

    def _on_push(self, payload: bytes) -> None:
        now_s = self._loop.time()
        for pushed in decode_push(payload):
            feed = self._feeds.get(pushed.run)
            if feed is None:
                continue
            feed.heard_at_s = now_s
            feed.queued = False
            for viewer in feed.viewers:
                viewer.offer(pushed)

    def _on_resubscribed(self) -> None:
        """Whatever was pushed while nobody listened is in the logs."""
        for feed in self._feeds.values():
            feed.heard_at_s = self._loop.time() - SILENT_S

    # --- the tick ---------------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        next_positions_s = 0.0
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._tick()
                if self._loop.time() >= next_positions_s:
                    next_positions_s = self._loop.time() + POSITIONS_S
                    await self._tell_positions()
            except RedisError:
                log.warning("Redis is away; streams wait", extra={"action": "gateway_waits"})
            except Exception:
                # A tick that dies would leave every stream of this process deaf.
                log.exception("a gateway tick failed", extra={"action": "gateway_tick_failed"})

    async def _tick(self) -> None:
        now_s = self._loop.time()
        silent = [r for r, feed in self._feeds.items() if now_s - feed.heard_at_s >= SILENT_S]
        due = [r for r, feed in self._feeds.items() if now_s - feed.registered_at_s >= RENEW_S]
        self._send_heartbeats(now_s)
        unended = await self._register({*silent, *due})
        # Never awaited here: while PostgreSQL is away heartbeats and renewals must go on.
        if self._asking is None or self._asking.done():
            names = [run for run in silent if run in unended]
            self._asking = self._spawn(self._resolve(names))

    def _send_heartbeats(self, now_s: float) -> None:
        for feed in self._feeds.values():
            for viewer in feed.viewers:
                if now_s - viewer.wrote_at_s >= settings.STREAM_HEARTBEAT_S:
                    viewer.heartbeat()

    async def _register(self, runs: Iterable[str]) -> set[str]:
        """Watch the runs, in one pipeline, and send viewers that are behind to the log.

        Returns the runs whose log is gone or unended, all of them while Redis is away.
        """
        names = list(runs)
        if not names:
            return set()
        try:
            found = await self._log.register(names, self._channel)
        except RedisError:
            log.warning("Redis is away; streams wait", extra={"action": "gateway_waits"})
            return set(names)
        unended: set[str] = set()
        for run, state in zip(names, found, strict=True):
            feed = self._feeds.get(run)
            if feed is None:
                continue
            feed.registered_at_s = feed.heard_at_s = self._loop.time()
            if state is None or state.status != "ended":
                unended.add(run)
            if state is not None:
                feed.queued = state.status == "queued"
                self._send_to_log(feed, state.last_seq)
        return unended

    @staticmethod
    def _send_to_log(feed: Feed, last_seq: int) -> None:
        for viewer in feed.viewers:
            if viewer.cursor < last_seq:
                viewer.look_again()

    async def _resolve_gathered(self) -> None:
        await self._resolve(await self._unresolved.take())

    async def _resolve(self, runs: Iterable[str]) -> None:
        """Ask PostgreSQL how the runs ended: ended → the stored text, live → wait."""
        names = [run for run in runs if run in self._feeds]
        if not names:
            return
        for run, end in (await run_ends(names)).items():
            feed = self._feeds.get(run)
            if feed is None or end is None:
                continue
            for viewer in feed.viewers:
                if end is GONE:
                    viewer.close()
                else:
                    viewer.end_with(end)

    # --- the queue, made visible ------------------------------------------------------------------

    async def _tell_positions(self) -> None:
        """One pipeline for all waiting runs; a viewer hears of a place only when what it is told
        changes."""
        waiting = [(feed.pool, run) for run, feed in self._feeds.items() if feed.queued]
        if not waiting:
            return
        places = await self._scheduler.places(waiting)
        for (_, run), place in zip(waiting, places, strict=True):
            feed = self._feeds.get(run)
            if feed is None or place is None or _says_the_same(place, feed.place):
                continue
            feed.place = place
            for viewer in feed.viewers:
                viewer.say(queued_frame(place))
        nowhere = [run for (_, run), place in zip(waiting, places, strict=True) if place is None]
        # Never awaited here: see _tick.
        if nowhere and (self._looking is None or self._looking.done()):
            self._looking = self._spawn(self._find_again(nowhere))

    async def _find_again(self, runs: Iterable[str]) -> None:
        """Runs that wait no more where they did: claimed by now, or moved to another queue."""
        for run, pool in (await waiting_pools(runs)).items():
            feed = self._feeds.get(run)
            if feed is not None and feed.pool != pool:
                feed.pool, feed.place = pool, None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _says_the_same(place: Place, told: Place | None) -> bool:
    return told is not None and (place.position, place.eta_s) == (told.position, told.eta_s)
