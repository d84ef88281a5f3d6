"""The doors: the only ways to a conversation or a message from an id that came from outside.

A row that is someone else's, missing, deleted, expired, or named by something that is no id at all
is the same `NotFound`, after the same number of queries: no caller learns which it was.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from accounts import sql
from accounts.errors import NotFound
from accounts.ids import InvalidId, Prefix, parse_id
from accounts.models import User
from conversations.models import Conversation, Message

# Belongs to no row. A malformed id asks the database for it all the same, so that it costs what a
# well-formed id costs.
NOBODYS_ID = UUID(int=0)


def access_conversation(
    user: User, conversation_id: str | UUID, *, for_update: bool = False
) -> Conversation:
    """The user's own conversation. Raises NotFound. One query.

    `for_update` locks the row until the end of the caller's transaction; inserting messages and
    runs below it goes on meanwhile.
    """
    return conversation_later(user, conversation_id, for_update=for_update)()


def conversation_later(
    user: User, conversation_id: str | UUID, *, for_update: bool = False
) -> Callable[[], Conversation]:
    """`access_conversation` in a pipeline (accounts.sql): what it returns is the door."""
    statement = _OWN + (" FOR NO KEY UPDATE" if for_update else "")
    values = {"id": row_id("c", conversation_id), "owner": user.pk}
    asked = sql.later(statement.format(sql.columns(Conversation, "own")), values)

    def enter() -> Conversation:
        found = asked()
        if not found:
            raise NotFound
        return sql.instance(Conversation, found[0])

    return enter


_OWN = """
SELECT {} FROM conversations_conversation own
WHERE own.id = %(id)s AND own.owner_id = %(owner)s AND own.deleted_at IS NULL
  AND (own.temporary_until IS NULL OR own.temporary_until > statement_timestamp())
"""


def access_deleted_conversation(user: User, conversation_id: str | UUID) -> Conversation:
    """The user's own conversation, locked, though it may be deleted; never one that was purged.

    The only door that a delete does not shut: the one through which it is undone. One query.
    """
    rows = _own(user, conversation_id).filter(purged_at__isnull=True)
    conversation = rows.select_for_update(no_key=True).first()
    if conversation is None:
        raise NotFound
    return conversation


def _own(user: User, conversation_id: str | UUID) -> QuerySet[Conversation]:
    return Conversation.objects.filter(
        Q(temporary_until__isnull=True) | Q(temporary_until__gt=Now()),
        id=row_id("c", conversation_id),
        owner_id=user.pk,
    )


def access_message(user: User, conversation: Conversation, message_id: str | UUID) -> Message:
    """A message of this conversation, which came through its door. Raises NotFound. One query.

    Its content is not loaded: `selectors` read text, a door only lets in.
    """
    return message_later(user, conversation.pk, message_id)()


def message_later(
    user: User, conversation_id: UUID, message_id: str | UUID | None
) -> Callable[[], Message]:
    """`access_message` in a pipeline, behind the conversation's door; None: its active leaf."""
    wanted = None if message_id is None else row_id("m", message_id)
    values = {"id": wanted, "conversation": conversation_id, "owner": user.pk}
    asked = sql.later(_MESSAGE.format(sql.columns(Message, "own", but="content")), values)

    def enter() -> Message:
        found = asked()
        if not found:
            raise NotFound
        return sql.instance(Message, found[0], but="content")

    return enter


_MESSAGE = """
SELECT {} FROM conversations_message own
WHERE own.conversation_id = %(conversation)s AND own.owner_id = %(owner)s
  AND own.id = COALESCE(%(id)s::uuid, (
    SELECT shown.active_leaf_id FROM conversations_conversation shown
    WHERE shown.id = %(conversation)s
  ))
"""


def access_reply(user: User, message_id: str | UUID) -> Message:
    """A stored reply in any of the user's conversations, locked. Raises NotFound. One query.

    Its content is not loaded. The lock lets versions and replies be inserted below it.
    """
    message = (
        Message.objects.filter(
            Q(conversation__temporary_until__isnull=True)
            | Q(conversation__temporary_until__gt=Now()),
            id=row_id("m", message_id),
            owner_id=user.pk,
            role="assistant",
            tombstoned_at__isnull=True,
            conversation__owner_id=user.pk,
            conversation__deleted_at__isnull=True,
        )
        .select_for_update(no_key=True, of=("self",))
        .defer("content")
        .first()
    )
    if message is None:
        raise NotFound
    return message


def row_id(prefix: Prefix, given: str | UUID) -> UUID:
    """The id inside `given`; one that no row has where it is malformed."""
    if isinstance(given, UUID):
        return given
    try:
        return parse_id(prefix, given)
    except InvalidId:
        return NOBODYS_ID
