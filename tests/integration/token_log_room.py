"""A Valkey of its own for the token log's tests, which empty, kill and restart it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from chatproject.embedded import EmbeddedValkey
from generation.events import Event, encode_data
from generation.token_log import (
    AppendReply,
    Batch,
    Flusher,
    OpenReply,
    RecheckReply,
    RunWriter,
    TokenLog,
    assemble,
    async_client,
    flusher,
)

START = Event(1, "start", b"{}")


def new_run() -> str:
    return f"g_{uuid.uuid4().hex}"


def text_event(seq: int, text: str, name: str = "delta") -> Event:
    return Event(seq, name, encode_data({"text": text}))


@pytest.fixture(name="valkey", scope="module")
def valkey_fixture() -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey.temporary() as server:
        yield server


@pytest.fixture(name="redis")
async def redis_fixture(valkey: EmbeddedValkey) -> AsyncIterator[Any]:
    if valkey.process is None:
        valkey.start()  # a test before this one killed it
    client = async_client(valkey.url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture(name="log")
def log_fixture(redis: Any) -> TokenLog:
    return TokenLog(redis)


@dataclass
class Database:
    """What PostgreSQL would answer to a recheck, and how often it was asked."""

    epoch: int = 1
    stop_requested: bool = False
    asked: int = 0
    failures: int = 0

    async def recheck(self) -> RecheckReply:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionError("PostgreSQL is away")
        return RecheckReply(self.epoch, self.stop_requested)


@dataclass
class Pushes:
    """Collects what a flusher publishes, in place of the wire to the gateways."""

    sent: list[tuple[str, bytes]] = field(default_factory=list)
    calls: int = 0
    failures: int = 0

    async def publish_many(self, payloads: Any) -> None:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the push was lost")
        self.sent += payloads


class UndecidedLog(TokenLog):
    """A token log whose connection breaks at a chosen moment, around real commands.

    `before` / `after`: how many coming appends break before they reach Redis, or after Redis has
    carried them out and before the reply is back. `opens_after`: the same of openings.
    """

    before = 0
    after = 0
    opens_after = 0

    async def open(self, *arguments: Any, **keywords: Any) -> OpenReply:
        reply = await super().open(*arguments, **keywords)
        if self.opens_after:
            self.opens_after -= 1
            raise ConnectionError("broken after")
        return reply

    async def append_many(self, batches: Any) -> list[AppendReply]:
        if self.before:
            self.before -= 1
            raise ConnectionError("broken before")
        replies = await super().append_many(batches)
        if self.after:
            self.after -= 1
            raise ConnectionError("broken after")
        return replies


async def opened(log: TokenLog, *, epoch: int = 1, run: str | None = None) -> str:
    """A run whose send has written `start`, owned by `epoch`."""
    run = run or new_run()
    await log.open(run, epoch=0, status="queued", events=[START])
    await log.open(run, epoch=epoch, owner="worker.1", base_seq=1)
    return run


async def append(log: TokenLog, run: str, *events: Event, epoch: int = 1) -> AppendReply:
    return await log.append(Batch(run, epoch, events[0].seq - 1 if events else 0, events))


async def writer_of(
    flusher: Flusher, log: TokenLog, database: Database, run: str | None = None
) -> RunWriter:
    """The writer of a run whose send has written `start`."""
    run = run or new_run()
    await log.open(run, epoch=0, status="queued", events=[START])
    return await flusher.open(
        run, epoch=1, owner_channel="worker.1", next_seq=2, recheck=database.recheck
    )


async def events_of(log: TokenLog, run: str) -> list[Event]:
    page = await log.read(run)
    assert page is not None
    return list(page.events)


def shape(events: list[Event]) -> list[tuple[int, str]]:
    return [(event.seq, event.name) for event in events]


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what another task or process brings about; fails after a minute."""
    async with asyncio.timeout(60):
        while not condition():  # there is no event for what is waited for
            await asyncio.sleep(0.002)


NEVER_S = 3_600.0


@pytest.fixture(autouse=True, name="no_pauses")
def no_pauses_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off has its own arithmetic; here only its order matters."""
    monkeypatch.setattr(flusher, "BACKOFF_S", (0.005, 0.02))


@pytest.fixture(name="database")
def database_fixture() -> Database:
    return Database()


@pytest.fixture(name="pushes")
def pushes_fixture() -> Pushes:
    return Pushes()


@pytest.fixture(name="running")
async def running_fixture(log: TokenLog, pushes: Pushes) -> AsyncIterator[Flusher]:
    """A flusher that runs by itself."""
    one = Flusher(log, pushes.publish_many)
    one.start()
    yield one
    await one.aclose()


@pytest.fixture(name="quiet")
async def quiet_fixture(log: TokenLog, pushes: Pushes) -> AsyncIterator[Flusher]:
    """A flusher that runs by itself, and has no heartbeat to come between two steps of a test."""
    one = Flusher(log, pushes.publish_many, heartbeat_s=NEVER_S)
    one.start()
    yield one
    await one.aclose()


@pytest.fixture(name="stepped")
async def stepped_fixture(log: TokenLog, pushes: Pushes) -> AsyncIterator[Flusher]:
    """A flusher that flushes only when a test says so, and has no heartbeat."""
    one = Flusher(log, pushes.publish_many, heartbeat_s=NEVER_S)
    yield one
    await one.aclose()


async def text_of_log(log: TokenLog, run: str) -> str:
    found = assemble(await events_of(log, run))
    assert found.whole
    return found.text
