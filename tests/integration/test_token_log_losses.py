"""What the flusher does when Redis loses the logs, or the connection, or its life."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatproject.embedded import EmbeddedValkey
from generation.token_log import (
    Fenced,
    Flusher,
    TokenLog,
    decode_push,
)
from tests.integration.token_log_room import (  # noqa: F401  # fixtures
    NEVER_S,
    START,
    Database,
    Pushes,
    UndecidedLog,
    database_fixture,
    events_of,
    log_fixture,
    new_run,
    no_pauses_fixture,
    opened,
    pushes_fixture,
    quiet_fixture,
    redis_fixture,
    running_fixture,
    shape,
    stepped_fixture,
    text_of_log,
    until,
    valkey_fixture,
    writer_of,
)


@pytest.mark.parametrize("lost", ["all", "behind"])
async def test_a_lost_log_is_opened_again_with_a_snapshot(
    quiet: Flusher, log: TokenLog, redis: Any, database: Database, lost: str
) -> None:
    writer = await writer_of(quiet, log, database)
    writer.text("Hello")
    writer.event("notice", {"code": "recovered"})
    await writer.flush()
    await redis.flushall()
    if lost == "behind":  # a replica that lagged has become the primary
        await log.open(writer.run, epoch=1, owner="worker.1", events=[START])
    writer.text(", world")
    await writer.flush()
    events = await events_of(log, writer.run)
    # The delta had seq 4 when it was refused; the snapshot takes one of its own.
    assert (events[-1].seq, events[-1].name) == (5, "snapshot")
    assert await text_of_log(log, writer.run) == "Hello, world"
    assert database.asked == 1


async def test_whoever_takes_over_knows_the_tokens_of_a_lost_log_too(
    quiet: Flusher, log: TokenLog, redis: Any, database: Database
) -> None:
    """Given back in the moment after it was opened again, before any other word."""
    writer = await writer_of(quiet, log, database)
    writer.output_tokens = 2
    writer.text("Hello, world")
    await writer.flush()
    (state,) = await log.states([writer.run])
    assert state is not None
    assert state.output_tokens == 2
    await redis.flushall()
    writer.output_tokens = 3
    writer.text("!")
    await writer.hand_over()
    (state,) = await log.states([writer.run])
    assert state is not None
    assert (state.leased, state.output_tokens) == (False, 3)


async def test_a_lost_log_of_a_run_that_was_taken_over_is_not_opened(
    running: Flusher, log: TokenLog, redis: Any, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    await redis.flushall()
    database.epoch = 2
    writer.text("late")
    with pytest.raises(Fenced):
        await writer.flush()
    assert writer.fenced.is_set()
    assert await redis.keys("*") == []


async def test_a_recheck_brings_a_stop_that_redis_has_lost(
    running: Flusher, log: TokenLog, redis: Any, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    await log.request_stop(writer.run)
    await redis.flushall()
    database.stop_requested = True
    await asyncio.wait_for(writer.stop_requested.wait(), 60)


async def test_nothing_is_opened_before_postgresql_has_answered(
    running: Flusher, log: TokenLog, redis: Any, database: Database
) -> None:
    other = await writer_of(running, log, Database())
    writer = await writer_of(running, log, database)
    database.failures = 3
    await redis.flushall()
    writer.text("a")
    other.text("b")
    await other.flush()
    await writer.flush()
    assert database.asked == 4
    assert await text_of_log(log, writer.run) == "a"


async def test_after_the_finish_a_lost_log_stays_lost(
    running: Flusher, log: TokenLog, redis: Any, database: Database, pushes: Pushes
) -> None:
    writer = await writer_of(running, log, database)
    await log.register([writer.run], "gateway.1")
    writer.text("Hello")
    last_seq = await writer.text_done()
    await redis.flushall()
    assert not await writer.done({"finish": "stop"})
    assert await log.read(writer.run) is None
    assert database.asked == 0
    told = [run for _, payload in pushes.sent for run in decode_push(payload)]
    # The gateways look, find nothing, and PostgreSQL answers.
    assert told[-1].told_seq == last_seq


async def test_after_the_finish_a_log_that_is_behind_is_deleted(
    running: Flusher, log: TokenLog, redis: Any, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    writer.text("Hello")
    await writer.text_done()
    await redis.flushall()
    await log.open(writer.run, epoch=1, owner="worker.1", events=[START])
    assert not await writer.done({"finish": "stop"})
    assert await log.read(writer.run) is None


async def test_a_take_over_whose_opening_holds_unheard(
    redis: Any, database: Database, pushes: Pushes
) -> None:
    """The text that comes meanwhile is in the log all the same."""
    log = UndecidedLog(redis)
    stepped = Flusher(log, pushes.publish_many, heartbeat_s=NEVER_S)
    run = await opened(log)
    database.epoch = 2
    log.opens_after = 1
    writer = await stepped.open(
        run, epoch=2, owner_channel="worker.2", recheck=database.recheck, text="one "
    )
    writer.text("two")
    async with asyncio.timeout(60):
        while await text_of_log(log, writer.run) != "one two":
            await stepped.flush_once()
            await asyncio.sleep(0.005)
    seqs = [event.seq for event in await events_of(log, writer.run)]
    assert seqs == sorted(set(seqs))
    await stepped.aclose()


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_broken_connection_neither_loses_nor_doubles(
    redis: Any, database: Database, pushes: Pushes, moment: str
) -> None:
    log = UndecidedLog(redis)
    stepped = Flusher(log, pushes.publish_many, heartbeat_s=NEVER_S)
    writer = await writer_of(stepped, log, database)
    writer.text("one ")
    writer.event("notice", {"n": 1})
    setattr(log, moment, 1)
    await stepped.flush_once()
    assert stepped.away_since_s is not None
    writer.text("two")
    flushed = asyncio.create_task(writer.flush())
    async with asyncio.timeout(60):
        while not flushed.done():
            await asyncio.sleep(0.005)
            await stepped.flush_once()
    assert stepped.away_since_s is None
    events = await events_of(log, writer.run)
    assert shape(events) == [(1, "start"), (2, "delta"), (3, "notice"), (4, "delta")]
    assert await text_of_log(log, writer.run) == "one two"
    assert database.asked == 0
    await stepped.aclose()


async def test_redis_dies_and_comes_back_empty(
    running: Flusher, log: TokenLog, valkey: EmbeddedValkey, database: Database
) -> None:
    writers = [await writer_of(running, log, database) for _ in range(5)]
    for number, writer in enumerate(writers):
        writer.text(f"{number} before, ")
        await writer.flush()
    valkey.kill()
    for writer in writers:
        writer.text("meanwhile, ")
    await until(lambda: running.away_since_s is not None)
    taken = await running.open(
        new_run(), epoch=1, owner_channel="w", next_seq=2, recheck=database.recheck
    )
    taken.text("opened while Redis was away")
    valkey.start()
    for writer in writers:
        writer.text("after")
    await asyncio.gather(*(writer.flush() for writer in [*writers, taken]))
    for number, writer in enumerate(writers):
        assert await text_of_log(log, writer.run) == f"{number} before, meanwhile, after"
    assert await text_of_log(log, taken.run) == "opened while Redis was away"


async def test_a_finish_does_not_wait_for_ever_for_redis(
    running: Flusher, log: TokenLog, valkey: EmbeddedValkey, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    await writer.flush()
    valkey.kill()
    writer.text("Hello")
    last_seq = await writer.text_done(timeout_s=0.05)
    assert last_seq == 3
    assert not await writer.done({"finish": "stop"}, timeout_s=0.05)
    valkey.start()
    await until(lambda: writer.closed)
    assert await log.read(writer.run) is None
