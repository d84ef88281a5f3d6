"""Titles and contents as they rest, through the one door of `accounts.sealing`.

The owner and the id of the row are bound in: bytes moved to another row cannot be opened there.

What can never be opened again (its owner's key was destroyed, or the bytes were changed) is told as
None by `readable_parts`, as "" by `readable_title`: one such row must not hide the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from accounts.sealing import KeyDestroyed, KeyLost, Unreadable, open_sealed, opener, seal
from conversations.content import TextPart, decode_parts, encode_parts

log = logging.getLogger(__name__)


def seal_title(owner_id: UUID, conversation_id: UUID, title: str) -> bytes:
    """A title as it is stored; no bytes for no title."""
    return seal("title", owner_id, conversation_id, title.encode()) if title else b""


def open_title(owner_id: UUID, conversation_id: UUID, sealed: bytes | memoryview) -> str:
    """The inverse of `seal_title`."""
    raw = bytes(sealed)
    return open_sealed("title", owner_id, conversation_id, raw).decode() if raw else ""


def title_reader(owner_id: UUID) -> Callable[[UUID, bytes | memoryview], str]:
    """`readable_title` for many conversations of one owner."""
    open_one = opener("title", owner_id)

    def read(conversation_id: UUID, sealed: bytes | memoryview) -> str:
        if not sealed:
            return ""
        try:
            return open_one(conversation_id, sealed).decode()
        except Unreadable as reason:
            _note(conversation_id, reason)
            return ""

    return read


def readable_title(owner_id: UUID, conversation_id: UUID, sealed: bytes | memoryview) -> str:
    """As `open_title`; "" for a title that cannot be read any more."""
    return title_reader(owner_id)(conversation_id, sealed)


def seal_parts(owner_id: UUID, message_id: UUID, parts: Sequence[TextPart]) -> bytes:
    """The parts of a message as they are stored."""
    return seal("content", owner_id, message_id, encode_parts(parts))


def open_parts(owner_id: UUID, message_id: UUID, sealed: bytes | memoryview) -> list[TextPart]:
    """The inverse of `seal_parts`; no parts for a tombstone."""
    raw = bytes(sealed)
    return decode_parts(open_sealed("content", owner_id, message_id, raw)) if raw else []


def parts_reader(owner_id: UUID) -> Callable[[UUID, bytes | memoryview], list[TextPart] | None]:
    """`readable_parts` for many messages of one owner."""
    open_one = opener("content", owner_id)

    def read(message_id: UUID, sealed: bytes | memoryview) -> list[TextPart] | None:
        try:
            return decode_parts(open_one(message_id, sealed)) if sealed else []
        except Unreadable as reason:
            _note(message_id, reason)
            return None

    return read


def readable_parts(
    owner_id: UUID, message_id: UUID, sealed: bytes | memoryview
) -> list[TextPart] | None:
    """As `open_parts`; None for a text that cannot be read any more."""
    return parts_reader(owner_id)(message_id, sealed)


def seal_reason(user_id: UUID, feedback_id: UUID, reason: str) -> bytes:
    """The reason of a feedback as it is stored; no bytes for no reason."""
    return seal("feedback", user_id, feedback_id, reason.encode()) if reason else b""


def open_reason(user_id: UUID, feedback_id: UUID, sealed: bytes | memoryview) -> str:
    """The inverse of `seal_reason`."""
    raw = bytes(sealed)
    return open_sealed("feedback", user_id, feedback_id, raw).decode() if raw else ""


def readable_reason(user_id: UUID, feedback_id: UUID, sealed: bytes | memoryview) -> str:
    """As `open_reason`; "" for a reason that cannot be read any more."""
    try:
        return open_reason(user_id, feedback_id, sealed)
    except Unreadable as why:
        _note(feedback_id, why)
        return ""


def _note(row_id: UUID, reason: Unreadable) -> None:
    """A missing key is told where it is looked up; changed bytes for each row."""
    if not isinstance(reason, (KeyDestroyed, KeyLost)):
        log.error("%s cannot be opened: %s", row_id, reason, extra={"action": "text_unreadable"})
