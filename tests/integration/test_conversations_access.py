"""The doors: one answer for whatever is not yours, at one price."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.errors import NotFound
from accounts.ids import external_id, new_id
from conversations.access import access_conversation, access_message
from conversations.models import Conversation
from conversations.services import create_conversation
from tests.integration.conversation_rows import make_thread
from tests.people import People, make_people

pytestmark = pytest.mark.django_db

MALFORMED = [
    "",
    "c_",
    "new",
    "c_" + "0" * 31,
    "c_" + "0" * 33,
    "C_" + "0" * 32,
    "c_" + "A" * 32,
    "m_" + "0" * 32,
    "c_" + "0" * 32 + "\n",
    "c_" + "\u0660" * 32,  # Arabic zeros
    "c_\x00" + "0" * 31,
    "\ud800",
    "0" * 100_000,
    "00000000-0000-0000-0000-000000000001",
]


@pytest.fixture
def people() -> People:
    return make_people()


def hidden_conversation(kind: str, people: People) -> str:
    owner, past = people.owner.user, timezone.now() - timedelta(seconds=1)
    if kind == "missing":
        return external_id("c", new_id())
    if kind == "foreign":
        return external_id("c", create_conversation(people.other.user).pk)
    row = create_conversation(owner, temporary_until=past if kind == "expired" else None)
    if kind == "deleted":
        Conversation.objects.filter(pk=row.pk).update(deleted_at=past)
    return external_id("c", row.pk)


def refusal_of(action: Any) -> dict[str, dict[str, object]]:
    with pytest.raises(NotFound) as refusal:
        action()
    return refusal.value.as_dict()


def test_the_owner_comes_in_by_text_and_by_uuid(
    people: People, django_assert_num_queries: Any
) -> None:
    row = create_conversation(people.owner.user)
    with django_assert_num_queries(1):
        assert access_conversation(people.owner.user, external_id("c", row.pk)) == row
    with django_assert_num_queries(1):
        assert access_conversation(people.owner.user, row.pk, for_update=True) == row


def test_a_temporary_conversation_is_open_until_its_time(people: People) -> None:
    row = create_conversation(
        people.owner.user, temporary_until=timezone.now() + timedelta(hours=1)
    )
    assert access_conversation(people.owner.user, row.pk) == row


@pytest.mark.parametrize("kind", ["missing", "foreign", "deleted", "expired"])
@pytest.mark.parametrize("for_update", [False, True])
def test_what_is_not_yours_is_the_same_as_what_is_not_there(
    kind: str, for_update: bool, people: People, django_assert_num_queries: Any
) -> None:
    hidden = hidden_conversation(kind, people)
    with django_assert_num_queries(1):
        told = refusal_of(
            lambda: access_conversation(people.owner.user, hidden, for_update=for_update)
        )
    assert told == NotFound().as_dict()


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_id_is_the_same_too(
    text: str, people: People, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1):
        told = refusal_of(lambda: access_conversation(people.owner.user, text))
    assert told == NotFound().as_dict()


def test_the_foreign_conversation_of_this_table_is_open_to_its_owner(people: People) -> None:
    """Without this, a door that is shut for everybody would pass."""
    hidden = hidden_conversation("foreign", people)
    assert access_conversation(people.other.user, hidden).owner_id == people.other.user.pk


def test_a_message_is_reached_through_its_own_conversation(
    people: People, django_assert_num_queries: Any
) -> None:
    conversation, ids = make_thread(people.owner.user, 2)
    with django_assert_num_queries(1):
        found = access_message(people.owner.user, conversation, external_id("m", ids[1]))
    assert (found.pk, found.parent_id, found.role) == (ids[1], ids[0], "assistant")


@pytest.mark.parametrize("kind", ["missing", "foreign", "of another conversation", *MALFORMED])
def test_any_other_message_is_the_same_not_found(
    kind: str, people: People, django_assert_num_queries: Any
) -> None:
    conversation, _ = make_thread(people.owner.user, 2)
    message_id = {
        "missing": external_id("m", new_id()),
        "foreign": external_id("m", make_thread(people.other.user, 1)[1][0]),
        "of another conversation": external_id("m", make_thread(people.owner.user, 1)[1][0]),
    }.get(kind, kind)
    with django_assert_num_queries(1):
        told = refusal_of(lambda: access_message(people.owner.user, conversation, message_id))
    assert told == NotFound().as_dict()
