"""What an orchestrator holds to write one run's log. The flusher does the sending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from generation.events import encode_data
from generation.token_log.buffer import RunBuffer
from generation.token_log.errors import Fenced, LogClosed, TokenLogError


@dataclass(frozen=True, slots=True)
class RecheckReply:
    """What PostgreSQL says about a run: its epoch now, and whether it was asked to stop."""

    epoch: int
    stop_requested: bool


Recheck = Callable[[], Awaitable[RecheckReply]]


class Sender(Protocol):
    """What a writer asks of its flusher."""

    def kick(self, writer: RunWriter) -> None: ...
    def detach(self, writer: RunWriter) -> None: ...
    async def tell_gone(self, writer: RunWriter) -> None: ...
    async def expire_lease(self, writer: RunWriter) -> None: ...


class RunWriter:
    """One run's log, for the owner of one epoch. Made by Flusher.open; used in its event loop.

    `stop_requested` is set once somebody asked the run to stop. `fenced` is set once somebody
    else owns the run (or it has ended): from then on everything raises Fenced. Text and events
    are taken at once and never wait; what they raise was not taken.
    """

    def __init__(
        self,
        sender: Sender,
        run: str,
        *,
        epoch: int,
        owner_channel: str,
        buffer: RunBuffer,
        recheck: Recheck,
    ) -> None:
        self.run = run
        self.epoch = epoch
        self.owner_channel = owner_channel
        self.stop_requested = asyncio.Event()
        self.fenced = asyncio.Event()
        self.watchers: Mapping[str, int] = {}
        """Who watches, as Redis said last: gateway channel -> since when (Redis' ms)."""
        self.arrivals = -1
        """How many watchers had come by then; -1: Redis was not asked yet."""
        self.output_tokens = 0
        """How many the text has that was given so far; told with it, for whoever takes over."""
        self.lost = False
        """Whether the log was lost after seal(): nothing is written any more (see done())."""
        self.opening_lost = False
        """Whether what was written before this owner is not, or may not be, in the log any more."""
        self.buffer = buffer
        self.recheck = recheck
        # The flusher's notes: when to append again, and whether the log must be opened first.
        self.next_heartbeat_s = 0.0
        self.renewed_s = 0.0
        self.not_before_s = 0.0
        self.reopening = False
        self._sender = sender
        self._closed = False
        self._has_text = bool(buffer.whole_text)
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def seq(self) -> int:
        """The last seq given to an event."""
        return self.buffer.seq

    @property
    def progress(self) -> int:
        """Grows with everything that is given, whether or not it is in the log."""
        return self.buffer.given

    @property
    def whole_text(self) -> str:
        """The answer so far, whether or not it is in the log yet."""
        return self.buffer.whole_text

    def text(self, text: str) -> None:
        """More of the answer; the first piece is flushed at once, the others with the tick.

        Raises Fenced, AnswerTooLong, LogFull, LogClosed; ValueError for a lone surrogate.
        """
        self._check()
        self.buffer.add_text(text)
        if text and not self._has_text:
            self._has_text = True
            self._sender.kick(self)

    def event(self, name: str, payload: Mapping[str, object], urgent: bool = True) -> None:
        """A `notice`, an `error` or a `retract`; urgent ones are flushed at once.

        `retract` takes the text back: what was not sent is dropped, and the log is emptied.
        """
        self._check()
        self.buffer.add_event(name, encode_data(payload))
        if urgent:
            self._sender.kick(self)

    def begin_anew(self) -> None:
        """Drop the text so far: the answer is written again from its beginning."""
        self._check()
        self.buffer.begin_anew()
        self._has_text = False

    async def flush(self) -> None:
        """Returns when everything given so far is in the log. Waits while Redis is away."""
        self._check()
        if self.buffer.idle and not self.reopening:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((self.buffer.given, future))
        self._sender.kick(self)
        await future

    async def text_done(self, timeout_s: float | None = None) -> int:
        """Flushes, ends the text, and returns the seq of `done`: the run's last_seq.

        After `timeout_s` (Redis is away) the seqs are fixed all the same; what is not in the log
        by then follows, or the log is given up. Then fix the finish in PostgreSQL, then done().
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            pass
        self._check()
        return self.buffer.seal()

    def unseal(self) -> None:
        """Takes text_done() back, where the finish could not be fixed and more must be said."""
        self._check()
        self.lost = False
        self.buffer.unseal()

    async def done(self, payload: Mapping[str, object], timeout_s: float | None = None) -> bool:
        """Appends `done`; with it the writer is closed. False where the log was lost since
        text_done(), or Redis is still away after `timeout_s` (the log is given up): then
        gateways answer from PostgreSQL. A cancelled call loses nothing: `done` is still sent.
        """
        self._check()
        self.buffer.add_done(encode_data(payload))
        if self.lost:
            self.log_gone()
            await self._sender.tell_gone(self)
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            return False
        return not self.lost

    async def hand_over(self, timeout_s: float | None = 5.0) -> None:
        """Flushes, ends nothing, and gives the lease up so that another owner can come at once.

        Without `timeout_s` it waits as long as Redis is away.
        """
        self._check()
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
                self.close()
                await self._sender.expire_lease(self)
        except TimeoutError:
            pass  # the lease runs out by itself
        finally:
            self.close()

    def close(self) -> None:
        """Stops writing, renewing and telling. Ends nothing in the log."""
        if not self._closed:
            self._closed = True
            self._sender.detach(self)
            self._fail(LogClosed("the writer was closed"))

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits until what was given is in the log."""
        return bool(self._waiters)

    # What the flusher reports back.

    def settle(self) -> None:
        """Wakes those whose part is in the log."""
        waiting, self._waiters = self._waiters, []
        for given, future in waiting:
            if self.buffer.flushed < given:
                self._waiters.append((given, future))
            elif not future.done():
                future.set_result(None)

    def fence(self) -> None:
        """Somebody else owns the run."""
        self.fenced.set()
        self._fail(Fenced(f"epoch {self.epoch} no longer owns the run"))
        self._sender.detach(self)

    def log_gone(self) -> None:
        """The log was lost after the finish was fixed: there is nothing to wait for."""
        self.lost = True
        self.buffer.give_up()
        self.settle()
        if self.buffer.ended:
            self.close()

    def _check(self) -> None:
        if self.fenced.is_set():
            raise Fenced(f"epoch {self.epoch} no longer owns the run")
        if self._closed:
            raise LogClosed("the writer was closed")

    def _fail(self, error: TokenLogError) -> None:
        waiting, self._waiters = self._waiters, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
