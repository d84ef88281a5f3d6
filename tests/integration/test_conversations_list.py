"""The list: newest activity first, each conversation once, whatever moves meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from accounts.errors import InvalidRequest
from accounts.models import User
from conversations.models import KEPT_ACTIVITIES, Conversation
from conversations.selectors import list_conversations
from conversations.services import create_conversation, rename, touch
from tests.integration.conversation_rows import make_conversations
from tests.people import make_person

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_person("owner").user


def walk(owner: User, limit: int, between: Callable[[list[UUID]], None]) -> list[UUID]:
    """The ids that all pages give, in order; `between` acts after each page."""
    seen: list[UUID] = []
    cursor: str | None = None
    while True:
        page = list_conversations(owner, cursor, limit)
        assert len(page.items) <= limit
        seen += [item.id for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return seen
        assert len(page.items) == limit
        between(seen)


def nothing(_seen: list[UUID]) -> None:
    """Nothing happens between two pages."""


@pytest.mark.parametrize("limit", [1, 7, 40, 100])
@pytest.mark.parametrize("per_moment", [1, 9, 40])
def test_pages_give_everything_once_in_order(owner: User, limit: int, per_moment: int) -> None:
    ids = make_conversations(owner, 40, per_moment=per_moment)
    assert walk(owner, limit, nothing) == ids


def test_there_is_no_next_page_after_a_full_last_one(owner: User) -> None:
    make_conversations(owner, 10)
    assert list_conversations(owner, None, 10).next_cursor is None
    assert list_conversations(make_person().user, None, 10).items == ()


@pytest.mark.parametrize("seed", range(6))
def test_each_is_seen_exactly_once_while_thirty_jump_to_the_top(owner: User, seed: int) -> None:
    """Seen and unseen ones jump, some of them again and again; new ones are made as well."""
    ids = make_conversations(owner, 100, per_moment=3)
    dice = random.Random(seed)
    jumping = dice.sample(ids, 30)
    premise: set[bool] = set()

    def jump(seen: list[UUID]) -> None:
        for one in dice.sample(jumping, 10):
            touch(one)
            premise.add(one in seen)
        create_conversation(owner)

    # Nine gaps of ten jumps: each of the thirty moves about three times.
    assert walk(owner, 10, jump) == ids
    assert premise == {True, False}


def test_all_unseen_ones_may_jump_at_once(owner: User) -> None:
    ids = make_conversations(owner, 31)

    def jump(seen: list[UUID]) -> None:
        for one in ids[1:] if len(seen) == 1 else []:
            touch(one)

    assert walk(owner, 1, jump) == ids


def test_a_conversation_that_moves_too_often_is_at_most_once(owner: User) -> None:
    """Its place is forgotten; it is at the top for the next walk, and never here twice."""
    ids = make_conversations(owner, 4)

    def jump(seen: list[UUID]) -> None:
        for _ in range(KEPT_ACTIVITIES + 1 if len(seen) == 2 else 0):
            touch(ids[0])
            touch(ids[3])

    assert walk(owner, 1, jump) == ids[:3]
    assert {item.id for item in list_conversations(owner, None, 2).items} == {ids[0], ids[3]}


def test_a_new_walk_shows_the_new_order(owner: User) -> None:
    ids = make_conversations(owner, 5)
    touch(ids[4])
    assert walk(owner, 2, nothing) == [ids[4], *ids[:4]]


def test_one_page_is_one_query_however_long_the_list(
    owner: User, django_assert_num_queries: Any
) -> None:
    make_conversations(owner, 60)
    with django_assert_num_queries(1):
        first = list_conversations(owner, None, 30)
    with django_assert_num_queries(1):
        list_conversations(owner, first.next_cursor, 30)


def test_deleted_temporary_and_foreign_ones_are_not_listed(owner: User) -> None:
    mine = create_conversation(owner)
    deleted = create_conversation(owner)
    Conversation.objects.filter(pk=deleted.pk).update(deleted_at=timezone.now())
    create_conversation(owner, temporary_until=timezone.now() + timedelta(hours=1))
    create_conversation(make_person().user)
    assert [item.id for item in list_conversations(owner, None, 10).items] == [mine.pk]


def test_one_deleted_during_the_walk_is_not_met(owner: User) -> None:
    ids = make_conversations(owner, 3)

    def delete(_seen: list[UUID]) -> None:
        touch(ids[2])
        Conversation.objects.filter(pk=ids[2]).update(deleted_at=timezone.now())

    assert walk(owner, 1, delete) == ids[:2]


def test_items_carry_what_the_list_shows(owner: User) -> None:
    row = create_conversation(owner, title="نص 👩‍👩‍👧‍👦")
    rename(row, "क्षत्रिय")
    item = list_conversations(owner, None, 1).items[0]
    assert (item.id, item.title, item.active_leaf_id) == (row.pk, "क्षत्रिय", None)
    assert item.last_activity == row.last_activity
    assert item.created == row.created


def test_a_cursor_of_another_owner_is_refused(owner: User) -> None:
    make_conversations(owner, 2)
    cursor = list_conversations(owner, None, 1).next_cursor
    assert cursor is not None
    with pytest.raises(InvalidRequest) as refusal:
        list_conversations(make_person().user, cursor, 1)
    assert refusal.value.param == "cursor"
