"""One open stream in this process: a cursor and a small inbox, nothing else worth saving."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import Final, Protocol

from generation.events import Event, comment_frame, encode_data, frame_without_id, sse_frame
from generation.runs import RunEnd
from generation.token_log.commands import LogPage
from generation.token_log.follow import Follower, Step
from generation.token_log.push import PushedRun

INBOX_LIMIT_BYTES: Final = 64 * 1024
"""What may wait here for a slow client; beyond it the inbox is dropped and the log read again."""

PAGE_EVENTS: Final = 64
"""What one read brings in for one client: usually a few KiB. After an outage of Redis a delta can
be 96 KiB, so that more would be a lot for a phone that does not read."""


class LogReader(Protocol):
    """Reads the log of a run after a cursor; None where there is no log (any more)."""

    def __call__(self, run: str, after: int, limit: int) -> Awaitable[LogPage | None]: ...


class Viewer:
    """Turns what is pushed and what the log holds into frames in seq order, each once.

    Pushed frames are passed on only while they follow the cursor without a gap; anything else sends
    the viewer to the log, and what the log holds after the cursor is passed on whatever its seq.
    """

    __slots__ = (
        "_follower",
        "_read",
        "_waiter",
        "_woken",
        "closed",
        "end",
        "extra",
        "inbox",
        "inbox_bytes",
        "inbox_limit_bytes",
        "look",
        "run",
        "wrote_at_s",
    )

    def __init__(
        self, run: str, after: int, read: LogReader, inbox_limit_bytes: int = INBOX_LIMIT_BYTES
    ) -> None:
        self.run = run
        self._follower = Follower(after)
        self.inbox: deque[PushedRun] = deque()
        self.inbox_bytes = 0
        self.inbox_limit_bytes = inbox_limit_bytes
        self.look = True  # begin with the log
        self.closed = False
        self.end: RunEnd | None = None
        self.extra = b""  # frames without id: a heartbeat, a queue position
        # A future and a flag in place of an Event, which costs three times as much to wake from.
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self.wrote_at_s = asyncio.get_running_loop().time()
        self._read = read

    @property
    def cursor(self) -> int:
        """The last seq the client has been given."""
        return self._follower.cursor

    @property
    def ended(self) -> bool:
        """Whether the client has been given `done`."""
        return self._follower.ended

    # --- told by the hub --------------------------------------------------------------------------

    def offer(self, pushed: PushedRun) -> None:
        """What is new in this run. Never blocks; a slow client loses its inbox, never a word."""
        if pushed.length:
            self.extra = b""  # a place in the queue that is not written yet is past by now
            self.inbox.append(pushed)
            self.inbox_bytes += len(pushed.body)
            self._wake()
        if self.inbox_bytes > self.inbox_limit_bytes or pushed.told_seq > self._held_seq():
            self.look_again()

    def _held_seq(self) -> int:
        return self.inbox[-1].last_seq if self.inbox else self.cursor

    def look_again(self) -> None:
        """Read the log: something there is, or may be, ahead of what was pushed."""
        self._drop_inbox()
        self.look = True
        self._wake()

    def end_with(self, end: RunEnd) -> None:
        """The run has ended and its log is of no use: give the stored text."""
        if self.cursor >= end.last_seq:
            self.closed = True
        self.end = end
        self._wake()

    def say(self, frame: bytes) -> None:
        """A frame without id; only the newest one that has not been written is kept."""
        self.extra = frame
        self._wake()

    def heartbeat(self) -> None:
        self.extra = self.extra or comment_frame()
        self._wake()

    def close(self) -> None:
        """The client has gone, or this process is going: end the stream where it is."""
        self.closed = True
        self._wake()

    # --- asked by the writer ----------------------------------------------------------------------

    async def chunks(self) -> AsyncIterator[bytes]:
        """Bytes to write, until `done` has been given or the viewer is closed."""
        while not self.over:
            if chunk := self.ready() or await self.take():
                yield chunk
            elif not self.over:
                await self.wait()

    @property
    def over(self) -> bool:
        return self.closed or self._follower.ended

    def _wake(self) -> None:
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Until something may be there to take. For the one task that takes."""
        if not self._woken:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        self._woken = False

    def ready(self) -> bytes:
        """What `take` would give, where nobody need be asked for it: the usual case."""
        return self._from_inbox() if self.inbox and not self.look else b""

    async def take(self) -> bytes:
        """The next bytes, if there are any now."""
        if self.look:
            self.look = False
            return await self._from_log()
        if self.inbox:
            return self._from_inbox()
        if self.end is not None:
            return self._from_end(self.end)
        extra, self.extra = self.extra, b""
        return extra

    async def _from_log(self) -> bytes:
        page = await self._read(self.run, self.cursor, PAGE_EVENTS)
        if page is None:
            return b""
        # A full page may have more behind it.
        self.look = self.look or len(page.events) >= PAGE_EVENTS
        fresh = [event for event in page.events if self._follower.read(event.seq, event.name)]
        return b"".join(sse_frame(self.run, event) for event in fresh)

    def _from_inbox(self) -> bytes:
        ready: list[bytes] = []
        while self.inbox and not self.ended:
            pushed = self.inbox.popleft()
            self.inbox_bytes -= len(pushed.body)
            ready.append(self._follow(pushed))
        return b"".join(ready)

    def _follow(self, pushed: PushedRun) -> bytes:
        """The frames that go on from the cursor; at a gap, a look at the log instead."""
        if pushed.in_row and self._follower.pushed_row(
            pushed.first_seq, pushed.last_seq, pushed.last_name
        ):
            return pushed.body
        frames: list[bytes] = []
        for event in pushed.events:
            step = self._follower.pushed(event.seq, event.name)
            if step is Step.READ:
                self.look_again()
                break
            if step is Step.PASS:
                frames.append(event.frame)
        return b"".join(frames)

    def _from_end(self, end: RunEnd) -> bytes:
        """The whole text without id, then `done` under its own: no seq names two things."""
        return end_frames(self.run, end) if self._follower.read(end.last_seq, "done") else b""

    def _drop_inbox(self) -> None:
        self.inbox.clear()
        self.inbox_bytes = 0


def end_frames(run: str, end: RunEnd) -> bytes:
    """`snapshot` without id, notices, `error` where it broke off, and `done` under its own seq."""
    frames = [frame_without_id("snapshot", encode_data({"text": end.text}))]
    frames += [frame_without_id("notice", data) for data in end.notices_data]
    if end.error_data is not None:
        frames.append(frame_without_id("error", end.error_data))
    frames.append(sse_frame(run, Event(end.last_seq, "done", end.done_data)))
    return b"".join(frames)
