"""The verbs: everything that changes conversations and messages.

All are called inside the caller's transaction and write only the columns they are about, so that
two of them at once never undo each other. Rows that came from outside must have passed a door of
`conversations.access` before. What they change is hinted at after the commit, where they know whose
it is; otherwise the caller does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from accounts import sql
from accounts.errors import InvalidRequest
from accounts.hints import hint
from accounts.ids import new_id
from accounts.models import User
from accounts.sealing import KeyDestroyed
from conversations.content import TextPart, clean_text, plain_text, text_content
from conversations.models import KEPT_ACTIVITIES, Conversation, Feedback, Message
from conversations.sealed import readable_title, seal_parts, seal_reason, seal_title
from conversations.titles import InvalidTitle, checked_title, drawn_title


def create_conversation(
    owner: User,
    *,
    title: str = "",
    temporary_until: datetime | None = None,
    conversation_id: UUID | None = None,
) -> Conversation:
    """A new, empty conversation. Raises InvalidRequest (`title`) for a title that cannot be used.

    A temporary one is in no list and is gone for everybody at `temporary_until`.
    """
    row_id = conversation_id or new_id()
    conversation = Conversation(
        id=row_id,
        owner_id=owner.pk,
        title=seal_title(owner.pk, row_id, _checked(title) if title else ""),
        title_source="user" if title else "",
        temporary_until=temporary_until,
    )
    sql.insert(conversation)
    hint(owner.pk, "conversation_changed", conversation=row_id)
    return conversation


def rename(conversation: Conversation, title: str) -> None:
    """Give it a person's own title. Raises InvalidRequest (`title`)."""
    sealed = seal_title(conversation.owner_id, conversation.pk, _checked(title))
    Conversation.objects.filter(pk=conversation.pk).update(
        title=sealed, title_source="user", revision=F("revision") + 1
    )
    conversation.title, conversation.title_source = sealed, "user"
    hint(conversation.owner_id, "conversation_changed", conversation=conversation.pk)


def title_of(conversation: Conversation) -> str:
    """The title in clear; "" where there is none yet."""
    return readable_title(conversation.owner_id, conversation.pk, conversation.title)


def _checked(title: str) -> str:
    try:
        return checked_title(title)
    except InvalidTitle as refusal:
        raise InvalidRequest(str(refusal), param="title") from None


def add_user_message(
    conversation: Conversation,
    parent_id: UUID | None,
    parts: Sequence[TextPart],
    message_id: UUID | None = None,
) -> Message:
    """Insert a user's message; its parts have passed `checked_content`, its parent the door.

    The first message of a conversation without a title gives it a provisional one. The active
    leaf and the last activity stay as they are: see `set_active_leaf` and `touch`.
    """
    row_id = message_id or new_id()
    message = Message(
        id=row_id,
        owner_id=conversation.owner_id,
        conversation_id=conversation.pk,
        parent_id=parent_id,
        role="user",
        content=seal_parts(conversation.owner_id, row_id, parts),
    )
    sql.insert(message)
    if parent_id is None and not conversation.title_source:
        _draw_title(conversation, plain_text(parts))
    return message


def _draw_title(conversation: Conversation, text: str) -> None:
    title = drawn_title(text)
    if not title:
        return
    sealed = seal_title(conversation.owner_id, conversation.pk, title)
    if sql.rows(_DRAW_TITLE, {"conversation": conversation.pk, "title": sealed}):
        conversation.title, conversation.title_source = sealed, "first_message"


# Guarded: a person may have named it since the row was read.
_DRAW_TITLE = """
UPDATE conversations_conversation
SET title = %(title)s, title_source = 'first_message', revision = revision + 1
WHERE id = %(conversation)s AND title_source = ''
RETURNING 1
"""


# One statement, so that a parent which is being removed cannot vanish between look and insert: the
# foreign key is checked only at commit, where its failure would take the whole finish with it.
_ADD_REPLY = """
INSERT INTO conversations_message
    (id, owner_id, conversation_id, parent_id, role, content, token_count, created)
SELECT %(id)s, %(owner)s, parent.conversation_id, parent.id, 'assistant', %(content)s,
       %(token_count)s::integer, %(created)s
FROM conversations_message parent
WHERE parent.id = %(parent)s AND parent.conversation_id = %(conversation)s
FOR KEY SHARE
RETURNING id
"""


def add_reply(
    *,
    reply_id: UUID,
    conversation_id: UUID,
    owner_id: UUID,
    parent_id: UUID,
    text: str,
    token_count: int | None,
) -> bool:
    """Insert the assistant's message of an ended run. False, and no row, where the parent is gone.

    Never fails on what the model wrote: NUL and lone surrogates become U+FFFD (`clean_text`), and
    an empty text is a message without parts. An owner whose key was destroyed meanwhile gets a
    message without bytes: the run must end, and its text was to be lost.
    """
    try:
        content = seal_parts(owner_id, reply_id, text_content(clean_text(text)))
    except KeyDestroyed:
        content = b""
    values = {
        "id": reply_id,
        "owner": owner_id,
        "conversation": conversation_id,
        "parent": parent_id,
        "content": content,
        "token_count": token_count,
        "created": timezone.now(),
    }
    return bool(sql.rows(_ADD_REPLY, values))


_LOCK = """
SELECT purged_at FROM conversations_conversation WHERE id = %(conversation)s FOR NO KEY UPDATE
"""


def lock_for_reply(conversation_id: UUID) -> bool:
    """Lock the conversation for the end of a run; False where its text was purged.

    To be called before the reply is inserted: then a purge or a switch of versions either sees the
    reply, or is seen here. Without it a purge could miss a reply that is not committed yet, and a
    switch to the user's message could be missed by `touch_and_follow`.
    """
    found = sql.rows(_LOCK, {"conversation": conversation_id})
    return not found or found[0][0] is None


def set_active_leaf(conversation_id: UUID, leaf_id: UUID) -> None:
    """Show the thread that ends at `leaf_id`, whatever was shown."""
    Conversation.objects.filter(pk=conversation_id).update(
        active_leaf_id=leaf_id, revision=F("revision") + 1
    )


# The clock of the statement, not of the transaction: a send that waited for a lock is not older
# than the one it waited for. GREATEST, because clocks of two database servers may differ.
_TOUCH = f"""
UPDATE conversations_conversation
SET earlier_activity = (ARRAY[last_activity] || earlier_activity)[1:{KEPT_ACTIVITIES}],
    last_activity = GREATEST(last_activity, statement_timestamp()),
    revision = revision + 1,
    active_leaf_id = {{leaf}}
WHERE id = %(conversation)s
"""  # noqa: S608 — a constant of our own
_TOUCH_ONLY = _TOUCH.format(leaf="active_leaf_id")
_TOUCH_AND_SHOW = _TOUCH.format(leaf="%(leaf)s")
_TOUCH_AND_FOLLOW = (
    _TOUCH.format(
        leaf="CASE WHEN active_leaf_id = %(expected)s THEN %(leaf)s ELSE active_leaf_id END"
    )
    + "RETURNING active_leaf_id"
)


def touch(conversation_id: UUID) -> None:
    """Move the conversation to the top of its owner's list. Its last activity never goes back."""
    sql.run(_TOUCH_ONLY, {"conversation": conversation_id})


def touch_and_show(conversation_id: UUID, leaf_id: UUID) -> None:
    """`touch` and `set_active_leaf` in one."""
    sql.run(_TOUCH_AND_SHOW, {"conversation": conversation_id, "leaf": leaf_id})


def touch_and_follow(conversation_id: UUID, expected: UUID, new: UUID) -> UUID | None:
    """`touch`, and move the active leaf from `expected` to `new` where it is still there; what it
    is now.

    So a finish follows the reader who waits for it, and pulls nobody away from another version.
    """
    values = {"conversation": conversation_id, "expected": expected, "leaf": new}
    found = sql.rows(_TOUCH_AND_FOLLOW, values)
    return found[0][0] if found else None


def delete(conversation: Conversation) -> None:
    """Take it out of everybody's sight, at once. Its rows stay until the purge: see `restore`."""
    conversation.deleted_at = timezone.now()
    Conversation.objects.filter(pk=conversation.pk).update(
        deleted_at=conversation.deleted_at, revision=F("revision") + 1
    )
    hint(conversation.owner_id, "conversation_gone", conversation=conversation.pk)


def restore(conversation: Conversation) -> None:
    """Undo a delete; it came through `access_deleted_conversation`. Not deleted: no change."""
    Conversation.objects.filter(pk=conversation.pk, deleted_at__isnull=False).update(
        deleted_at=None, revision=F("revision") + 1
    )
    conversation.refresh_from_db(fields=["deleted_at", "revision"])
    hint(conversation.owner_id, "conversation_changed", conversation=conversation.pk)


def purge(conversation_id: UUID, deleted_before: datetime) -> bool:
    """Write the tombstones: no title, no text, no feedback is left. False where nothing was due.

    Looks again under the lock: it may have been restored, or purged, since it was found.
    """
    row = (
        purgeable(deleted_before)
        .filter(pk=conversation_id)
        .select_for_update(no_key=True)
        .only("id", "owner_id")
        .first()
    )
    if row is None:
        return False
    now = timezone.now()
    Feedback.objects.filter(message__conversation_id=conversation_id).delete()
    Message.objects.filter(conversation_id=conversation_id).update(content=b"", tombstoned_at=now)
    Conversation.objects.filter(pk=conversation_id).update(
        title=b"", title_source="", purged_at=now, revision=F("revision") + 1
    )
    hint(row.owner_id, "conversation_gone", conversation=conversation_id)
    return True


def purgeable(deleted_before: datetime) -> QuerySet[Conversation]:
    """Conversations whose text must go: deleted long enough ago, or temporary and expired."""
    return Conversation.objects.filter(
        Q(deleted_at__lt=deleted_before) | Q(temporary_until__lt=timezone.now()),
        purged_at__isnull=True,
    )


def change_conversation_of(user: User, message_id: UUID) -> None:
    """The page that shows the user's message changes; nothing happens where it is not theirs."""
    of_message = Message.objects.filter(pk=message_id, owner_id=user.pk).values("conversation_id")
    Conversation.objects.filter(pk__in=of_message).update(revision=F("revision") + 1)


def set_feedback(message: Message, user: User, rating: str, reason: str) -> Feedback:
    """Put this in place of what the user thought before. The message's row is locked (its door)."""
    now = timezone.now()
    row, _ = Feedback.objects.get_or_create(
        message_id=message.pk, user_id=user.pk, defaults={"rating": rating}
    )
    row.rating, row.reason, row.updated = rating, seal_reason(user.pk, row.pk, reason), now
    row.save(update_fields=["rating", "reason", "updated"])
    hint(user.pk, "conversation_changed", conversation=message.conversation_id)
    return row


def clear_feedback(message: Message, user: User) -> None:
    """Forget what the user thought of the message."""
    Feedback.objects.filter(message_id=message.pk, user_id=user.pk).delete()
    hint(user.pk, "conversation_changed", conversation=message.conversation_id)
