"""What the reaper does with each kind of loss; tests/faults has it on real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connections
from django.db.models import F
from django.utils import timezone
from redis import Redis

from accounts.ids import external_id
from accounts.models import User
from conversations import services
from conversations.content import plain_text, text_content
from conversations.models import Conversation, Message
from conversations.sealed import open_parts
from generation import deletion, reaper, runs
from generation.events import Event, encode_data
from generation.models import Model, Pool, Run
from generation.payloads import start_data
from generation.redis_clients import pause_reaping, reaping_paused, token_log
from generation.scheduler import scheduler_sync
from generation.token_log import Batch
from quotas.models import UsageEntry
from tests.people import make_person

pytestmark = pytest.mark.django_db(transaction=True)

POOL = "reaped"
AGO = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def pool() -> Iterator[Pool]:
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        model = Model.objects.create(slug="m", title="M", is_default=True)
        made = Pool.objects.create(slug=POOL, model=model, profile="sim")
        assert scheduler_sync().rebuild(POOL, list)
        yield made
        client.flushdb()


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pause between the two looks; test_a_lease_that_comes_back has it."""
    monkeypatch.setattr(reaper, "CONFIRM_S", 0)


@pytest.fixture
def owner() -> User:
    return make_person().user


def _run(owner: User, *, status: str = "running", age_s: float = 60, **fields: object) -> Run:
    conversation = services.create_conversation(owner)
    message = services.add_user_message(conversation, None, text_content("Hello"))
    services.set_active_leaf(conversation.id, message.id)
    then = timezone.now() - timedelta(seconds=age_s)
    return Run.objects.create(
        owner=owner,
        conversation=conversation,
        parent=message,
        model_asked="m",
        model_used="m",
        pool_id=POOL,
        status=status,
        epoch=1 if status == "running" else 0,
        claimed_at=then if status == "running" else None,
        queued_at=then,
        **fields,
    )


def _log(run: Run, texts: Sequence[str], *, leased: bool = False) -> None:
    """The log that an owner of epoch 1 has left behind, or writes still."""
    name, log = run.external_id, token_log()
    log.open(name, epoch=0, events=[Event(1, "start", start_data(run))], status="queued")
    log.open(name, epoch=1, owner="worker:1", events=[], base_seq=1)
    events = [Event(seq, "delta", encode_data({"text": text})) for seq, text in enumerate(texts, 2)]
    lease = {} if leased else {"lease_ms": 0}
    log.append(Batch(name, epoch=1, expected_seq=1, events=events, **lease))


def _stored(run: Run) -> str:
    reply = Message.objects.get(id=run.reply_id)
    return plain_text(open_parts(reply.owner_id, reply.id, reply.content))


def _names(run: Run, after: int = 0) -> list[tuple[int, str]]:
    page = token_log().read(run.external_id, after)
    return [(event.seq, event.name) for event in page.events] if page else []


def test_a_dead_owner(owner: User) -> None:
    run = _run(owner)
    _log(run, ["one ", "two"])
    assert reaper.end_dead_runs() == 1
    run.refresh_from_db()
    assert (run.status, run.finish, run.error_code) == ("failed", "interrupted", "interrupted")
    assert (run.epoch, run.last_seq) == (2, 1_000_003)
    assert _stored(run) == "one two"
    assert _names(run, 3) == [(1_000_001, "snapshot"), (1_000_002, "error"), (1_000_003, "done")]
    assert UsageEntry.objects.filter(run_id=run.id).count() == 1
    run.conversation.refresh_from_db()
    assert run.conversation.active_leaf_id == run.reply_id
    assert reaper.end_dead_runs() == 0


def test_its_owner_comes_back(owner: User) -> None:
    """The old epoch appends nothing and ends nothing."""
    run = _run(owner)
    _log(run, ["one"])
    claim = runs._claim_of(run.id)
    assert reaper.end_dead_runs() == 1
    late = Event(3, "delta", encode_data({"text": " two"}))
    reply = token_log().append(Batch(run.external_id, 1, expected_seq=2, events=[late]))
    assert reply.code == "FENCED"
    outcome = runs.Outcome("stop", "one two", 4, output_tokens=2)
    assert runs.finish(claim, outcome) is None
    assert _stored(run) == "one"
    assert UsageEntry.objects.filter(run_id=run.id).count() == 1


def test_a_stop_that_nobody_heard(owner: User) -> None:
    run = _run(owner, stop_requested_at=timezone.now())
    _log(run, ["kept"])
    assert reaper.end_dead_runs() == 1
    run.refresh_from_db()
    assert (run.status, run.finish, run.error_code) == ("stopped", "user_stopped", "")
    assert _names(run, 2) == [(1_000_001, "snapshot"), (1_000_002, "done")]
    assert _stored(run) == "kept"


def test_owner_and_log_both_lost(owner: User) -> None:
    run = _run(owner)
    assert reaper.end_dead_runs() == 1
    run.refresh_from_db()
    assert (run.finish, run.last_seq) == ("interrupted", 1_000_001)
    assert _stored(run) == ""
    assert token_log().read(run.external_id, 0) is None


def test_a_log_that_begins_in_the_middle_is_not_taken_for_the_whole(owner: User) -> None:
    run = _run(owner)
    _log(run, ["one ", "two ", "three"])
    with Redis.from_url(settings.REDIS_URL) as client:
        client.xdel(f"run:{{{run.external_id}}}", "3-0")
    assert reaper.end_dead_runs() == 1
    assert _stored(run) == ""


def _leased(run: Run) -> None:
    _log(run, ["alive"], leased=True)


def _nothing(run: Run) -> None:
    """A claim whose owner has not opened its log yet."""


@pytest.mark.parametrize(
    ("age_s", "prepare"), [(60, _leased), (3, _nothing)], ids=["leased", "just claimed"]
)
def test_who_lives_is_let_be(owner: User, age_s: float, prepare: Callable[[Run], None]) -> None:
    run = _run(owner, age_s=age_s)
    prepare(run)
    assert reaper.end_dead_runs() == 0
    run.refresh_from_db()
    assert (run.status, run.epoch) == ("running", 1)


def test_nobody_is_reaped_just_after_a_loss_of_redis(owner: User) -> None:
    _run(owner)
    pause_reaping()
    assert reaper.end_dead_runs() == 0


def test_a_dead_run_behind_many_living_ones(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "BATCH", 2)
    for _ in range(5):
        _log(_run(owner, age_s=90), ["alive"], leased=True)
    dead = _run(owner, age_s=30)
    assert reaper.end_dead_runs() == 1
    dead.refresh_from_db()
    assert dead.status == "failed"


def test_many_reapers_end_a_run_once(owner: User) -> None:
    dead = [_run(owner) for _ in range(4)]

    def reap(_: int) -> int:
        try:
            return reaper.end_dead_runs()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(reap, range(4))) == len(dead)
    assert UsageEntry.objects.count() == len(dead)
    assert Message.objects.filter(role="assistant").count() == len(dead)


def test_a_saved_run_that_was_never_queued(owner: User) -> None:
    lost, fresh = _run(owner, status="queued"), _run(owner, status="queued", age_s=0)
    assert reaper.queue_lost_runs(POOL) == 1
    assert scheduler_sync().position(lost.external_id, POOL) == 1
    assert _names(lost) == [(1, "start")]
    assert scheduler_sync().position(fresh.external_id, POOL) is None
    assert reaper.queue_lost_runs(POOL) == 0


def test_a_queue_that_redis_has_lost(owner: User) -> None:
    waiting = [_run(owner, status="queued") for _ in range(3)]
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
    reaper.sweep()
    places = [scheduler_sync().position(run.external_id, POOL) for run in waiting]
    assert places == [1, 2, 3]
    assert reaping_paused()


def test_a_lease_that_comes_back(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis froze for seconds and answered the reaper first: the owner renews a moment later."""
    run = _run(owner)
    _log(run, ["one"])

    def renew(_seconds: float) -> None:
        token_log().append(Batch(run.external_id, epoch=1, expected_seq=2))

    monkeypatch.setattr("generation.reaper.time.sleep", renew)
    assert reaper.end_dead_runs() == 0
    run.refresh_from_db()
    assert (run.status, run.epoch) == ("running", 1)


def test_redis_is_lost_between_the_two_looks(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(owner)
    _log(run, ["one"])

    def lose(_seconds: float) -> None:
        with Redis.from_url(settings.REDIS_URL) as client:
            client.flushdb()

    monkeypatch.setattr("generation.reaper.time.sleep", lose)
    assert reaper.end_dead_runs() == 0
    run.refresh_from_db()
    assert run.status == "running"


def test_a_crash_between_the_finish_and_done(owner: User) -> None:
    run = _run(owner)
    _log(run, ["one"], leased=True)
    assert runs.finish(runs._claim_of(run.id), runs.Outcome("stop", "one", 3)) is not None
    Run.objects.update(finished_at=timezone.now() - timedelta(seconds=10))
    assert reaper.repair_ends() == 1
    assert _names(run, 2) == [(3, "done")]
    assert reaper.repair_ends() == 0


def test_an_end_whose_log_stops_before_it(owner: User) -> None:
    """Text is missing in the log: it goes, and gateways answer from PostgreSQL."""
    run = _run(owner)
    _log(run, ["one"], leased=True)
    assert runs.finish(runs._claim_of(run.id), runs.Outcome("stop", "one two", 9)) is not None
    Run.objects.update(finished_at=timezone.now() - timedelta(seconds=10))
    assert reaper.repair_ends() == 1
    assert token_log().read(run.external_id) is None


def test_a_stop_is_told_again_until_it_is_heard(owner: User) -> None:
    asked = timezone.now() - timedelta(seconds=5)
    run = _run(owner, stop_requested_at=asked)
    _log(run, ["one"], leased=True)
    assert reaper.tell_stops() == 1
    reply = token_log().append(Batch(run.external_id, epoch=1, expected_seq=2))
    assert reply.stop


def test_one_bad_run_stops_no_other(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = _run(owner), _run(owner)
    end = reaper._end_dead

    def stumble(row: Run) -> bool:
        if row.id == bad.id:
            raise KeyError("a damaged log")
        return end(row)

    monkeypatch.setattr(reaper, "_end_dead", stumble)
    assert reaper.end_dead_runs() == 1
    good.refresh_from_db()
    assert good.status == "failed"


def test_a_run_that_is_gone_ends_nothing(owner: User) -> None:
    """An account was deleted in mid-answer."""
    run = _run(owner)
    claim = runs._claim_of(run.id)
    Run.objects.all().delete()
    assert runs.finish(claim, runs.Outcome("stop", "one", 3)) is None


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_delete_that_died_before_it_stopped_its_runs(
    owner: User, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    run = _run(owner, status=status)
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
