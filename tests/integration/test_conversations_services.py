"""The verbs: what they write, what they leave alone, and who wins where two meet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import Queue
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from accounts.errors import InvalidRequest
from accounts.ids import new_id
from accounts.models import User
from accounts.sealing import open_sealed
from conversations.access import access_conversation
from conversations.content import text_content
from conversations.models import KEPT_ACTIVITIES, Conversation, Message
from conversations.selectors import message_text
from conversations.services import (
    add_reply,
    add_user_message,
    create_conversation,
    rename,
    set_active_leaf,
    title_of,
    touch,
    touch_and_follow,
    touch_and_show,
)
from tests.people import make_person

EXACT = [
    "👩‍👩‍👧‍👦 ❤️ 🏴󠁧󠁢󠁷󠁬󠁳󠁿",
    "क्षत्रिय",
    "שלום — العربية \u202bRTL\u202c",
    "one\r\ntwo\rthree\n",
    "data: {}\n\n",
]


@pytest.fixture
def owner(db: None) -> User:
    return make_person("owner").user


@pytest.fixture
def conversation(owner: User) -> Conversation:
    return create_conversation(owner)


def ask(conversation: Conversation, text: str = "Hello?") -> Message:
    return add_user_message(conversation, None, text_content(text))


def reply_to(message: Message, text: str) -> Message:
    reply_id = new_id()
    assert add_reply(
        reply_id=reply_id,
        conversation_id=message.conversation_id,
        owner_id=message.owner_id,
        parent_id=message.pk,
        text=text,
        token_count=3,
    )
    return Message.objects.get(pk=reply_id)


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", EXACT)
def test_text_rests_and_returns_to_the_byte(conversation: Conversation, text: str) -> None:
    question = ask(conversation, text)
    reply = reply_to(question, text)
    for message in (question, reply):
        assert message_text(conversation.pk, message.pk).encode() == text.encode()


def test_a_reply_is_a_child_of_its_question(conversation: Conversation) -> None:
    question = ask(conversation)
    reply = reply_to(question, "Yes.")
    assert reply.role == "assistant"
    assert reply.parent_id == question.pk
    assert reply.conversation_id == conversation.pk
    assert reply.owner_id == conversation.owner_id
    assert reply.token_count == 3
    assert abs(timezone.now() - reply.created) < timedelta(minutes=5)


def test_what_a_model_wrote_can_always_be_stored(conversation: Conversation) -> None:
    reply = reply_to(ask(conversation), "a\x00b\ud83dc")
    assert message_text(conversation.pk, reply.pk) == "a\ufffdb\ufffdc"


def test_an_empty_reply_has_no_parts(conversation: Conversation) -> None:
    reply = reply_to(ask(conversation), "")
    assert message_text(conversation.pk, reply.pk) == ""
    assert open_sealed("content", reply.owner_id, reply.pk, reply.content) == b"[]"


def test_a_reply_whose_question_is_gone_is_none_and_breaks_nothing(
    conversation: Conversation,
) -> None:
    added = add_reply(
        reply_id=new_id(),
        conversation_id=conversation.pk,
        owner_id=conversation.owner_id,
        parent_id=new_id(),
        text="late",
        token_count=1,
    )
    assert added is False
    assert not Message.objects.filter(conversation=conversation).exists()


# --- titles ---------------------------------------------------------------------------------------


def test_the_first_message_gives_a_provisional_title(conversation: Conversation) -> None:
    ask(conversation, "How do I bake bread?\nIn detail.")
    assert title_of(conversation) == "How do I bake bread?"
    stored = Conversation.objects.get(pk=conversation.pk)
    assert (title_of(stored), stored.title_source) == ("How do I bake bread?", "first_message")


def test_a_second_first_message_leaves_the_title(conversation: Conversation) -> None:
    ask(conversation, "One")
    ask(conversation, "Two")
    ask(Conversation.objects.get(pk=conversation.pk), "Three")
    assert title_of(Conversation.objects.get(pk=conversation.pk)) == "One"


def test_a_persons_title_is_not_replaced_even_by_a_stale_row(conversation: Conversation) -> None:
    stale = Conversation.objects.get(pk=conversation.pk)
    rename(conversation, "  My\ntrip ")
    ask(stale, "How do I bake bread?")
    stored = Conversation.objects.get(pk=conversation.pk)
    assert (title_of(stored), stored.title_source) == ("My trip", "user")


@pytest.mark.parametrize("title", ["", "  ", "x" * 201, "a\x00", "\ud800"])
def test_a_bad_title_is_refused_and_nothing_written(conversation: Conversation, title: str) -> None:
    rename(conversation, "Good")
    before = Conversation.objects.values().get(pk=conversation.pk)
    with pytest.raises(InvalidRequest) as refusal:
        rename(conversation, title)
    assert refusal.value.param == "title"
    assert Conversation.objects.values().get(pk=conversation.pk) == before


def test_a_title_is_not_readable_as_it_rests_in_another_row(owner: User) -> None:
    """The title column goes through the seal: format byte first, never bare text."""
    row = create_conversation(owner, title="Planted")
    stored = bytes(Conversation.objects.get(pk=row.pk).title)
    assert stored != b"Planted"
    assert bytes(create_conversation(owner).title) == b""


# --- leaf, activity, revision ---------------------------------------------------------------------


def test_the_leaf_moves_only_from_where_it_was_expected(conversation: Conversation) -> None:
    first, second, third = new_id(), new_id(), new_id()
    touch_and_show(conversation.pk, first)
    assert touch_and_follow(conversation.pk, expected=third, new=second) == first
    assert touch_and_follow(conversation.pk, expected=first, new=second) == second
    set_active_leaf(conversation.pk, third)
    conversation.refresh_from_db()
    assert conversation.active_leaf_id == third


def test_every_change_raises_the_revision(
    conversation: Conversation,
) -> None:
    seen = [0]

    def raised() -> bool:
        seen.append(Conversation.objects.get(pk=conversation.pk).revision)
        return seen[-1] > seen[-2]

    ask(conversation)  # draws the title
    assert raised()
    rename(conversation, "x")
    assert raised()
    set_active_leaf(conversation.pk, new_id())
    assert raised()
    touch(conversation.pk)
    assert raised()
    touch_and_show(conversation.pk, new_id())
    assert raised()
    touch_and_follow(conversation.pk, expected=new_id(), new=new_id())
    assert raised(), "the activity"


def test_last_activity_never_goes_back(conversation: Conversation) -> None:
    """A clock that was ahead wrote a time to come: touching keeps it."""
    ahead = timezone.now() + timedelta(days=1)
    Conversation.objects.filter(pk=conversation.pk).update(last_activity=ahead)
    touch(conversation.pk)
    conversation.refresh_from_db()
    assert conversation.last_activity == ahead


def test_touching_keeps_the_last_places_newest_first(conversation: Conversation) -> None:
    places = [conversation.last_activity]
    for _ in range(KEPT_ACTIVITIES + 2):
        touch(conversation.pk)
        conversation.refresh_from_db()
        places.insert(0, conversation.last_activity)
    assert places == sorted(places, reverse=True)
    assert conversation.earlier_activity == places[1 : KEPT_ACTIVITIES + 1]


# --- two at once ----------------------------------------------------------------------------------


def in_another_connection(action: Callable[[], object], told: Queue[object]) -> threading.Thread:
    """Start `action` in a thread; `told` gets its backend's pid first, then what it returned."""

    def body() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                told.put(cursor.fetchone()[0])
            told.put(action())
        finally:
            connections.close_all()

    thread = threading.Thread(target=body)
    thread.start()
    return thread


def is_blocked(pid: Any) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid])
        return bool(cursor.fetchone()[0])


def while_a_transaction_is_open(
    first: Callable[[], object], second: Callable[[], object]
) -> object:
    """What `second` returns in another connection, where it waits until `first` has committed."""
    told: Queue[object] = Queue()
    with transaction.atomic():
        first()
        thread = in_another_connection(second, told)
        pid = told.get(timeout=60)
        while not is_blocked(pid):
            assert thread.is_alive(), "the two did not meet"
    thread.join()
    return told.get_nowait()


@pytest.mark.django_db(transaction=True)
def test_of_two_that_move_the_leaf_at_once_the_later_loses() -> None:
    row = create_conversation(make_person().user)
    asked, winner, loser = new_id(), new_id(), new_id()
    set_active_leaf(row.pk, asked)
    seen = while_a_transaction_is_open(
        lambda: touch_and_follow(row.pk, expected=asked, new=winner),
        lambda: touch_and_follow(row.pk, expected=asked, new=loser),
    )
    assert seen == winner
    row.refresh_from_db()
    assert (row.active_leaf_id, row.revision) == (winner, 3)


@pytest.mark.django_db(transaction=True)
def test_two_touches_at_once_both_count_and_time_goes_on() -> None:
    row = create_conversation(make_person().user)
    while_a_transaction_is_open(lambda: touch(row.pk), lambda: touch(row.pk))
    after = Conversation.objects.get(pk=row.pk)
    assert after.revision == 2
    assert after.earlier_activity[-1] == row.last_activity
    assert after.last_activity >= after.earlier_activity[0] > row.last_activity


@pytest.mark.django_db(transaction=True)
def test_a_rename_and_a_drawn_title_at_once_leave_the_persons() -> None:
    row = create_conversation(make_person().user)
    stale = Conversation.objects.get(pk=row.pk)
    while_a_transaction_is_open(
        lambda: rename(row, "Mine"),
        lambda: add_user_message(stale, None, text_content("Drawn")),
    )
    assert title_of(Conversation.objects.get(pk=row.pk)) == "Mine"


@pytest.mark.django_db(transaction=True)
def test_a_reply_goes_in_while_a_send_holds_the_conversation() -> None:
    """A finish must not wait for a send of the same conversation before it inserts its reply."""
    row = create_conversation(make_person().user)
    question = ask(row)
    told: Queue[object] = Queue()
    with transaction.atomic():
        access_conversation(row.owner, row.pk, for_update=True)
        thread = in_another_connection(lambda: reply_to(question, "Yes.").parent_id, told)
        told.get(timeout=60)
        assert told.get(timeout=60) == question.pk
    thread.join()
