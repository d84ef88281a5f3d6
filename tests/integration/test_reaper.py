"""What the reaper does with each kind of loss; tests/faults has it on real processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from django.conf import settings
from django.db import connection as db_connection
from django.db import connections
from django.db.models import F
from django.utils import timezone
from redis import Redis

from accounts.ids import external_id
from accounts.models import User
from conversations.content import plain_text
from conversations.models import Conversation, Message
from conversations.sealed import open_parts
from generation import checkpoints, deletion, orphans, reaper, runs
from generation.checkpoints import Written
from generation.events import Event, encode_data
from generation.models import Replica, Run, RunCheckpoint
from generation.payloads import start_data
from generation.redis_clients import pause_reaping, reaping_paused, token_log
from generation.run_state import EPOCHS_MAX
from generation.scheduler import scheduler_sync
from generation.token_log import Batch
from quotas.models import UsageEntry
from tests.integration.reaper_room import (  # noqa: F401  # fixtures
    POOL,
    make_run,
    owner_fixture,
    pool_fixture,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("pool")]

AGO = timedelta(minutes=1)
LAST = EPOCHS_MAX * 1_000_000
"""Where the seqs begin of whoever takes over from the last owner."""


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pause between the two looks; test_a_lease_that_comes_back has it."""
    monkeypatch.setattr(reaper, "CONFIRM_S", 0)


def _log(run: Run, texts: Sequence[str], *, leased: bool = False) -> None:
    """The log that an owner has left behind, or writes still."""
    name, log = run.external_id, token_log()
    log.open(name, epoch=0, events=[Event(1, "start", start_data(run))], status="queued")
    log.open(name, epoch=run.epoch, owner="worker:1", events=[], base_seq=1)
    events = [Event(seq, "delta", encode_data({"text": text})) for seq, text in enumerate(texts, 2)]
    lease = {} if leased else {"lease_ms": 0}
    log.append(
        Batch(name, epoch=run.epoch, expected_seq=1, events=events, tokens=len(texts), **lease)
    )


def _keep(run: Run, text: str, *, epoch: int, seq: int, is_whole: bool = False) -> bool:
    return checkpoints.save(run.id, run.owner_id, Written(text, 7, epoch, seq, is_whole))


def _stored(run: Run) -> str:
    reply = Message.objects.get(id=run.reply_id)
    return plain_text(open_parts(reply.owner_id, reply.id, reply.content))


def _names(run: Run, after: int = 0) -> list[tuple[int, str]]:
    page = token_log().read(run.external_id, after)
    return [(event.seq, event.name) for event in page.events] if page else []


def test_a_dead_owner(owner: User) -> None:
    run = make_run(owner)
    _log(run, ["one ", "two"])
    assert reaper.mend_dead_runs() == 1
    run.refresh_from_db()
    assert (run.status, run.finish, run.error_code) == ("failed", "interrupted", "interrupted")
    assert (run.epoch, run.last_seq) == (EPOCHS_MAX + 1, LAST + 3)
    assert (_stored(run), run.output_tokens) == ("one two", 2)
    assert _names(run, 3) == [(LAST + 1, "snapshot"), (LAST + 2, "error"), (LAST + 3, "done")]
    assert UsageEntry.objects.filter(run_id=run.id).count() == 1
    run.conversation.refresh_from_db()
    assert run.conversation.active_leaf_id == run.reply_id
    assert reaper.mend_dead_runs() == 0


def test_another_goes_on_with_a_run_that_has_lost_its_owner(owner: User) -> None:
    first, second = make_run(owner, epoch=1), make_run(owner, epoch=2)
    for run in (first, second):
        _log(run, ["one ", "two"])
    assert reaper.mend_dead_runs() == 2
    places = [scheduler_sync().position(run.external_id, POOL) for run in (first, second)]
    assert places == [1, 2], "before all others, in their order"
    assert reaper.mend_dead_runs() == 0, "it waits already"
    assert checkpoints.latest(first.id, owner.id) == Written("one two", 2, 1, 3, is_whole=True)
    claim = orphans.claim_orphan(first.id, "second", pool=POOL)
    assert claim is not None
    assert (claim.epoch, claim.partial, claim.spent_tokens) == (2, "one two", 2)
    first.refresh_from_db()
    assert (first.status, first.replica) == ("running", "second")
    assert orphans.claim_orphan(first.id, "third", pool=POOL) is None, "one alone"


def test_one_that_was_stopped_meanwhile_ends(owner: User) -> None:
    run = make_run(owner, epoch=1, stop_requested_at=timezone.now())
    _log(run, ["kept"])
    assert reaper.mend_dead_runs() == 1
    run.refresh_from_db()
    assert (run.status, run.finish) == ("stopped", "user_stopped")


def _orphaned(run: Run, ago: timedelta) -> None:
    """Its lease ran out so long ago."""
    _log(run, ["one"])
    Run.objects.filter(id=run.id).update(claimed_at=timezone.now() - ago)
    with Redis.from_url(settings.REDIS_URL) as client:
        until = timezone.now() - ago
        client.hset(f"run:{{{run.external_id}}}:m", "lease_until_ms", int(until.timestamp() * 1000))


@pytest.mark.parametrize(
    ("announced", "waited", "status"),
    [
        (False, timedelta(seconds=50), "running"),
        (False, timedelta(seconds=70), "failed"),
        (True, timedelta(seconds=70), "running"),
        (True, timedelta(minutes=11), "failed"),
    ],
)
def test_nobody_waits_for_ever(
    owner: User, announced: bool, waited: timedelta, status: str
) -> None:
    if announced:
        Replica.objects.create(name="loading", pool_id=POOL, healthy=False)
    run = make_run(owner, epoch=1)
    _orphaned(run, waited)
    assert reaper.mend_dead_runs() == 1
    run.refresh_from_db()
    assert run.status == status
    assert (scheduler_sync().position(run.external_id, POOL) is not None) == (status == "running")


@pytest.mark.parametrize("known", [True, False], ids=["kept", "never kept"])
def test_owner_and_log_are_lost_and_a_text_was_kept(owner: User, known: bool) -> None:
    run = make_run(owner, epoch=1)
    if known:
        assert _keep(run, "the best there is", epoch=1, seq=9)
    assert reaper.mend_dead_runs() == 1
    run.refresh_from_db()
    assert (run.finish, run.last_seq) == ("interrupted", 1_000_001)
    assert _stored(run) == ("the best there is" if known else "")
    assert run.output_tokens == (7 if known else 0)
    assert not RunCheckpoint.objects.exists(), "it goes with the end"


def test_the_log_is_lost_after_its_owner_had_let_go(owner: User) -> None:
    """All of the text is kept: another goes on."""
    run = make_run(owner, epoch=1)
    assert _keep(run, "one two", epoch=1, seq=9, is_whole=True)
    assert reaper.mend_dead_runs() == 1
    assert reaper.mend_dead_runs() == 0, "it waits"
    claim = orphans.claim_orphan(run.id, "next", pool=POOL)
    assert claim is not None
    assert (claim.epoch, claim.partial, claim.spent_tokens) == (2, "one two", 7)
    # That one dies without a word, and its log with it.
    Run.objects.filter(id=run.id).update(claimed_at=timezone.now() - timedelta(minutes=1))
    assert reaper.mend_dead_runs() == 1
    run.refresh_from_db()
    assert (run.finish, run.epoch) == ("interrupted", 3)
    assert _stored(run) == "one two"


def test_nobody_waits_for_ever_for_a_run_without_log(owner: User) -> None:
    run = make_run(owner, epoch=1, age_s=3600)
    assert _keep(run, "one two", epoch=1, seq=9, is_whole=True)
    RunCheckpoint.objects.update(saved=timezone.now() - timedelta(minutes=59))
    assert reaper.mend_dead_runs() == 1
    run.refresh_from_db()
    assert run.finish == "interrupted"


def _claimed_just_now(run: Run) -> None:
    Run.objects.filter(id=run.id).update(claimed_at=timezone.now())


@pytest.mark.parametrize(
    "how", ["leased", "claimed by one who has not opened yet", "no log", "ended", "elsewhere"]
)
def test_what_is_not_to_be_taken(owner: User, how: str) -> None:
    run = make_run(owner, epoch=1)
    if how != "no log":
        _log(run, ["one"], leased=how == "leased")
    if how.startswith("claimed"):
        runs.take_over(run.id, 1, "second")
        _claimed_just_now(run)
    if how == "ended":
        assert runs.finish(runs._claim_of(run.id), runs.Outcome("stop", "one", 3)) is not None
    pool = "other" if how == "elsewhere" else POOL
    assert orphans.claim_orphan(run.id, "third", pool=pool) is None


def test_an_owner_that_died_before_it_opened_its_log(owner: User) -> None:
    run = make_run(owner, epoch=1)
    _log(run, ["one"])
    assert runs.take_over(run.id, 1, "second") is not None
    Run.objects.filter(id=run.id).update(claimed_at=timezone.now() - timedelta(seconds=7))
    claim = orphans.claim_orphan(run.id, "third", pool=POOL)
    assert claim is not None
    assert (claim.epoch, claim.partial) == (3, "one")


def test_its_owner_comes_back(owner: User) -> None:
    """The old epoch appends nothing and ends nothing."""
    run = make_run(owner)
    _log(run, ["one"])
    claim = runs._claim_of(run.id)
    assert reaper.mend_dead_runs() == 1
    late = Event(3, "delta", encode_data({"text": " two"}))
    reply = token_log().append(Batch(run.external_id, run.epoch - 1, expected_seq=2, events=[late]))
    assert reply.code == "FENCED"
    outcome = runs.Outcome("stop", "one two", 4, output_tokens=2)
    assert runs.finish(claim, outcome) is None
    assert _stored(run) == "one"
    assert UsageEntry.objects.filter(run_id=run.id).count() == 1


def test_a_stop_that_nobody_heard(owner: User) -> None:
    run = make_run(owner, stop_requested_at=timezone.now())
    _log(run, ["kept"])
    assert reaper.mend_dead_runs() == 1
    run.refresh_from_db()
    assert (run.status, run.finish, run.error_code) == ("stopped", "user_stopped", "")
    assert _names(run, 2) == [(LAST + 1, "snapshot"), (LAST + 2, "done")]
    assert _stored(run) == "kept"


def test_owner_and_log_both_lost(owner: User) -> None:
    run = make_run(owner)
    assert reaper.mend_dead_runs() == 1
    run.refresh_from_db()
    assert (run.finish, run.last_seq) == ("interrupted", LAST + 1)
    assert _stored(run) == ""
    assert token_log().read(run.external_id, 0) is None


def test_a_text_that_another_owner_keeps(owner: User) -> None:
    """The larger epoch's, and of one epoch the later one; nothing of a run that has ended."""
    run = make_run(owner, epoch=1)
    assert _keep(run, "five", epoch=1, seq=5)
    assert not _keep(run, "four", epoch=1, seq=4)
    assert _keep(run, "five again", epoch=1, seq=5)
    assert runs.take_over(run.id, 1, "second") is not None
    assert not _keep(run, "of the first", epoch=1, seq=9)
    assert checkpoints.latest(run.id, owner.id) == Written("five again", 7, 1, 5)
    assert _keep(run, "of the second", epoch=2, seq=1)
    assert b"second" not in bytes(RunCheckpoint.objects.get().content)
    assert runs.finish(runs._claim_of(run.id), runs.Outcome("stop", "done", 9)) is not None
    assert not _keep(run, "late", epoch=2, seq=10)
    assert checkpoints.latest(run.id, owner.id) is None


def test_a_log_that_begins_in_the_middle_is_not_taken_for_the_whole(owner: User) -> None:
    run = make_run(owner)
    _log(run, ["one ", "two ", "three"])
    with Redis.from_url(settings.REDIS_URL) as client:
        client.xdel(f"run:{{{run.external_id}}}", "3-0")
    assert reaper.mend_dead_runs() == 1
    assert _stored(run) == ""


def _leased(run: Run) -> None:
    _log(run, ["alive"], leased=True)


def _nothing(run: Run) -> None:
    """A claim whose owner has not opened its log yet."""


@pytest.mark.parametrize(
    ("age_s", "prepare"), [(60, _leased), (3, _nothing)], ids=["leased", "just claimed"]
)
def test_who_lives_is_let_be(owner: User, age_s: float, prepare: Callable[[Run], None]) -> None:
    run = make_run(owner, age_s=age_s)
    prepare(run)
    assert reaper.mend_dead_runs() == 0
    run.refresh_from_db()
    assert (run.status, run.epoch) == ("running", EPOCHS_MAX)


def test_nobody_is_reaped_just_after_a_loss_of_redis(owner: User) -> None:
    make_run(owner)
    pause_reaping()
    assert reaper.mend_dead_runs() == 0


def test_a_dead_run_behind_many_living_ones(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "BATCH", 2)
    for _ in range(5):
        _log(make_run(owner, age_s=90), ["alive"], leased=True)
    dead = make_run(owner, age_s=30)
    assert reaper.mend_dead_runs() == 1
    dead.refresh_from_db()
    assert dead.status == "failed"


def test_many_reapers_end_a_run_once(owner: User) -> None:
    dead = [make_run(owner) for _ in range(4)]

    def reap(_: int) -> int:
        try:
            return reaper.mend_dead_runs()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(reap, range(4))) == len(dead)
    assert UsageEntry.objects.count() == len(dead)
    assert Message.objects.filter(role="assistant").count() == len(dead)


def test_a_saved_run_that_was_never_queued(owner: User) -> None:
    lost, fresh = make_run(owner, status="queued"), make_run(owner, status="queued", age_s=0)
    assert reaper.queue_lost_runs(POOL) == 1
    assert scheduler_sync().position(lost.external_id, POOL) == 1
    assert _names(lost) == [(1, "start")]
    assert scheduler_sync().position(fresh.external_id, POOL) is None
    assert reaper.queue_lost_runs(POOL) == 0


def test_a_queue_that_redis_has_lost(owner: User) -> None:
    waiting = [make_run(owner, status="queued") for _ in range(3)]
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
    reaper.sweep()
    places = [scheduler_sync().position(run.external_id, POOL) for run in waiting]
    assert places == [1, 2, 3]
    assert reaping_paused()


def test_a_lease_that_comes_back(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis froze for seconds and answered the reaper first: the owner renews a moment later."""
    run = make_run(owner)
    _log(run, ["one"])

    def renew(_seconds: float) -> None:
        token_log().append(Batch(run.external_id, run.epoch, expected_seq=2))

    monkeypatch.setattr("generation.reaper.time.sleep", renew)
    assert reaper.mend_dead_runs() == 0
    run.refresh_from_db()
    assert (run.status, run.epoch) == ("running", EPOCHS_MAX)


def test_a_full_redis_says_nothing_about_owners(owner: User) -> None:
    """It refuses everybody's renewal."""
    run = make_run(owner, epoch=EPOCHS_MAX)
    _log(run, ["one"])
    with Redis.from_url(settings.REDIS_URL) as client:
        before = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", "1")
        try:
            assert reaper.mend_dead_runs() == 0
        finally:
            client.config_set("maxmemory", before)
    run.refresh_from_db()
    assert run.status == "running"
    assert reaper.mend_dead_runs() == 1


def test_redis_is_lost_between_the_two_looks(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(owner)
    _log(run, ["one"])

    def lose(_seconds: float) -> None:
        with Redis.from_url(settings.REDIS_URL) as client:
            client.flushdb()

    monkeypatch.setattr("generation.reaper.time.sleep", lose)
    assert reaper.mend_dead_runs() == 0
    run.refresh_from_db()
    assert run.status == "running"


def test_crash_between_the_finish_and_done(owner: User) -> None:
    run = make_run(owner)
    _log(run, ["one"], leased=True)
    assert runs.finish(runs._claim_of(run.id), runs.Outcome("stop", "one", 3)) is not None
    Run.objects.update(finished_at=timezone.now() - timedelta(seconds=10))
    assert reaper.repair_ends() == 1
    assert _names(run, 2) == [(3, "done")]
    assert reaper.repair_ends() == 0


def test_an_end_whose_log_stops_before_it(owner: User) -> None:
    """Text is missing in the log: it goes, and gateways answer from PostgreSQL."""
    run = make_run(owner)
    _log(run, ["one"], leased=True)
    assert runs.finish(runs._claim_of(run.id), runs.Outcome("stop", "one two", 9)) is not None
    Run.objects.update(finished_at=timezone.now() - timedelta(seconds=10))
    assert reaper.repair_ends() == 1
    assert token_log().read(run.external_id) is None


def test_a_stop_is_told_again_until_it_is_heard(owner: User) -> None:
    asked = timezone.now() - timedelta(seconds=5)
    run = make_run(owner, stop_requested_at=asked)
    _log(run, ["one"], leased=True)
    assert reaper.tell_stops() == 1
    reply = token_log().append(Batch(run.external_id, run.epoch, expected_seq=2))
    assert reply.stop


def test_one_bad_run_stops_no_other(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = make_run(owner), make_run(owner)
    end = reaper._end_dead

    def stumble(row: Run) -> bool:
        if row.id == bad.id:
            raise KeyError("a damaged log")
        return end(row)

    monkeypatch.setattr(reaper, "_end_dead", stumble)
    assert reaper.mend_dead_runs() == 1
    good.refresh_from_db()
    assert good.status == "failed"


def test_a_run_that_somebody_frozen_holds_stops_no_other(owner: User) -> None:
    held, other = make_run(owner), make_run(owner)
    for run in (held, other):
        _log(run, ["one"])
    connection = psycopg.connect(
        os.environ["DATABASE_URL"], dbname=settings.DATABASES["default"]["NAME"]
    )
    with connection:
        connection.execute("SELECT 1 FROM generation_run WHERE id = %s FOR UPDATE", [held.id])
        with db_connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '100ms'")
        try:
            assert reaper.mend_dead_runs() == 1
        finally:
            with db_connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '5s'")
    for run in (held, other):
        run.refresh_from_db()
    assert (held.status, other.finish) == ("running", "interrupted")
    assert reaper.mend_dead_runs() == 1, "the next time"


def test_a_run_that_is_gone_ends_nothing(owner: User) -> None:
    """An account was deleted in mid-answer."""
    run = make_run(owner)
    claim = runs._claim_of(run.id)
    Run.objects.all().delete()
    assert runs.finish(claim, runs.Outcome("stop", "one", 3)) is None


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_delete_that_died_before_it_stopped_its_runs(
    owner: User, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    run = make_run(owner, status=status)
    name = external_id("c", run.conversation_id)

    def die(_run: Run) -> None:
        raise SystemExit

    monkeypatch.setattr(deletion, "stop_run", die)
    with pytest.raises(SystemExit):
        deletion.delete(owner, name, None)
    assert reaper.stop_deleted() == 0, "the delete itself may still be at it"
    Conversation.objects.filter(id=run.conversation_id).update(deleted_at=F("deleted_at") - AGO)
    assert reaper.stop_deleted() == 1
    run.refresh_from_db()
    assert run.stop_requested_at is not None
    assert run.finish == ("user_stopped" if status == "queued" else "")
    assert reaper.stop_deleted() == 0
