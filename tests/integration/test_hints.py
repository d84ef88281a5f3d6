"""Hints: what makes them, and that nobody ever waits for them or fails with them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from channels.layers import channel_layers
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from redis.exceptions import RedisError

from accounts import hints
from accounts.ids import new_id
from accounts.models import User
from conversations import services
from conversations.content import text_content
from conversations.models import Message
from conversations.views import rename_view_body
from generation import reaper
from generation.chores import purge_one
from generation.deletion import delete, restore
from generation.feedback import give_feedback
from generation.models import Run
from generation.regenerate import RegenerateRequest, regenerate
from generation.stop import request_stop
from generation.switching import switch
from tests.integration import tree_room
from tests.people import make_person
from tests.stack import ROOT

CHANGED, GONE = "conversation_changed", "conversation_gone"


# --- what makes them ------------------------------------------------------------------------------


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, str]]]:
    """(user, hint) of everything that was given to the lane."""
    taken: list[tuple[Any, dict[str, str]]] = []

    def put(channel: str, payload: bytes) -> None:
        user_id, data = hints.decode(payload)
        assert channel == hints.channel_of(user_id)
        taken.append((user_id, data))

    monkeypatch.setattr(hints._lane, "put", put)
    return taken


@pytest.fixture
def owner(transactional_db: None) -> Iterator[User]:
    with tree_room.empty_queues():
        yield make_person("ada").user


def _rename(owner: User, run: Run) -> None:
    rename_view_body(owner, tree_room.conversation_id(run), {"title": "New"})


def _switch(owner: User, run: Run) -> None:
    switch(owner, tree_room.conversation_id(run), tree_room.message_id(run.parent_id), None)


def _feedback(rating: str | None) -> Callable[[User, Run], None]:
    def act(owner: User, run: Run) -> None:
        give_feedback(owner, tree_room.message_id(run.reply_id), rating, "")

    return act


def _delete(owner: User, run: Run) -> None:
    delete(owner, tree_room.conversation_id(run), None)


def _restore(owner: User, run: Run) -> None:
    restore(owner, tree_room.conversation_id(run))


def _purge(owner: User, run: Run) -> None:
    run.conversation.deleted_at = timezone.now() - timedelta(days=40)
    run.conversation.save(update_fields=["deleted_at"])
    assert purge_one(run.conversation_id, timezone.now())


def _regenerate(owner: User, run: Run) -> None:
    wanted = RegenerateRequest(
        tree_room.conversation_id(run), tree_room.message_id(run.parent_id), None, None
    )
    regenerate(owner, wanted)


ON_AN_ANSWER: list[tuple[Callable[[User, Run], None], list[str]]] = [
    (_rename, [CHANGED]),
    (_feedback("up"), [CHANGED]),
    (_feedback(None), [CHANGED]),
    (_delete, [GONE]),
    (_restore, [CHANGED]),
    (_purge, [GONE]),
    (_regenerate, [CHANGED, "run_started"]),
]


def test_everything_that_changes_is_hinted_at(
    owner: User, said: list[tuple[Any, dict[str, str]]]
) -> None:
    run = tree_room.ask(owner)
    conversation = tree_room.conversation_id(run)
    assert _kinds(said) == {CHANGED, "run_started"}
    tree_room.finish(run)
    assert _kinds(said) == {CHANGED, "run_ended"}
    for act, kinds in ON_AN_ANSWER:
        answered = tree_room.answered(owner)
        said.clear()
        act(owner, answered)
        expected = {"conversation": tree_room.conversation_id(answered)}
        assert _kinds(said, clear=False) == set(kinds), act
        assert all(data.items() >= expected.items() for _, data in said)
        said.clear()
    second = tree_room.finish(
        tree_room.ask(owner, run.conversation, parent_id=None, parts=text_content("B"))
    )
    said.clear()
    _switch(owner, run)
    assert said == [(owner.id, {"kind": CHANGED, "conversation": conversation})]
    assert second.conversation_id == run.conversation_id, "there was another leaf to leave"


def test_the_ends_that_no_owner_writes(owner: User, said: list[tuple[Any, dict[str, str]]]) -> None:
    """A queued run that is stopped, and a running one whose owner is gone."""
    queued, running = tree_room.ask(owner), tree_room.ask(owner)
    tree_room.claim(running)
    said.clear()
    request_stop(owner, queued.external_id)
    assert _ends(said) == [queued.external_id]
    running.refresh_from_db()
    assert reaper._end_dead(running)
    assert _ends(said) == [queued.external_id, running.external_id]


def test_what_is_taken_back_is_not_hinted_at(
    owner: User, said: list[tuple[Any, dict[str, str]]]
) -> None:
    with transaction.atomic():
        services.create_conversation(owner)
        transaction.set_rollback(True)
    with transaction.atomic():
        services.create_conversation(owner)
        assert said == [], "not before the commit"
    assert _kinds(said) == {CHANGED}


def test_nothing_that_anybody_wrote_is_in_a_hint(
    owner: User, said: list[tuple[Any, dict[str, str]]]
) -> None:
    run = tree_room.answered(owner, text="planted")
    _rename(owner, run)
    assert said
    assert {key for _, data in said for key in data} <= {"kind", "conversation", "run"}
    assert all(value.startswith(("c_", "g_")) for _, data in said for value in _ids(data))
    assert Message.objects.filter(id=run.reply_id).exists()


def _ids(data: dict[str, str]) -> list[str]:
    return [value for key, value in data.items() if key != "kind"]


def _kinds(said: list[tuple[Any, dict[str, str]]], *, clear: bool = True) -> set[str]:
    kinds = {data["kind"] for _, data in said}
    if clear:
        said.clear()
    return kinds


def _ends(said: list[tuple[Any, dict[str, str]]]) -> list[str]:
    return [data["run"] for _, data in said if data["kind"] == "run_ended"]


# --- the wire -------------------------------------------------------------------------------------


async def test_the_wire_is_the_channel_layers_own() -> None:
    """What the lane publishes, the layer's groups receive; what a group is sent, a feed decodes."""
    user_id, layer = new_id(), channel_layers["default"]
    data = {"kind": CHANGED, "conversation": "c_x"}
    channel = await layer.new_channel()
    await layer.group_add(hints.group_of(user_id), channel)
    hints._lane.put(hints.channel_of(user_id), hints.encode(user_id, data))
    async with asyncio.timeout(30):
        message = await layer.receive(channel)
    assert message == {"type": "account.hint", "user": user_id.hex, "data": data}
    taken: asyncio.Queue[bytes] = asyncio.Queue()
    subscriber = await layer.subscribe_raw(hints.channel_of(user_id), taken.put_nowait)
    async with asyncio.timeout(30):
        await subscriber.ready.wait()
        await layer.group_send(hints.group_of(user_id), message)
        assert hints.decode(await taken.get()) == (user_id, data)
    await layer.flush()


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"\x80", b"\x81\xa4user\xa1x", b"\x93\x01\x02\x03"]
)
def test_what_is_no_hint(payload: bytes) -> None:
    with pytest.raises(ValueError):
        hints.decode(payload)


# --- Redis away -----------------------------------------------------------------------------------


def test_a_redis_that_hangs_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, hangs, published = hints.Lane(), threading.Event(), list[int]()

    def publish(batch: list[tuple[str, bytes]]) -> None:
        published.append(len(batch))
        hangs.wait(60)

    monkeypatch.setattr(hints, "_publish", publish)
    lane.put("first", b"")
    _until(lambda: published == [1])
    began_s = time.monotonic()
    for number in range(3 * hints.MAX_WAITING):
        lane.put(str(number), b"")
    assert time.monotonic() - began_s < 20
    assert lane._waiting.qsize() == hints.MAX_WAITING, "the rest is dropped"
    hangs.set()
    _until(lambda: sum(published) == 1 + hints.MAX_WAITING)


def test_what_redis_does_not_take_is_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lane, published = hints.Lane(), list[str]()

    def publish(batch: list[tuple[str, bytes]]) -> None:
        if not published:
            published.append("refused")
            raise RedisError
        published.extend(channel for channel, _ in batch)

    monkeypatch.setattr(hints, "_publish", publish)
    lane.put("lost", b"")
    _until(lambda: "hints lost" in caplog.text)
    lane.put("heard", b"")
    _until(lambda: published == ["refused", "heard"])


def _until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


_SAY_AND_END = """
import django
django.setup()
import uuid
from accounts import hints
from redis.connection import Connection

slowly = Connection.connect
def connect(self):  # the thread is in the middle of it when the process ends
    import time
    time.sleep(0.3)
    return slowly(self)
Connection.connect = connect
hints.hint(uuid.UUID(int=7), "conversation_changed", conversation=uuid.UUID(int=8))
"""


@pytest.mark.django_db(transaction=True)
def test_a_process_that_ends_sends_what_it_has_said() -> None:
    """And ends: a thread frozen with a lock in its hands would keep it for ever."""
    with redis.Redis.from_url(settings.REDIS_URL, protocol=2) as client, client.pubsub() as heard:
        heard.subscribe(hints.channel_of(UUID(int=7)))
        heard.get_message(timeout=30)
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "chatproject.settings"}
        command = [sys.executable, "-c", _SAY_AND_END]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=100)
        message = heard.get_message(timeout=30)
    assert message is not None
    assert hints.decode(message["data"])[1]["kind"] == "conversation_changed"
