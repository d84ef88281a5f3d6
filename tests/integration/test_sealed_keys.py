"""Data keys: made once, cached for a minute, rotated while in use, destroyed for good."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.conf import settings as live_settings
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connections, transaction

from accounts import keys
from accounts.ids import external_id, new_id
from accounts.key_ring import new_entry, parse_ring
from accounts.keystore.models import DataKey, Destruction
from accounts.routers import KEYS
from accounts.sealing import KeyDestroyed, KeyLost, KeysUnavailable, Unreadable, open_sealed, seal
from conversations import selectors
from tests.integration.conversation_rows import make_thread
from tests.people import make_person
from tests.stack import ROOT, Stack

OLD, NEW = new_entry("old"), new_entry("new")


@pytest.fixture(autouse=True)
def fresh_cache() -> Iterator[None]:
    keys.forget_all()
    yield
    keys.forget_all()


def sealed(owner_id: uuid.UUID) -> bytes:
    return seal("content", owner_id, owner_id, b"text of " + owner_id.bytes)


def is_open(owner_id: uuid.UUID, stored: bytes) -> bool:
    return open_sealed("content", owner_id, owner_id, stored) == b"text of " + owner_id.bytes


def output_of(*command: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


def look_ups(monkeypatch: pytest.MonkeyPatch) -> list[uuid.UUID]:
    """Whose key is looked up in the database from now on."""
    asked: list[uuid.UUID] = []
    read = keys._read

    def noted(owner: uuid.UUID) -> Any:
        asked.append(owner)
        return read(owner)

    monkeypatch.setattr(keys, "_read", noted)
    return asked


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr("accounts.keys.time.monotonic", lambda: self.now_s)


# --- one key per owner ----------------------------------------------------------------------------


@pytest.mark.django_db
class TestDataKeys:
    def test_text_comes_back_after_the_cache_is_lost(self) -> None:
        owner_id = new_id()
        stored = sealed(owner_id)
        keys.forget_all()
        assert is_open(owner_id, stored)

    def test_the_stored_key_is_wrapped(self) -> None:
        owner_id = new_id()
        sealed(owner_id)
        row = DataKey.objects.get(owner_id=owner_id)
        assert row.master_key_id == "tests"
        assert len(bytes(row.wrapped or b"")) == 12 + 32 + 16

    def test_another_owner_cannot_open_it(self) -> None:
        one, other = new_id(), new_id()
        stored = sealed(one)
        sealed(other)
        with pytest.raises(Unreadable):
            open_sealed("content", other, one, stored)

    def test_an_owner_without_a_key_has_lost_it(self) -> None:
        stored = sealed(new_id())
        with pytest.raises(KeyLost):
            open_sealed("content", new_id(), new_id(), stored)

    def test_opening_makes_no_key(self) -> None:
        owner_id = new_id()
        with pytest.raises(KeyLost):
            keys.for_opening(owner_id)
        assert not DataKey.objects.filter(owner_id=owner_id).exists()

    def test_a_key_that_another_process_makes_is_soon_seen(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = Clock(monkeypatch)
        keys.forget_all()
        owner_id = new_id()
        asked = look_ups(monkeypatch)
        for _ in range(3):
            with pytest.raises(KeyLost):
                keys.for_opening(owner_id)
        assert asked == [owner_id]
        assert str(owner_id) in caplog.text
        keys._make(owner_id)  # elsewhere: this process's cache hears nothing
        clock.now_s += keys.LOST_S + 1
        keys.for_opening(owner_id)

    def test_one_look_up_for_four_hundred_messages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        conversation, _ids = make_thread(make_person().user, 400)
        keys.forget_all()
        asked = look_ups(monkeypatch)
        page = selectors.messages_page(conversation, conversation.active_leaf_id, None, 400)
        assert len(page.messages) == 400
        assert asked == [conversation.owner_id]

    def test_a_destroyed_owner_costs_one_look_up_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        conversation, _ids = make_thread(make_person().user, 20)
        keys.destroy(conversation.owner_id)
        asked = look_ups(monkeypatch)
        page = selectors.messages_page(conversation, conversation.active_leaf_id, None, 20)
        assert [message.readable for message in page.messages] == [False] * 20
        assert asked == [conversation.owner_id]


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_of_two_that_make_the_first_key_at_once_both_use_the_winners(self) -> None:
        """The winner has inserted but not committed: the loser waits for it, and uses its key."""
        owner_id = new_id()
        fresh = parse_ring(_ring_text()).wrap(owner_id, b"w" * 32)
        winner = _connect_keys()
        with winner, ThreadPoolExecutor(1) as threads:
            winner.execute(
                "INSERT INTO keystore_datakey (owner_id, wrapped, master_key_id, created)"
                " VALUES (%s, %s, %s, now())",
                [owner_id, fresh.sealed, fresh.master_key_id],
            )
            loser = threads.submit(_in_thread, sealed, owner_id)
            _wait_until_blocked()
            winner.commit()
            stored = loser.result(30)
        assert is_open(owner_id, stored)
        row = DataKey.objects.get(owner_id=owner_id)
        assert bytes(row.wrapped or b"") == fresh.sealed

    def test_a_key_made_while_it_is_destroyed_is_destroyed(self) -> None:
        """The maker has inserted but not committed when the destroyer begins."""
        owner_id = new_id()
        fresh = parse_ring(_ring_text()).wrap(owner_id, b"w" * 32)
        maker = _connect_keys()
        with maker, ThreadPoolExecutor(1) as threads:
            maker.execute(
                "INSERT INTO keystore_datakey (owner_id, wrapped, master_key_id, created)"
                " VALUES (%s, %s, %s, now())",
                [owner_id, fresh.sealed, fresh.master_key_id],
            )
            destroyed = threads.submit(_in_thread, keys.destroy, owner_id)
            _wait_until_blocked()
            maker.commit()
            assert destroyed.result(30) is True
        with pytest.raises(KeyDestroyed):
            sealed(owner_id)

    def test_a_key_read_while_it_is_destroyed_is_not_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Read alive, then destroyed, then cached: it would have worked for a minute more here."""
        owner_id = new_id()
        sealed(owner_id)
        keys.forget_all()
        read = keys._read

        def read_then_destroyed(owner: uuid.UUID) -> Any:
            found = read(owner)
            monkeypatch.setattr(keys, "_read", read)
            keys.destroy(owner)
            return found

        monkeypatch.setattr(keys, "_read", read_then_destroyed)
        keys.for_opening(owner_id)  # this one call had it already
        with pytest.raises(KeyDestroyed):
            keys.for_opening(owner_id)

    def test_a_rolled_back_text_leaves_its_key(self) -> None:
        """The content's transaction is another one: its end neither waits for nor undoes a key."""
        owner_id = new_id()
        with transaction.atomic():
            stored = sealed(owner_id)
            transaction.set_rollback(True)
        keys.forget_all()
        assert is_open(owner_id, stored)

    def test_a_key_is_never_made_inside_a_transaction_that_may_be_undone(self) -> None:
        with (
            transaction.atomic(using=KEYS),
            pytest.raises(RuntimeError, match="durable"),
        ):
            sealed(new_id())


def _ring_text() -> str:
    return str(live_settings.MASTER_KEYS)


def _connect_keys() -> psycopg.Connection:
    own = connections[KEYS].settings_dict
    return psycopg.connect(
        host=own["HOST"],
        port=own["PORT"],
        dbname=own["NAME"],
        user=own["USER"],
        password=own["PASSWORD"],
    )


def _in_thread(call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    finally:
        connections.close_all()


def _wait_until_blocked() -> None:
    with _connect_keys() as watcher:
        watcher.autocommit = True
        for _ in range(3_000):
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            row = watcher.execute(query + " AND datname = current_database()").fetchone()
            if row and row[0]:
                return
            threading.Event().wait(0.01)
    raise AssertionError("nobody waits for the other")


# --- destroying -----------------------------------------------------------------------------------


@pytest.mark.django_db
class TestDestroying:
    def test_text_is_gone_at_once_and_no_new_key_is_made(self) -> None:
        owner_id = new_id()
        stored = sealed(owner_id)
        assert keys.destroy(owner_id) is True
        with pytest.raises(KeyDestroyed):
            is_open(owner_id, stored)
        with pytest.raises(KeyDestroyed):
            sealed(owner_id)
        row = DataKey.objects.get(owner_id=owner_id)
        assert (row.wrapped, row.master_key_id) == (None, "")
        assert keys.destroy(owner_id) is False

    def test_other_processes_forget_it_within_a_minute(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch)
        keys.forget_all()
        owner_id = new_id()
        stored = sealed(owner_id)
        # As another process does it: this one's cache hears nothing.
        DataKey.objects.filter(owner_id=owner_id).update(
            wrapped=None, master_key_id="", destroyed_at="2026-11-29T00:00:00Z"
        )
        clock.now_s += keys.CACHE_S - 1
        assert is_open(owner_id, stored)  # reading does not make it younger
        clock.now_s += 2
        with pytest.raises(KeyDestroyed):
            is_open(owner_id, stored)

    def test_a_user_who_never_wrote_can_never_write(self) -> None:
        owner_id = new_id()
        assert keys.destroy(owner_id) is False
        with pytest.raises(KeyDestroyed):
            sealed(owner_id)

    def test_a_key_that_comes_back_with_a_back_up_is_found_and_destroyed_again(self) -> None:
        owner_id, other_id = new_id(), new_id()
        stored, kept = sealed(owner_id), sealed(other_id)
        before = DataKey.objects.get(owner_id=owner_id)
        keys.destroy(owner_id)
        before.save()  # the keys database of yesterday
        keys.forget_all()
        assert is_open(owner_id, stored)
        assert [problem.id for problem in run_checks(databases=[KEYS])] == ["accounts.E005"]
        assert "1 keys had come back" in output_of("destroy_user_key", again=True)
        with pytest.raises(KeyDestroyed):
            is_open(owner_id, stored)
        assert is_open(other_id, kept)
        assert run_checks(databases=[KEYS]) == []

    def test_the_command_asks_for_a_yes_and_takes_address_or_id(self) -> None:
        one, other = make_person().user, make_person().user
        stored = {user.pk: sealed(user.pk) for user in (one, other)}
        with pytest.raises(CommandError, match="--yes"):
            output_of("destroy_user_key", one.email)
        assert is_open(one.pk, stored[one.pk])
        assert external_id("u", one.pk) in output_of(
            "destroy_user_key", one.email.upper(), yes=True
        )
        output_of("destroy_user_key", external_id("u", other.pk), yes=True)
        for user in (one, other):
            with pytest.raises(KeyDestroyed):
                is_open(user.pk, stored[user.pk])
        assert Destruction.objects.count() == 2

    @pytest.mark.parametrize("who", ["nobody@example.org", "u_12", "", None])
    def test_the_command_destroys_nothing_of_nobody(self, who: str | None) -> None:
        with pytest.raises(CommandError):
            output_of("destroy_user_key", *([] if who is None else [who]), yes=True)
        assert not DataKey.objects.exists()


# --- rotation -------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
class TestRotation:
    def test_keys_are_rewrapped_while_texts_are_read_and_written(self, settings: Any) -> None:
        """After every batch of one key: every text opens, new users write, no cache helps."""
        settings.MASTER_KEYS = OLD
        texts = {(owner := new_id()): sealed(owner) for _ in range(8)}
        settings.MASTER_KEYS = f"{NEW},{OLD}"
        for rewrapped, unusable in keys.rotate(batch=1):
            assert (rewrapped, unusable) == (1, 0)
            keys.forget_all()
            texts |= {(owner := new_id()): sealed(owner)}
            assert all(is_open(owner, stored) for owner, stored in texts.items())
        assert len(texts) == 16
        assert keys.count_by_master_key() == {"new": 16}
        settings.MASTER_KEYS = NEW
        keys.forget_all()
        assert all(is_open(owner, stored) for owner, stored in texts.items())

    def test_readers_and_writers_of_other_threads_notice_nothing(self, settings: Any) -> None:
        settings.MASTER_KEYS = OLD
        texts = {(owner := new_id()): sealed(owner) for _ in range(60)}
        settings.MASTER_KEYS = f"{NEW},{OLD}"
        begun, over = threading.Barrier(4), threading.Event()

        def read_and_write() -> dict[uuid.UUID, bytes]:
            written: dict[uuid.UUID, bytes] = {}
            begun.wait(30)
            while not (over.is_set() and written):
                keys.forget_all()
                written |= {(owner := new_id()): sealed(owner)}
                assert all(is_open(owner, stored) for owner, stored in texts.items())
            return written

        def rotate() -> int:
            begun.wait(30)
            try:
                return sum(done for done, _ in keys.rotate(batch=3))
            finally:
                over.set()

        with ThreadPoolExecutor(4) as threads:
            others = [threads.submit(_in_thread, read_and_write) for _ in range(3)]
            assert threads.submit(_in_thread, rotate).result(60) == 60
            written = [other.result(60) for other in others]
        texts |= {owner: stored for part in written for owner, stored in part.items()}
        assert set(keys.count_by_master_key()) == {"new"}
        settings.MASTER_KEYS = NEW
        keys.forget_all()
        assert all(is_open(owner, stored) for owner, stored in texts.items())

    def test_two_rotations_at_once_do_each_key_once(self, settings: Any) -> None:
        settings.MASTER_KEYS = OLD
        texts = {(owner := new_id()): sealed(owner) for _ in range(6)}
        settings.MASTER_KEYS = f"{NEW},{OLD}"
        one, other = keys.rotate(batch=2), keys.rotate(batch=3)
        next(one), next(other)
        list(one), list(other)
        settings.MASTER_KEYS = NEW
        keys.forget_all()
        assert all(is_open(owner, stored) for owner, stored in texts.items())

    def test_an_interrupted_rotation_goes_on(self, settings: Any) -> None:
        settings.MASTER_KEYS = OLD
        for _ in range(5):
            sealed(new_id())
        settings.MASTER_KEYS = f"{NEW},{OLD}"
        interrupted = keys.rotate(batch=2)
        next(interrupted)
        interrupted.close()
        assert keys.count_by_master_key() == {"new": 2, "old": 3}
        told = output_of("rotate_master_key", batch=2)
        assert "new: 5 data keys" in told
        assert "May be taken out of MASTER_KEYS: old" in told
        assert "3 data keys rewrapped" in told

    def test_a_key_destroyed_during_its_rewrapping_stays_destroyed(
        self, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Read alive by the rotation, then destroyed, then written: it must not come back."""
        settings.MASTER_KEYS = OLD
        owner_id = new_id()
        sealed(owner_id)
        settings.MASTER_KEYS = f"{NEW},{OLD}"
        rows = keys._not_current(None, 10)
        assert keys.destroy(owner_id)
        keys._rewrap(rows)
        row = DataKey.objects.get(owner_id=owner_id)
        assert (row.wrapped, row.master_key_id) == (None, "")

    def test_what_cannot_be_unwrapped_is_kept_and_told(self, settings: Any) -> None:
        settings.MASTER_KEYS = OLD
        owner_id = new_id()
        stored = sealed(owner_id)
        settings.MASTER_KEYS = NEW
        with pytest.raises(CommandError, match="1 data keys could not be unwrapped"):
            output_of("rotate_master_key")
        settings.MASTER_KEYS = f"{NEW},{OLD}"
        keys.forget_all()
        assert is_open(owner_id, stored)


# --- what is wrong is told ------------------------------------------------------------------------


@pytest.mark.django_db
class TestChecks:
    def found(self) -> set[str | None]:
        return {problem.id for problem in run_checks(databases=[KEYS])}

    def test_all_is_well(self) -> None:
        sealed(new_id())
        assert self.found() == set()

    @pytest.mark.parametrize("ring", ["", "k1:***", "k1"])
    def test_a_ring_that_cannot_be_used(self, settings: Any, ring: str) -> None:
        settings.MASTER_KEYS = ring
        assert "accounts.E001" in self.found()

    @pytest.mark.parametrize("ring", [NEW, NEW.replace("new:", "tests:")])
    def test_a_ring_that_does_not_fit(self, settings: Any, ring: str) -> None:
        sealed(new_id())
        settings.MASTER_KEYS = ring
        assert self.found() == {"accounts.E004"}

    def test_keys_in_the_contents_database(self, monkeypatch: pytest.MonkeyPatch) -> None:
        content = live_settings.DATABASES["default"]
        monkeypatch.setattr(live_settings, "DATABASES", {"default": content, KEYS: content})
        assert "accounts.E003" in {problem.id for problem in run_checks()}

    def test_no_keys_database(self, monkeypatch: pytest.MonkeyPatch) -> None:
        content = live_settings.DATABASES["default"]
        monkeypatch.setattr(live_settings, "DATABASES", {"default": content})
        assert "accounts.E002" in {problem.id for problem in run_checks()}
        with pytest.raises(KeysUnavailable, match="KEYS_DATABASE_URL"):
            sealed(new_id())

    def test_texts_beside_an_empty_keys_database(self) -> None:
        make_thread(make_person().user, 2)
        assert self.found() == set()
        DataKey.objects.all().delete()
        assert self.found() == {"chatproject.E003"}

    def test_the_tables_are_where_they_belong(self) -> None:
        tables = {
            alias: set(connections[alias].introspection.table_names())
            for alias in ("default", KEYS)
        }
        assert "keystore_datakey" not in tables["default"]
        assert tables[KEYS] == {"django_migrations", "keystore_datakey"}


# --- two processes --------------------------------------------------------------------------------

_SEAL_WHEN_TOLD = """
import sys, uuid
from accounts.sealing import seal
owner = uuid.UUID(sys.stdin.readline().strip())
print(seal("content", owner, owner, b"text of " + owner.bytes).hex(), flush=True)
"""


def test_two_processes_that_make_a_first_key_use_the_same(stack: Stack) -> None:
    owner_id = new_id()
    command = [sys.executable, "manage.py", "shell", "--verbosity", "0", "-c", _SEAL_WHEN_TOLD]
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=stack.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin
        process.stdin.write(f"{owner_id}\n")
        process.stdin.flush()
    texts = [process.communicate(timeout=60)[0].strip() for process in processes]
    opened = stack.manage(
        "shell",
        "--verbosity",
        "0",
        "-c",
        f"import uuid; from accounts.sealing import open_sealed; o = uuid.UUID('{owner_id}')\n"
        f"print([open_sealed('content', o, o, bytes.fromhex(t)) == b'text of ' + o.bytes"
        f" for t in {texts!r}])",
    )
    assert opened.strip() == str([True] * 3)
    with psycopg.connect(stack.env["KEYS_DATABASE_URL"]) as connection:
        query = "SELECT count(*) FROM keystore_datakey WHERE owner_id = %s"
        assert connection.execute(query, [owner_id]).fetchone() == (1,)
