"""Rows for the tests of conversations, written in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from accounts.ids import new_id
from accounts.models import User
from conversations.content import text_content
from conversations.models import Conversation, Message
from conversations.sealed import seal_parts
from conversations.services import create_conversation

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def make_conversations(owner: User, count: int, *, per_moment: int = 1) -> list[UUID]:
    """Ids in the order of the list; `per_moment` of them share each last activity."""
    rows = [
        Conversation(owner=owner, last_activity=LONG_AGO + timedelta(seconds=number // per_moment))
        for number in range(count)
    ]
    Conversation.objects.bulk_create(rows)
    rows.sort(key=lambda row: (row.last_activity, row.pk), reverse=True)
    return [row.pk for row in rows]


def make_messages(
    conversation: Conversation, places: Sequence[tuple[UUID, UUID | None, str]]
) -> None:
    """Messages at (id, parent, role), each with its own id as text."""
    Message.objects.bulk_create(
        Message(
            id=row_id,
            owner_id=conversation.owner_id,
            conversation=conversation,
            parent_id=parent_id,
            role=role,
            content=seal_parts(conversation.owner_id, row_id, text_content(row_id.hex)),
        )
        for row_id, parent_id, role in places
    )


def make_thread(owner: User, length: int) -> tuple[Conversation, list[UUID]]:
    """A conversation of one branch with its leaf active, and its ids from the root down."""
    conversation = create_conversation(owner)
    ids = [new_id() for _ in range(length)]
    roles = ["user" if number % 2 == 0 else "assistant" for number in range(length)]
    make_messages(conversation, list(zip(ids, [None, *ids], roles, strict=False)))
    conversation.active_leaf_id = ids[-1]
    conversation.save(update_fields=["active_leaf_id"])
    return conversation, ids
