"""Pages of a thread, versions and paths, at a price that does not grow with the tree."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from accounts.errors import NotFound
from accounts.ids import new_id
from accounts.models import User
from conversations.models import Conversation
from conversations.selectors import (
    MessagesPage,
    message_text,
    messages_page,
    newest_leaf,
    path_messages,
    tree_nodes,
)
from conversations.services import create_conversation
from conversations.tree import Node, Versions, newest_leaf_below, path_to, versions
from tests.integration.conversation_rows import make_messages, make_thread
from tests.people import make_person

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_person("owner").user


def ids_of(page: MessagesPage) -> list[UUID]:
    return [message.id for message in page.messages]


def all_pages(conversation: Conversation, limit: int) -> list[MessagesPage]:
    pages = [messages_page(conversation, conversation.active_leaf_id, None, limit)]
    while pages[-1].before is not None:
        pages.append(
            messages_page(conversation, conversation.active_leaf_id, pages[-1].before, limit)
        )
    return pages


@pytest.mark.parametrize("limit", [1, 4, 10, 11])
def test_pages_from_the_leaf_up_join_to_the_whole_branch(owner: User, limit: int) -> None:
    conversation, ids = make_thread(owner, 10)
    pages = all_pages(conversation, limit)
    assert [one for page in reversed(pages) for one in ids_of(page)] == ids
    assert all(len(page.messages) == limit for page in pages[:-1])


def test_a_branch_five_thousand_deep_opens_from_its_leaf(
    owner: User, django_assert_num_queries: Any
) -> None:
    conversation, ids = make_thread(owner, 5_000)
    with django_assert_num_queries(2):
        page = messages_page(conversation, ids[-1], None, 100)
    assert ids_of(page) == ids[-100:]
    assert page.before == ids[-100]
    with django_assert_num_queries(2):
        middle = messages_page(conversation, ids[-1], ids[2_500], 100)
    assert ids_of(middle) == ids[2_400:2_500]
    assert [one.id for one in path_to(tree_nodes(conversation.pk), ids[-1])] == ids
    assert [one.id for one in path_messages(conversation.pk, ids[-1], 5_000)] == ids


def test_ten_thousand_versions_are_a_count_and_two_neighbours(
    owner: User, django_assert_num_queries: Any
) -> None:
    conversation, (question,) = make_thread(owner, 1)
    replies = [new_id() for _ in range(10_000)]
    make_messages(conversation, [(one, question, "assistant") for one in replies])
    with django_assert_num_queries(2):
        page = messages_page(conversation, replies[4_999], None, 100)
    assert ids_of(page) == [question, replies[4_999]]
    assert [one.versions for one in page.messages] == [
        Versions(1, 1),
        Versions(5_000, 10_000, replies[4_998], replies[5_000]),
    ]


def test_versions_from_the_database_are_those_of_the_pure_tree(owner: User) -> None:
    """Two first messages, edits and regenerations, live replies; seen from every leaf."""
    conversation = create_conversation(owner)
    ids = [new_id() for _ in range(12)]
    parents = [None, 0, 0, 1, 1, 3, 3, None, 7, 8, 7, 9]
    roles = ["user", "assistant", "assistant", "user", "user", "assistant", "assistant"]
    roles += ["user", "assistant", "user", "assistant", "assistant"]
    places = [
        (own, None if parent is None else ids[parent], role)
        for own, parent, role in zip(ids, parents, roles, strict=True)
    ]
    make_messages(conversation, places)
    # One live reply is new, one has been stored since the caller looked at the runs.
    live = [Node(new_id(), ids[3], "assistant"), Node(ids[6], ids[3], "assistant")]
    expected = versions([Node(*place) for place in places], live)
    for leaf in ids:
        page = messages_page(conversation, leaf, None, 100, live=live)
        assert {one.id: one.versions for one in page.messages} == {
            one.id: expected[one.id] for one in page.messages
        }
        assert page.live == {one.id: expected[one.id] for one in live}
    nodes = tree_nodes(conversation.pk)
    for one in ids:
        assert newest_leaf(conversation.pk, one) == newest_leaf_below(nodes, one)


def test_the_other_conversations_first_messages_are_no_versions(owner: User) -> None:
    conversation, ids = make_thread(owner, 1)
    make_thread(owner, 1)
    assert messages_page(conversation, ids[0], None, 1).messages[0].versions == Versions(1, 1)


def test_an_empty_conversation_is_an_empty_page(
    owner: User, django_assert_num_queries: Any
) -> None:
    conversation = create_conversation(owner)
    with django_assert_num_queries(0):
        assert messages_page(conversation, None, None, 100) == MessagesPage()


def test_nothing_stands_above_the_root(owner: User) -> None:
    conversation, ids = make_thread(owner, 2)
    page = messages_page(conversation, ids[1], ids[0], 100)
    assert (page.messages, page.before) == ((), None)


@pytest.mark.parametrize("which", ["leaf", "before"])
def test_a_message_of_another_conversation_is_not_found(owner: User, which: str) -> None:
    conversation, ids = make_thread(owner, 2)
    _, others = make_thread(owner, 2)
    leaf, before = (others[1], None) if which == "leaf" else (ids[1], others[1])
    with pytest.raises(NotFound):
        messages_page(conversation, leaf, before, 100)
    with pytest.raises(NotFound):
        path_messages(conversation.pk, others[1], 100)
    with pytest.raises(NotFound):
        newest_leaf(conversation.pk, others[1])


def test_a_path_for_a_prompt_is_the_newest_part_oldest_first(
    owner: User, django_assert_num_queries: Any
) -> None:
    conversation, ids = make_thread(owner, 6)
    with django_assert_num_queries(1):
        path = path_messages(conversation.pk, ids[4], 3)
    assert [(one.id, one.text, one.role) for one in path] == [
        (ids[2], ids[2].hex, "user"),
        (ids[3], ids[3].hex, "assistant"),
        (ids[4], ids[4].hex, "user"),
    ]
    assert message_text(conversation.pk, ids[5]) == ids[5].hex
