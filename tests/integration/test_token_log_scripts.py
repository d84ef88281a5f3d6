"""The scripts on a real Valkey: every answer an owner, a sender or a reader can get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatproject.embedded import EmbeddedValkey
from generation.events import EPOCH_SPAN, MAX_SEQ, Event, takeover_seq
from generation.token_log import Batch, Code, TokenLog, TokenLogSync, sync_client
from generation.token_log.commands import log_key, meta_key, watchers_key
from generation.token_log.limits import ENDED_MS, LEASE_MS, LIVE_MS, UNSEEN_MS
from tests.integration.token_log_room import (  # noqa: F401  # fixtures
    START,
    append,
    events_of,
    log_fixture,
    new_run,
    opened,
    redis_fixture,
    shape,
    text_event,
    valkey_fixture,
)


async def _expiries(redis: Any, run: str) -> list[int]:
    keys = (log_key(run), meta_key(run), watchers_key(run))
    return [await redis.pexpiretime(key) for key in keys]


async def _age_watcher(redis: Any, run: str, gateway: str, by_ms: int) -> None:
    """Makes a watcher's last sign of life older, in place of waiting."""
    since, seen = (await redis.hget(watchers_key(run), gateway)).split()
    older = f"{int(since) - by_ms} {int(seen) - by_ms}"
    await redis.hset(watchers_key(run), gateway, older)


# --- open -----------------------------------------------------------------------------------------


async def test_a_send_opens_the_log_under_epoch_0(log: TokenLog) -> None:
    run = new_run()
    reply = await log.open(run, epoch=0, status="queued", events=[START, Event(2, "notice", b"{}")])
    assert (reply.code, reply.epoch, reply.last_seq, reply.found_seq) == (Code.OK, 0, 2, 0)
    assert shape(await events_of(log, run)) == [(1, "start"), (2, "notice")]
    (state,) = await log.states([run])
    assert state is not None
    assert state.status == "queued"


async def test_a_repeated_send_changes_nothing(log: TokenLog) -> None:
    run = new_run()
    for _ in range(2):
        reply = await log.open(run, epoch=0, status="queued", events=[START])
        assert (reply.code, reply.last_seq) == (Code.OK, 1)
    await log.open(run, epoch=1, owner="worker.1", base_seq=1)
    late = await log.open(run, epoch=0, status="queued", events=[START])
    assert (late.code, late.epoch) == (Code.FENCED, 1)
    (state,) = await log.states([run])
    assert state is not None
    assert state.status == "running"


async def test_the_first_owner_goes_on_where_the_send_ended(log: TokenLog) -> None:
    run = new_run()
    await log.open(run, epoch=0, status="queued", events=[START])
    reply = await log.open(
        run, epoch=1, base_seq=1, events=[text_event(2, "", "snapshot")], only_if_behind=True
    )
    assert (reply.code, reply.found_seq, reply.last_seq) == (Code.OK, 1, 1)
    assert shape(await events_of(log, run)) == [(1, "start")]


@pytest.mark.parametrize("found", [0, 1])
async def test_the_first_owner_of_a_log_that_ends_early_begins_with_a_snapshot(
    log: TokenLog, found: int
) -> None:
    run = new_run()
    if found:
        await log.open(run, epoch=0, status="queued", events=[START])
    for _ in range(2):  # and a repeated opening writes it once
        reply = await log.open(
            run, epoch=1, base_seq=3, events=[text_event(4, "", "snapshot")], only_if_behind=True
        )
        assert (reply.code, reply.last_seq) == (Code.OK, 4)
    assert shape(await events_of(log, run))[found:] == [(4, "snapshot")]


async def test_a_takeover_begins_a_new_span_and_fences_the_old_owner(log: TokenLog) -> None:
    run = await opened(log)
    await append(log, run, text_event(2, "a"))
    snapshot = text_event(takeover_seq(2), "a", "snapshot")
    reply = await log.open(run, epoch=2, owner="worker.2", base_seq=EPOCH_SPAN, events=[snapshot])
    assert (reply.code, reply.last_seq, reply.found_seq) == (Code.OK, EPOCH_SPAN + 1, 2)
    late = await append(log, run, text_event(3, "late"))
    assert (late.code, late.epoch) == (Code.FENCED, 2)
    assert (await log.open(run, epoch=1, base_seq=2)).code is Code.FENCED
    assert shape(await events_of(log, run))[-1] == (EPOCH_SPAN + 1, "snapshot")
    assert await log.request_stop(run) == "worker.2"


async def test_a_stop_survives_a_change_of_owner(log: TokenLog) -> None:
    run = new_run()
    await log.open(run, epoch=0, status="queued", events=[START])
    assert await log.request_stop(run) == ""
    assert (await log.open(run, epoch=1, base_seq=1)).stop
    assert (await append(log, run)).stop
    assert (await log.open(run, epoch=2, base_seq=EPOCH_SPAN)).stop


async def test_nothing_opens_an_ended_log(log: TokenLog) -> None:
    run = await opened(log)
    await append(log, run, Event(2, "done", b"{}"))
    assert (await log.open(run, epoch=1, base_seq=2)).code is Code.FENCED
    assert (await log.open(run, epoch=2, base_seq=EPOCH_SPAN)).code is Code.FENCED
    page = await log.read(run)
    assert page is not None
    assert page.ended


# --- append ---------------------------------------------------------------------------------------


async def test_a_batch_may_be_sent_again(log: TokenLog) -> None:
    run = await opened(log)
    batch = [text_event(2, "a"), text_event(3, "b")]
    for _ in range(2):
        reply = await append(log, run, *batch)
        assert (reply.code, reply.last_seq) == (Code.OK, 3)
    # Also where a part of it is new.
    reply = await append(log, run, *batch, text_event(4, "c"))
    assert (reply.code, reply.last_seq) == (Code.OK, 4)
    assert await events_of(log, run) == [START, *batch, text_event(4, "c")]


async def test_an_append_to_nothing_is_missing(log: TokenLog) -> None:
    assert (await append(log, new_run(), text_event(1, "a"))).code is Code.MISSING


async def test_an_append_for_an_epoch_that_was_never_opened_is_missing(log: TokenLog) -> None:
    run = await opened(log, epoch=1)
    assert (await append(log, run, text_event(2, "a"), epoch=2)).code is Code.MISSING
    assert shape(await events_of(log, run)) == [(1, "start")]


async def test_a_log_that_ends_before_what_the_owner_knows_is_behind(log: TokenLog) -> None:
    run = await opened(log)
    reply = await log.append(Batch(run, 1, 5, [text_event(6, "a")]))
    assert (reply.code, reply.last_seq) == (Code.BEHIND, 1)
    assert shape(await events_of(log, run)) == [(1, "start")]


async def test_a_log_is_missing_after_redis_lost_everything(log: TokenLog, redis: Any) -> None:
    run = await opened(log)
    await redis.flushall()
    assert (await append(log, run, text_event(2, "a"))).code is Code.MISSING
    assert await log.read(run) is None


@pytest.mark.parametrize("name", ["delta", "notice", "error", "done"])
async def test_a_log_lost_without_its_meta_does_not_begin_in_the_middle(
    log: TokenLog, redis: Any, name: str
) -> None:
    run = await opened(log)
    await redis.delete(log_key(run))
    assert (await append(log, run, text_event(2, "a", name))).code is Code.MISSING
    assert await redis.exists(log_key(run)) == 0
    assert (await append(log, run, text_event(2, "a", "snapshot"))).code is Code.OK


async def test_nothing_follows_done_but_its_resend(log: TokenLog) -> None:
    run = await opened(log)
    batch = [text_event(2, "a"), Event(3, "done", b"{}")]
    assert (await append(log, run, *batch)).code is Code.OK
    assert (await append(log, run, *batch)).code is Code.OK
    assert (await append(log, run, *batch, text_event(4, "b"))).code is Code.FENCED
    assert await events_of(log, run) == [START, *batch]


async def test_a_retract_empties_the_log_before_it(log: TokenLog) -> None:
    run = await opened(log)
    await append(log, run, text_event(2, "bad"), text_event(3, "worse"))
    await append(log, run, text_event(4, "worst"), Event(5, "retract", b"{}"))
    await append(log, run, Event(6, "done", b"{}"))
    assert shape(await events_of(log, run)) == [(5, "retract"), (6, "done")]


async def test_the_largest_seq_keeps_its_digits(log: TokenLog) -> None:
    run = await opened(log)
    await log.append(Batch(run, 1, 1, [text_event(MAX_SEQ - 1, "a", "snapshot")]))
    reply = await append(log, run, text_event(MAX_SEQ, "b"))
    assert reply.last_seq == MAX_SEQ
    assert shape(await events_of(log, run))[1:] == [(MAX_SEQ - 1, "snapshot"), (MAX_SEQ, "delta")]
    page = await log.read(run, MAX_SEQ - 1)
    assert page is not None
    assert page.events == (text_event(MAX_SEQ, "b"),)


async def test_one_refused_append_does_not_stop_the_others(log: TokenLog, redis: Any) -> None:
    bad, good = await opened(log), await opened(log)
    await redis.delete(meta_key(bad))
    await redis.set(meta_key(bad), "not a hash")
    replies = await log.append_many(
        [Batch(bad, 1, 1, [text_event(2, "a")]), Batch(good, 1, 1, [text_event(2, "a")])]
    )
    assert replies[0].code is None
    assert "WRONGTYPE" in replies[0].error
    assert replies[1].code is Code.OK


# --- expiry and lease -----------------------------------------------------------------------------


async def test_the_three_keys_share_one_expiry(log: TokenLog, redis: Any) -> None:
    run = await opened(log)
    await log.register([run], "gateway.1")
    await append(log, run, text_event(2, "a"))
    live = await _expiries(redis, run)
    assert len(set(live)) == 1
    await append(log, run, Event(3, "done", b"{}"))
    ended = await _expiries(redis, run)
    assert len(set(ended)) == 1
    assert ended[0] < live[0] - (LIVE_MS - ENDED_MS) // 2
    await append(log, run, Event(3, "done", b"{}"))
    assert await _expiries(redis, run) == ended


async def test_an_append_renews_the_expiry_of_all_three(log: TokenLog, redis: Any) -> None:
    run = await opened(log)
    await log.register([run], "gateway.1")
    before = (await _expiries(redis, run))[0]
    # A quarter of an hour passes for the keys.
    old = before - LIVE_MS // 4
    await redis.hset(meta_key(run), "expires_ms", old)
    for key in (log_key(run), meta_key(run), watchers_key(run)):
        await redis.pexpireat(key, old)
    await append(log, run)
    renewed = await _expiries(redis, run)
    assert len(set(renewed)) == 1
    assert renewed[0] >= before


async def test_an_append_renews_the_lease_on_redis_clock(log: TokenLog, redis: Any) -> None:
    run = await opened(log)
    await redis.hset(meta_key(run), "lease_until_ms", "1")
    (state,) = await log.states([run])
    assert state is not None
    assert not state.leased
    await append(log, run)
    (state,) = await log.states([run])
    assert state is not None
    assert state.leased
    assert 0 < state.lease_until_ms - state.now_ms <= LEASE_MS


async def test_a_lease_can_be_given_up(log: TokenLog) -> None:
    run = await opened(log)
    await log.append(Batch(run, 1, 1, lease_ms=0))
    (state,) = await log.states([run])
    assert state is not None
    assert not state.leased
    assert state.status == "running"


async def test_states_tell_what_is_missing(log: TokenLog) -> None:
    run = await opened(log)
    state, missing = await log.states([run, new_run()])
    assert missing is None
    assert state is not None
    assert (state.epoch, state.last_seq, state.status, state.stop) == (1, 1, "running", False)


# --- watchers, stop, resync -----------------------------------------------------------------------


async def test_an_append_names_who_watches_and_since_when(log: TokenLog, redis: Any) -> None:
    run = await opened(log)
    (registered,) = await log.register([run], "gateway.1")
    assert registered is not None
    assert (registered.epoch, registered.last_seq, registered.status) == (1, 1, "running")
    first = (await append(log, run)).watchers
    await _age_watcher(redis, run, "gateway.1", 10_000)
    await log.register([run], "gateway.1")
    await log.register([run], "gateway.2")
    second = (await append(log, run)).watchers
    assert set(second) == {"gateway.1", "gateway.2"}
    assert second["gateway.1"] == first["gateway.1"] - 10_000
    await log.unregister(run, "gateway.1")
    assert set((await append(log, run)).watchers) == {"gateway.2"}


async def test_who_knows_the_watchers_is_told_of_the_next_one_only(
    log: TokenLog, redis: Any
) -> None:
    """What is known is neither read nor said again, and the lease is left alone."""
    run = await opened(log)
    await log.register([run], "gateway.1")
    known = await log.append(Batch(run, 1, 1))
    assert set(known.watchers) == {"gateway.1"}
    await redis.hset(meta_key(run), "lease_until_ms", "7")
    await log.register([run], "gateway.1")  # renewed: nobody new
    same = await log.append(Batch(run, 1, 1, [text_event(2, "a")], known=known.arrivals))
    assert (same.code, same.last_seq, same.arrivals) == (Code.OK, 2, -1)
    assert await redis.hget(meta_key(run), "lease_until_ms") == b"7"
    await log.register([run], "gateway.2")
    new = await log.append(Batch(run, 1, 2, [text_event(3, "b")], known=known.arrivals))
    assert set(new.watchers) == {"gateway.1", "gateway.2"}
    assert new.arrivals > known.arrivals
    assert int(await redis.hget(meta_key(run), "lease_until_ms")) > 7


@pytest.mark.parametrize("gone", ["left", "unseen"])
async def test_a_gateway_that_comes_back_counts_as_come(
    log: TokenLog, redis: Any, gone: str
) -> None:
    run = await opened(log)
    await log.register([run], "gateway.1")
    known = (await log.append(Batch(run, 1, 1))).arrivals
    if gone == "left":
        await log.unregister(run, "gateway.1")
    else:
        await _age_watcher(redis, run, "gateway.1", UNSEEN_MS + 1_000)
    await log.register([run], "gateway.1")
    assert set((await log.append(Batch(run, 1, 1, known=known))).watchers) == {"gateway.1"}


@pytest.mark.parametrize("name", ["stop", "resync"])
async def test_who_knows_the_watchers_hears_all_the_same_what_readers_ask(
    log: TokenLog, name: str
) -> None:
    run = await opened(log)
    known = (await log.append(Batch(run, 1, 1))).arrivals
    await (log.request_stop(run) if name == "stop" else log.request_snapshot(run))
    assert getattr(await log.append(Batch(run, 1, 1, known=known)), name)


async def test_the_end_is_the_end_for_who_knows_the_watchers(log: TokenLog, redis: Any) -> None:
    run = await opened(log)
    known = (await log.append(Batch(run, 1, 1))).arrivals
    end = Batch(run, 1, 1, [Event(2, "done", b"{}")], known=known)
    for _ in range(2):  # sent again, where the first reply was lost
        assert (await log.append(end)).code is Code.OK
    assert await redis.hget(meta_key(run), "status") == b"ended"
    assert 0 < await redis.pttl(log_key(run)) <= ENDED_MS


async def test_a_gateway_that_gives_no_sign_is_gone(log: TokenLog, redis: Any) -> None:
    run = await opened(log)
    await log.register([run], "gateway.1")
    await _age_watcher(redis, run, "gateway.1", UNSEEN_MS + 1_000)
    assert (await append(log, run)).watchers == {}
    assert await redis.hlen(watchers_key(run)) == 0


async def test_a_gateway_may_wait_before_the_log_is_there(log: TokenLog, redis: Any) -> None:
    run = new_run()
    assert await log.register([run], "gateway.1") == [None]
    assert 0 < await redis.pttl(watchers_key(run)) <= UNSEEN_MS
    reply = await log.open(run, epoch=0, status="queued", events=[START])
    assert set(reply.watchers) == {"gateway.1"}
    assert len(set(await _expiries(redis, run))) == 1


async def test_a_stop_without_a_log_leaves_nothing_behind(log: TokenLog, redis: Any) -> None:
    assert await log.request_stop(new_run()) is None
    assert await redis.keys("*") == []


async def test_a_reader_can_ask_for_a_snapshot_once(log: TokenLog) -> None:
    run = await opened(log)
    assert await log.request_snapshot(run)
    assert (await append(log, run, text_event(2, "a"))).resync
    assert not (await append(log, run, text_event(3, "a", "snapshot"))).resync
    assert not (await append(log, run)).resync
    await append(log, run, Event(4, "done", b"{}"))
    assert not await log.request_snapshot(run)
    assert not await log.request_snapshot(new_run())


# --- read and delete ------------------------------------------------------------------------------


async def test_reading_goes_on_after_a_cursor_in_pages(log: TokenLog) -> None:
    run = await opened(log)
    wanted = [text_event(seq, str(seq)) for seq in range(2, 12)]
    await append(log, run, *wanted, Event(12, "done", b"{}"))
    page = await log.read(run, 1, limit=4)
    assert page is not None
    assert page.events == tuple(wanted[:4])
    assert (page.last_seq, page.ended) == (12, True)
    end, nothing = await log.read_many([(run, 12), (new_run(), 0)])
    assert end is not None
    assert end.events == ()
    assert nothing is None
    assert await log.read_many([]) == []


async def test_only_the_newest_owner_deletes(log: TokenLog, redis: Any) -> None:
    run = await opened(log, epoch=2)
    await log.register([run], "gateway.1")
    assert not await log.delete(run, epoch=1)
    assert await log.read(run) is not None
    assert await log.delete(run, epoch=2)
    assert await log.read(run) is None
    # Those who watch must still be found by whoever opens or ends the run elsewhere.
    assert await redis.hlen(watchers_key(run)) == 1
    assert await redis.pttl(watchers_key(run)) <= UNSEEN_MS


# --- the pipeline ---------------------------------------------------------------------------------


async def test_scripts_that_redis_forgot_are_run_again_in_order(log: TokenLog, redis: Any) -> None:
    runs = [await opened(log) for _ in range(5)]
    await redis.script_flush()
    replies = await log.append_many([Batch(run, 1, 1, [text_event(2, run)]) for run in runs])
    assert [reply.code for reply in replies] == [Code.OK] * 5
    for run in runs:
        assert await events_of(log, run) == [START, text_event(2, run)]


async def test_scripts_that_redis_forgets_in_mid_pipeline(log: TokenLog, redis: Any) -> None:
    """SCRIPT FLUSH between two commands of one pipeline: the first holds, the rest is repeated."""
    runs = [await opened(log) for _ in range(4)]
    await append(log, runs[0])
    original = type(redis).pipeline

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        pipeline = original(self, *args, **kwargs)
        plain = pipeline.execute

        async def execute(*args: Any, **kwargs: Any) -> Any:
            type(redis).pipeline = original
            pipeline.command_stack.insert(2, (("SCRIPT", "FLUSH"), {}))
            replies = await plain(*args, **kwargs)
            del replies[2]
            return replies

        pipeline.execute = execute
        return pipeline

    type(redis).pipeline = interrupted
    try:
        replies = await log.append_many([Batch(run, 1, 1, [text_event(2, run)]) for run in runs])
    finally:
        type(redis).pipeline = original
    assert [reply.code for reply in replies] == [Code.OK] * 4
    assert [reply.last_seq for reply in replies] == [2] * 4
    for run in runs:
        assert await events_of(log, run) == [START, text_event(2, run)]


async def test_two_owners_race_and_one_wins(log: TokenLog) -> None:
    run = await opened(log)
    snapshot = text_event(takeover_seq(2), "", "snapshot")
    async with asyncio.TaskGroup() as group:
        old = [group.create_task(append(log, run, text_event(2, "old"))) for _ in range(5)]
        new = group.create_task(log.open(run, epoch=2, base_seq=EPOCH_SPAN, events=[snapshot]))
        old += [group.create_task(append(log, run, text_event(2, "old"))) for _ in range(5)]
    assert new.result().code is Code.OK
    assert {task.result().code for task in old} <= {Code.OK, Code.FENCED}
    assert shape(await events_of(log, run))[-1] == (EPOCH_SPAN + 1, "snapshot")
    assert (await append(log, run, text_event(3, "old"))).code is Code.FENCED


# --- the sync twin --------------------------------------------------------------------------------


async def test_the_sync_twin_says_the_same(
    log: TokenLog, redis: Any, valkey: EmbeddedValkey
) -> None:
    await redis.script_flush()

    def all_verbs() -> None:
        client = sync_client(valkey.url)
        twin = TokenLogSync(client)
        run = new_run()
        assert twin.register([run], "gateway.1") == [None]
        reply = twin.open(run, epoch=0, status="queued", events=[START])
        assert (reply.code, reply.last_seq, list(reply.watchers)) == (Code.OK, 1, ["gateway.1"])
        twin.tell(reply.watchers, run, reply.last_seq, [START])
        assert twin.open(run, epoch=1, owner="worker.1", base_seq=1).code is Code.OK
        assert twin.request_stop(run) == "worker.1"
        twin.tell_stop("worker.1", run)
        assert twin.request_snapshot(run)
        appended = twin.append(Batch(run, 1, 1, [text_event(2, "a")]))
        assert (appended.code, appended.stop, appended.resync) == (Code.OK, True, True)
        page = twin.read(run, 1)
        assert page is not None
        assert page.events == (text_event(2, "a"),)
        twin.unregister(run, "gateway.1")
        (state,) = twin.states([run])
        assert state is not None
        assert state.last_seq == 2
        assert twin.append_many([]) == []
        assert twin.read_many([]) == []
        assert twin.delete(run, epoch=1)
        assert twin.read(run) is None
        client.close()

    await asyncio.to_thread(all_verbs)
