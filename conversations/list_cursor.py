"""The cursor of the conversation list: a place in one owner's list, opaque to clients. Pure.

64 characters of base64url: format, place and beginning of the walk as microseconds since 1970,
id, and a check over all of them and the owner. The check is no secret (a place gives away nothing
that its owner cannot read): it tells a cursor of another list, or a damaged one, from a good one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from accounts.errors import InvalidRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CURSOR_CHARS = 64
_BODY = struct.Struct(">B3xQQ16s")
_CHECK_BYTES = 12
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Place:
    """After the conversation `id`, which stood `at` this time when the walk `began`."""

    at: datetime
    id: UUID
    began: datetime


def write_place(owner_id: UUID, place: Place) -> str:
    """The place as a cursor of `CURSOR_CHARS` characters."""
    body = _BODY.pack(_FORMAT, _micros(place.at), _micros(place.began), place.id.bytes)
    return base64.urlsafe_b64encode(body + _check(owner_id, body)).decode()


def parse_place(owner_id: UUID, cursor: str) -> Place:
    """The inverse. Raises InvalidRequest (`cursor`) for anything this owner's list did not give."""
    raw = _decoded(cursor)
    body, check = raw[: _BODY.size], raw[_BODY.size :]
    if check != _check(owner_id, body):
        raise _refusal()
    try:
        form, at, began, row_id = _BODY.unpack(body)
        place = Place(at=_time(at), id=UUID(bytes=row_id), began=_time(began))
    except (struct.error, OverflowError):
        raise _refusal() from None
    if form != _FORMAT:
        raise _refusal()
    return place


def _decoded(cursor: str) -> bytes:
    if len(cursor) != CURSOR_CHARS or not cursor.isascii():
        raise _refusal()
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True)
    except binascii.Error:
        raise _refusal() from None


def _check(owner_id: UUID, body: bytes) -> bytes:
    return hashlib.blake2b(owner_id.bytes + body, digest_size=_CHECK_BYTES).digest()


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _time(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def _refusal() -> InvalidRequest:
    return InvalidRequest("This cursor is not from this list; begin without one.", param="cursor")
