"""The flusher and its writers on a real Valkey."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from generation.events import EPOCH_SPAN, Event, takeover_seq
from generation.token_log import (
    AnswerTooLong,
    Batch,
    Code,
    Fenced,
    Flusher,
    LogClosed,
    TokenLog,
    decode_push,
    encode_stop,
    event_text,
    scripts,
)
from generation.token_log.clients import exchange
from generation.token_log.commands import meta_key
from generation.token_log.flusher import tick_s
from generation.token_log.limits import FLUSH_REST, FLUSH_S, LONGEST_FLUSH_S, MAX_BATCH_EVENTS
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


async def _calls_of(redis: Any, command: str) -> int:
    found = (await redis.info("commandstats")).get(f"cmdstat_{command}", {})
    return int(found.get("calls", 0))


# --- opening --------------------------------------------------------------------------------------


async def test_the_first_owner_goes_on_at_the_next_seq(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    writer.text("Hello")
    await writer.flush()
    assert shape(await events_of(log, writer.run)) == [(1, "start"), (2, "delta")]
    assert writer.seq == 2


async def test_the_first_owner_of_a_lost_log_begins_with_an_empty_snapshot(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    run = new_run()
    writer = await running.open(
        run, epoch=1, owner_channel="worker.1", next_seq=4, recheck=database.recheck
    )
    writer.text("Hello")
    await writer.flush()
    events = await events_of(log, run)
    assert shape(events) == [(4, "snapshot"), (5, "delta")]
    assert event_text(events[0]) == ""


async def test_a_takeover_begins_with_the_text_so_far_and_fences(
    running: Flusher, log: TokenLog, database: Database, pushes: Pushes
) -> None:
    old_worker = Flusher(log, pushes.publish_many, heartbeat_s=NEVER_S)
    old = await writer_of(old_worker, log, database)
    old.text("Hel")
    await old_worker.flush_once()
    database.epoch = 2
    new = await running.open(
        old.run, epoch=2, owner_channel="worker.2", recheck=database.recheck, text="Hel"
    )
    old.text(" from the old owner")
    await old_worker.flush_once()
    assert old.fenced.is_set()
    with pytest.raises(Fenced):
        old.text("more")
    with pytest.raises(Fenced):
        await old.flush()
    new.text("lo")
    await new.flush()
    events = await events_of(log, old.run)
    assert shape(events)[-2:] == [(takeover_seq(2), "snapshot"), (EPOCH_SPAN + 2, "delta")]
    assert await text_of_log(log, old.run) == "Hello"


async def test_an_opening_below_the_epoch_found_is_fenced(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    run = new_run()
    await log.open(run, epoch=2, base_seq=EPOCH_SPAN)
    with pytest.raises(Fenced):
        await running.open(run, epoch=1, owner_channel="w", next_seq=2, recheck=database.recheck)


async def test_a_new_epoch_in_the_same_worker_fences_the_old_writer(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    old = await writer_of(running, log, database)
    database.epoch = 2
    await running.open(old.run, epoch=2, owner_channel="w", recheck=database.recheck)
    assert old.fenced.is_set()


# --- writing --------------------------------------------------------------------------------------


async def test_text_of_a_tick_becomes_one_delta(
    stepped: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(stepped, log, database)
    for piece in ("a", "b", "c"):
        writer.text(piece)
    await stepped.flush_once()
    writer.text("d")
    await stepped.flush_once()
    assert [event_text(e) for e in (await events_of(log, writer.run))[1:]] == ["abc", "d"]


async def test_first_text_and_urgent_events_do_not_wait_for_the_tick(
    log: TokenLog, database: Database, pushes: Pushes
) -> None:
    slow = Flusher(log, pushes.publish_many, flush_s=NEVER_S, heartbeat_s=NEVER_S)
    slow.start()
    writer = await writer_of(slow, log, database)
    # Were any of these left to the tick, the wait below would never end.
    writer.text("first")
    await until(lambda: writer.buffer.confirmed_seq == 2)
    writer.event("notice", {"code": "recovered"})
    await until(lambda: writer.buffer.confirmed_seq == 3)
    writer.text("second")
    for _ in range(200):  # turns enough for a flush, were one under way
        await asyncio.sleep(0)
    assert writer.buffer.confirmed_seq == 3
    await writer.flush()
    assert writer.buffer.confirmed_seq == 4
    await slow.aclose()


async def test_what_is_urgent_in_one_run_takes_no_other_run_along(
    log: TokenLog, database: Database, pushes: Pushes
) -> None:
    slow = Flusher(log, pushes.publish_many, flush_s=NEVER_S, heartbeat_s=NEVER_S)
    slow.start()
    flowing, new = [await writer_of(slow, log, database) for _ in range(2)]
    flowing.text("first")
    await flowing.flush()
    flowing.text("second")
    new.text("first")
    await until(lambda: new.buffer.confirmed_seq == 2)
    assert flowing.buffer.confirmed_seq == 2
    await slow.aclose()
    assert flowing.buffer.confirmed_seq == 3, "an end flushes everything"


async def test_more_than_a_batch_does_not_wait_for_ticks_where_somebody_waits_for_it(
    log: TokenLog, database: Database, pushes: Pushes
) -> None:
    slow = Flusher(log, pushes.publish_many, flush_s=NEVER_S, heartbeat_s=NEVER_S)
    slow.start()
    writer = await writer_of(slow, log, database)
    for _ in range(2 * MAX_BATCH_EVENTS + 1):
        writer.event("notice", {"code": "recovered"}, urgent=False)
    await writer.flush()
    assert writer.buffer.confirmed_seq == 2 * MAX_BATCH_EVENTS + 2
    await slow.aclose()


async def test_a_closed_writer_is_flushed_no_more(
    stepped: Flusher, log: TokenLog, database: Database
) -> None:
    """Its lease must run out, whatever its last append is answered."""
    writer = await writer_of(stepped, log, database)
    writer.text("Hello")
    writer.close()
    stepped.kick(writer)
    await stepped.flush_once(urgent_only=True)
    assert shape(await events_of(log, writer.run)) == [(1, "start")]


def test_ticks_lie_further_apart_where_flushes_take_long() -> None:
    assert tick_s(0.001) == FLUSH_S
    assert tick_s(0.004) == pytest.approx(FLUSH_REST * 0.004)
    assert tick_s(5.0) == LONGEST_FLUSH_S
    assert tick_s(5.0, NEVER_S) == NEVER_S


async def test_done_has_the_seq_told_before_the_finish(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    writer.text("Hello")
    last_seq = await writer.text_done()
    with pytest.raises(LogClosed):
        writer.text("more")
    assert await writer.done({"finish": "stop"})
    page = await log.read(writer.run)
    assert page is not None
    assert page.ended
    assert page.events[-1] == Event(last_seq, "done", b'{"finish":"stop"}')
    assert page.last_seq == last_seq == 3
    with pytest.raises(LogClosed):
        writer.event("notice", {})


async def test_a_finish_that_could_not_be_fixed_can_say_why(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    writer.text("Hello")
    await writer.text_done()
    writer.unseal()
    writer.event("error", {"code": "internal", "message": "", "retryable": True})
    last_seq = await writer.text_done()
    assert await writer.done({"finish": "error"})
    assert shape(await events_of(log, writer.run))[-2:] == [(3, "error"), (last_seq, "done")]


async def test_a_retract_reaches_the_log_and_the_text_before_it_does_not(
    stepped: Flusher, log: TokenLog, database: Database, pushes: Pushes
) -> None:
    writer = await writer_of(stepped, log, database)
    await log.register([writer.run], "gateway.1")
    writer.text("fine")
    await stepped.flush_once()
    writer.text(" bad")
    writer.event("retract", {"text": "sorry"})
    await stepped.flush_once()
    assert shape(await events_of(log, writer.run)) == [(3, "retract")]
    assert not any(b" bad" in payload for _, payload in pushes.sent)


async def test_what_is_too_large_is_refused_and_the_other_runs_go_on(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    large, small = [await writer_of(running, log, database) for _ in range(2)]
    with pytest.raises(AnswerTooLong):
        large.text("x" * 1_100_000)
    with pytest.raises(ValueError, match="bytes"):
        large.event("notice", {"text": "x" * 1_100_000})
    with pytest.raises(ValueError, match="surrogate"):
        large.text("\ud800")
    large.text("y" * 1_000_000)
    small.text("small")
    await asyncio.gather(large.flush(), small.flush())
    assert await text_of_log(log, large.run) == "y" * 1_000_000
    assert await text_of_log(log, small.run) == "small"


async def test_one_run_that_redis_refuses_does_not_stop_the_others(
    running: Flusher, log: TokenLog, redis: Any, database: Database
) -> None:
    bad, good = [await writer_of(running, log, database) for _ in range(2)]
    await redis.delete(meta_key(bad.run))
    await redis.set(meta_key(bad.run), "not a hash")
    bad.text("bad")
    for word in ("one ", "two ", "three"):
        good.text(word)
        await good.flush()
    assert await text_of_log(log, good.run) == "one two three"
    await redis.delete(meta_key(bad.run))
    await bad.flush()
    assert await text_of_log(log, bad.run) == "bad"


async def test_many_runs_are_one_round_trip_and_so_are_their_pushes(
    stepped: Flusher,
    log: TokenLog,
    redis: Any,
    database: Database,
    pushes: Pushes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writers = [await writer_of(stepped, log, database) for _ in range(200)]
    for gateway in ("gateway.1", "gateway.2"):
        await log.register([writer.run for writer in writers], gateway)
    sent = 0

    def counted(*arguments: Any) -> Any:
        nonlocal sent
        sent += 1
        return exchange(*arguments)

    monkeypatch.setattr(scripts, "exchange", counted)
    for tokens in (1, 20):
        before, sent, pushes.calls = await _calls_of(redis, "evalsha"), 0, 0
        for writer in writers:
            for _ in range(tokens):
                writer.text("word ")
        await stepped.flush_once()
        # Neither round trips nor commands grow with the number of tokens.
        assert sent == 1
        assert await _calls_of(redis, "evalsha") - before == 200
        assert pushes.calls == 1
    for writer in writers:
        assert await text_of_log(log, writer.run) == "word " * 21
    told = {channel: 0 for channel, _ in pushes.sent}
    for channel, payload in pushes.sent:
        told[channel] += sum(len(run.events) for run in decode_push(payload))
    assert told == {"gateway.1": 400, "gateway.2": 400}


# --- readers --------------------------------------------------------------------------------------


async def test_a_quiet_run_is_renewed_and_told(
    log: TokenLog, redis: Any, database: Database, pushes: Pushes
) -> None:
    lively = Flusher(log, pushes.publish_many, flush_s=0.005, heartbeat_s=0.01)
    lively.start()
    writer = await writer_of(lively, log, database)
    # In this order: who registers is told of by the next append, which then renews the lease too.
    await redis.hset(meta_key(writer.run), "lease_until_ms", "1")
    await log.register([writer.run], "gateway.1")
    await until(lambda: len(pushes.sent) >= 3)
    (state,) = await log.states([writer.run])
    assert state is not None
    assert state.leased
    for _, payload in pushes.sent:
        (told,) = decode_push(payload)
        assert (told.run, told.told_seq, told.events) == (writer.run, 1, ())
    await lively.aclose()


async def test_text_that_renewed_nothing_does_not_put_the_heartbeat_off(
    log: TokenLog, redis: Any, database: Database, pushes: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat is due so long after the last renewal, not after the last append."""
    flusher = Flusher(log, pushes.publish_many, heartbeat_s=100)
    loop = asyncio.get_running_loop()
    plain_time, later_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: plain_time() + later_s)
    monkeypatch.setattr("generation.token_log.flusher.RENEWAL_S", 50)
    writer = await writer_of(flusher, log, database)
    await flusher.flush_once()
    for later_s, renewed in ((40.0, False), (90.0, False), (101.0, True)):
        await redis.hset(meta_key(writer.run), "lease_until_ms", "1")
        if later_s == 40:
            writer.text("a")
        await flusher.flush_once()
        (state,) = await log.states([writer.run])
        assert state is not None
        assert state.leased is renewed, later_s
    await flusher.aclose()


async def test_a_gateway_named_for_the_first_time_is_told_at_once(
    stepped: Flusher, log: TokenLog, database: Database, pushes: Pushes
) -> None:
    writer = await writer_of(stepped, log, database)
    await stepped.flush_once()
    await log.register([writer.run], "gateway.1")
    writer.text("a")
    await stepped.flush_once()
    ((channel, payload),) = pushes.sent
    (told,) = decode_push(payload)
    assert (channel, told.run, told.told_seq) == ("gateway.1", writer.run, 2)
    assert set(writer.watchers) == {"gateway.1"}


async def test_a_lost_push_loses_no_text(
    stepped: Flusher, log: TokenLog, database: Database, pushes: Pushes
) -> None:
    writer = await writer_of(stepped, log, database)
    await log.register([writer.run], "gateway.1")
    pushes.failures = 1
    writer.text("a")
    await stepped.flush_once()
    writer.text("b")
    await stepped.flush_once()
    ((_, payload),) = pushes.sent
    (told,) = decode_push(payload)
    assert [event.seq for event in told.events] == [3]
    assert await text_of_log(log, writer.run) == "ab"


async def test_a_stop_is_heard_with_the_next_append(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    assert await log.request_stop(writer.run) == "worker.1"
    await asyncio.wait_for(writer.stop_requested.wait(), 60)


async def test_a_stop_is_heard_directly(
    stepped: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(stepped, log, database)
    stepped.on_owner_payload(b"junk")
    stepped.on_owner_payload(encode_stop(new_run()))
    assert not writer.stop_requested.is_set()
    stepped.on_owner_payload(encode_stop(writer.run))
    assert writer.stop_requested.is_set()


async def test_a_reader_that_asks_gets_a_snapshot(
    quiet: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(quiet, log, database)
    writer.text("Hello")
    await writer.flush()
    await log.request_snapshot(writer.run)
    writer.text(" again")
    await writer.flush()
    await until(lambda: writer.seq == 4 and writer.buffer.idle)
    assert shape(await events_of(log, writer.run))[-1] == (4, "snapshot")
    assert await text_of_log(log, writer.run) == "Hello again"


# --- ends -----------------------------------------------------------------------------------------


async def test_a_handed_over_run_can_be_claimed_at_once(
    running: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(running, log, database)
    writer.text("half")
    await writer.hand_over()
    (state,) = await log.states([writer.run])
    assert state is not None
    assert (state.status, state.leased, state.last_seq) == ("running", False, 2)
    with pytest.raises(LogClosed):
        writer.text("more")


async def test_closing_flushes(log: TokenLog, database: Database, pushes: Pushes) -> None:
    one = Flusher(log, pushes.publish_many, flush_s=NEVER_S, heartbeat_s=NEVER_S)
    one.start()
    writers = [await writer_of(one, log, database) for _ in range(3)]
    for writer in writers:
        writer.text("a")
        writer.text("b")
    await one.aclose()
    for writer in writers:
        assert writer.closed
        assert await text_of_log(log, writer.run) == "ab"
    with pytest.raises(LogClosed):
        await writer_of(one, log, database)


async def test_a_cancelled_wait_takes_nothing_back(
    stepped: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(stepped, log, database)
    writer.text("a")
    waiting = asyncio.create_task(writer.flush())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await stepped.flush_once()
    assert await text_of_log(log, writer.run) == "a"


async def test_a_cancelled_done_is_sent_all_the_same(
    stepped: Flusher, log: TokenLog, database: Database
) -> None:
    writer = await writer_of(stepped, log, database)
    await writer.text_done()
    waiting = asyncio.create_task(writer.done({"finish": "stop"}))
    await asyncio.sleep(0)
    waiting.cancel()
    await stepped.flush_once()
    assert shape(await events_of(log, writer.run))[-1] == (2, "done")
    assert writer.closed


async def test_a_flusher_cancelled_in_mid_append_loses_nothing(
    log: TokenLog, database: Database, pushes: Pushes
) -> None:
    one = Flusher(log, pushes.publish_many, heartbeat_s=NEVER_S)
    writer = await writer_of(one, log, database)
    for number in range(20):
        writer.text(f"{number} ")
        flush = asyncio.create_task(one.flush_once())
        for _ in range(number):
            await asyncio.sleep(0)
        flush.cancel()
        await asyncio.gather(flush, return_exceptions=True)
    await one.aclose()
    assert await text_of_log(log, writer.run) == "".join(f"{number} " for number in range(20))
    seqs = [event.seq for event in await events_of(log, writer.run)]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_an_ended_run_is_told_as_fenced_to_a_late_owner(
    stepped: Flusher, log: TokenLog, database: Database
) -> None:
    """The reaper has appended `done` for an owner that was only slow."""
    writer = await writer_of(stepped, log, database)
    reply = await log.append(Batch(writer.run, 1, 1, [Event(2, "done", b"{}")]))
    assert reply.code is Code.OK
    writer.text("late")
    writer.text("r")
    writer.event("notice", {})
    await stepped.flush_once()
    assert writer.fenced.is_set()
