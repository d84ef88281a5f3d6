"""Titles and contents as they rest, through the one door of `accounts.sealing`.

The owner and the id of the row are bound in: bytes moved to another row cannot be opened there.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from accounts.sealing import open_sealed, seal
from conversations.content import TextPart, decode_parts, encode_parts


def seal_title(owner_id: UUID, conversation_id: UUID, title: str) -> bytes:
    """A title as it is stored; no bytes for no title."""
    return seal(owner_id, conversation_id, title.encode()) if title else b""


def open_title(owner_id: UUID, conversation_id: UUID, sealed: bytes | memoryview) -> str:
    """The inverse of `seal_title`."""
    raw = bytes(sealed)
    return open_sealed(owner_id, conversation_id, raw).decode() if raw else ""


def seal_parts(owner_id: UUID, message_id: UUID, parts: Sequence[TextPart]) -> bytes:
    """The parts of a message as they are stored."""
    return seal(owner_id, message_id, encode_parts(parts))


def open_parts(owner_id: UUID, message_id: UUID, sealed: bytes | memoryview) -> list[TextPart]:
    """The inverse of `seal_parts`; no parts for a tombstone."""
    raw = bytes(sealed)
    return decode_parts(open_sealed(owner_id, message_id, raw)) if raw else []


def seal_reason(user_id: UUID, feedback_id: UUID, reason: str) -> bytes:
    """The reason of a feedback as it is stored; no bytes for no reason."""
    return seal(user_id, feedback_id, reason.encode()) if reason else b""


def open_reason(user_id: UUID, feedback_id: UUID, sealed: bytes | memoryview) -> str:
    """The inverse of `seal_reason`."""
    raw = bytes(sealed)
    return open_sealed(user_id, feedback_id, raw).decode() if raw else ""
