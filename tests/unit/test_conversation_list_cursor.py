from __future__ import annotations

import base64
import hashlib
import struct
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.errors import InvalidRequest
from conversations.list_cursor import CURSOR_CHARS, EPOCH, Place, parse_place, write_place

OWNER = UUID(int=1)
PLACE = Place(
    at=datetime(2026, 11, 29, 12, 0, 0, 123_456, UTC),
    id=UUID(int=7),
    began=datetime(2026, 11, 29, 13, 0, 0, 654_321, UTC),
)
TIMES = st.datetimes(min_value=EPOCH.replace(tzinfo=None)).map(lambda t: t.replace(tzinfo=UTC))


def refused(cursor: str, owner: UUID = OWNER) -> bool:
    with pytest.raises(InvalidRequest) as refusal:
        parse_place(owner, cursor)
    return refusal.value.param == "cursor"


@settings(deadline=None)
@given(st.uuids(), TIMES, st.uuids(), TIMES)
def test_a_place_survives_to_the_microsecond(
    owner: UUID, at: datetime, row_id: UUID, began: datetime
) -> None:
    place = Place(at, row_id, began)
    cursor = write_place(owner, place)
    assert len(cursor) == CURSOR_CHARS
    assert parse_place(owner, cursor) == place


def test_a_cursor_of_another_owners_list_is_refused() -> None:
    assert refused(write_place(OWNER, PLACE), owner=UUID(int=2))


@settings(deadline=None)
@given(st.integers(0, CURSOR_CHARS - 1), st.sampled_from("AZaz09-_"))
def test_a_changed_character_is_refused(position: int, character: str) -> None:
    cursor = write_place(OWNER, PLACE)
    changed = cursor[:position] + character + cursor[position + 1 :]
    assert changed == cursor or refused(changed)


@settings(deadline=None)
@given(st.text(max_size=100) | st.text("AZaz09-_+/=", min_size=64, max_size=64))
def test_what_is_no_cursor_is_refused(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize("text", ["", "é" * 64, "A" * 63, "A" * 65, "A" * 100_000, "\x00" * 64])
def test_odd_lengths_and_alphabets_are_refused(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize(("form", "micros"), [(1, 2**64 - 1), (1, 2**60), (2, 0)])
def test_a_forged_cursor_with_a_right_check_is_refused_where_it_means_nothing(
    form: int, micros: int
) -> None:
    body = struct.pack(">B3xQQ16s", form, micros, micros, bytes(16))
    check = hashlib.blake2b(OWNER.bytes + body, digest_size=12).digest()
    assert refused(base64.urlsafe_b64encode(body + check).decode())
