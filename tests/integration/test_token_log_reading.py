"""A reader that follows the rules ends with exactly what was written, whatever is lost between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatproject.embedded import EmbeddedValkey
from generation.events import JUMP_NAMES, Event
from generation.token_log import (
    Flusher,
    Follower,
    RunWriter,
    Step,
    async_client,
    decode_push,
    event_text,
    flusher,
)
from tests.integration.token_log_room import (  # noqa: F401  # fixtures
    Database,
    UndecidedLog,
    valkey_fixture,
    writer_of,
)


@pytest.fixture(autouse=True, scope="module")
def no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flusher, "BACKOFF_S", (0.0, 0.0))
        yield


@dataclass
class Reader:
    """A gateway with one client: pushed events, repaired from the log."""

    log: UndecidedLog
    run: str
    follower: Follower = field(default_factory=Follower)
    text: str = ""
    notices: list[bytes] = field(default_factory=list)
    seen: dict[int, tuple[str, bytes]] = field(default_factory=dict)

    async def pushed(self, payload: bytes) -> None:
        for run in decode_push(payload):
            for event in run.events:
                step = self.follower.pushed(event.seq, event.name)
                if step is Step.PASS:
                    self._take(Event(event.seq, event.name, event.data))
                elif step is Step.READ:
                    await self.read()
            if self.follower.lags(run.told_seq):
                await self.read()

    async def read(self) -> None:
        page = await self.log.read(self.run, self.follower.cursor)
        for event in page.events if page else ():
            last = self.follower.cursor
            if self.follower.read(event.seq, event.name):
                # What DESIGN.md promises to clients, also for what comes from the log.
                assert event.seq == last + 1 or event.name in JUMP_NAMES
                self._take(event)

    def _take(self, event: Event) -> None:
        assert self.seen.setdefault(event.seq, (event.name, event.data)) == (event.name, event.data)
        if event.name == "delta":
            self.text += event_text(event)
        elif event.name == "snapshot":
            self.text = event_text(event)
        elif event.name == "notice":
            self.notices.append(event.data)


@dataclass
class Wire:
    """Pushes on their way to the gateway; some get lost."""

    waiting: list[bytes] = field(default_factory=list)
    drop: int = 0

    async def publish_many(self, payloads: Any) -> None:
        for _, payload in payloads:
            if self.drop:
                self.drop -= 1
            else:
                self.waiting.append(payload)


OTHER_STEPS = ("notice", "read", "lose", "before", "after", "drop", "ask") + (
    ("flush",) * 3 + ("deliver",) * 2
)
STEPS = st.one_of(
    st.tuples(st.just("text"), st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)),
    st.tuples(st.sampled_from(OTHER_STEPS), st.just("")),
)


@dataclass
class Play:
    """One writer, one reader, and everything that can come between them."""

    client: Any
    log: UndecidedLog
    wire: Wire
    one: Flusher
    writer: RunWriter
    reader: Reader
    written: str = ""
    notices: int = 0

    @classmethod
    async def begin(cls, url: str) -> Play:
        client = async_client(url)
        log, wire = UndecidedLog(client), Wire()
        one = Flusher(log, wire.publish_many, heartbeat_s=0.0)
        writer = await writer_of(one, log, Database())
        await log.register([writer.run], "gateway.1")
        return cls(client, log, wire, one, writer, Reader(log, writer.run))

    async def text(self, text: str) -> None:
        self.writer.text(text)
        self.written += text

    async def notice(self, _: str) -> None:
        self.notices += 1
        self.writer.event("notice", {"n": self.notices})

    async def flush(self, _: str) -> None:
        await self.one.flush_once()

    async def deliver(self, _: str) -> None:
        if self.wire.waiting:
            await self.reader.pushed(self.wire.waiting.pop(0))

    async def read(self, _: str) -> None:
        await self.reader.read()

    async def lose(self, _: str) -> None:
        await self.client.flushall()
        await self.log.register([self.writer.run], "gateway.1")

    async def before(self, _: str) -> None:
        self.log.before = 1

    async def after(self, _: str) -> None:
        self.log.after = 1

    async def drop(self, _: str) -> None:
        self.wire.drop += 1

    async def ask(self, _: str) -> None:
        await self.log.request_snapshot(self.writer.run)

    async def finish(self) -> None:
        self.log.before = self.log.after = 0
        await self._settle()
        # A heartbeat, so that a loss is found now: after the finish nothing is opened again.
        await self.one.flush_once()
        await self._settle()
        last_seq = await self.writer.text_done()
        done = asyncio.create_task(self.writer.done({"finish": "stop"}))
        await asyncio.sleep(0)
        await self._settle()
        assert await done
        page = await self.log.read(self.writer.run)
        assert page is not None
        assert (page.last_seq, page.ended) == (last_seq, True)

    async def check(self) -> None:
        for payload in self.wire.waiting:
            await self.reader.pushed(payload)
        await self.reader.read()
        assert self.reader.follower.ended
        assert self.reader.text == self.written
        assert len(set(self.reader.notices)) <= self.notices
        late = Reader(self.log, self.writer.run, Follower(await self._first_seq() - 1))
        await late.read()
        assert late.text == self.written

    async def _first_seq(self) -> int:
        """Where a client that comes after a loss begins: at the snapshot, or at the start."""
        page = await self.log.read(self.writer.run)
        assert page is not None
        return page.events[0].seq

    async def _settle(self) -> None:
        async with asyncio.timeout(60):
            while not self.writer.buffer.idle or self.writer.reopening:
                await self.one.flush_once()
                await asyncio.sleep(0)


async def _play(url: str, steps: list[tuple[str, str]]) -> None:
    play = await Play.begin(url)
    for step, text in steps:
        await getattr(play, step)(text)
    await play.finish()
    await play.check()
    await play.one.aclose()
    await play.client.aclose()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, max_size=40))
def test_a_reader_ends_with_what_was_written(
    valkey: EmbeddedValkey, steps: list[tuple[str, str]]
) -> None:
    asyncio.run(_play(valkey.url, steps))
