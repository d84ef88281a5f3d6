"""The format of sealed text, and the ring of master keys: pure, no database."""

from __future__ import annotations

import base64
import uuid
from itertools import permutations
from pathlib import Path
from typing import get_args

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from accounts.key_ring import (
    InvalidKeyRing,
    UnknownMasterKey,
    Wrapped,
    WrongMasterKey,
    new_entry,
    parse_ring,
)
from accounts.sealing import Column, Unreadable, open_sealed, open_with, seal_with
from chatproject.run_support import master_keys

KEY = AESGCM(bytes(range(32)))
OWNER, ROW, OTHER = (uuid.UUID(int=number) for number in (1, 2, 3))
COLUMNS: tuple[Column, ...] = get_args(Column)


class TestFormat:
    @given(plain=st.binary(max_size=4096), column=st.sampled_from(COLUMNS))
    def test_what_comes_out_is_what_went_in(self, plain: bytes, column: Column) -> None:
        sealed = seal_with(KEY, column, OWNER, ROW, plain)
        assert open_with(KEY, column, OWNER, ROW, sealed) == plain

    def test_a_long_text_is_smaller_and_comes_back_whole(self) -> None:
        plain = "Wie bäckt man Brot? ".encode() * 50_000
        sealed = seal_with(KEY, "content", OWNER, ROW, plain)
        assert len(sealed) < len(plain) / 100
        assert open_with(KEY, "content", OWNER, ROW, sealed) == plain

    @given(plain=st.binary(max_size=200), data=st.data())
    def test_any_flipped_bit_is_noticed(self, plain: bytes, data: st.DataObject) -> None:
        sealed = bytearray(seal_with(KEY, "content", OWNER, ROW, plain))
        bit = data.draw(st.integers(8, len(sealed) * 8 - 1))  # the format byte: see below
        sealed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Unreadable):
            open_with(KEY, "content", OWNER, ROW, bytes(sealed))

    @given(plain=st.binary(max_size=200), cut=st.integers(0, 60))
    def test_a_cut_text_is_noticed(self, plain: bytes, cut: int) -> None:
        sealed = seal_with(KEY, "content", OWNER, ROW, plain)
        with pytest.raises(Unreadable):
            open_with(KEY, "content", OWNER, ROW, sealed[: min(cut, len(sealed) - 1)])

    def test_another_place_cannot_open_it(self) -> None:
        places = [(OWNER, ROW), (OTHER, ROW), (OWNER, OTHER), (ROW, OWNER)]
        for sealed_in, opened_in in permutations(places, 2):
            sealed = seal_with(KEY, "content", *sealed_in, b"text")
            with pytest.raises(Unreadable):
                open_with(KEY, "content", *opened_in, sealed)

    def test_another_column_cannot_open_it(self) -> None:
        assert len(COLUMNS) > 1
        for sealed_in, opened_in in permutations(COLUMNS, 2):
            sealed = seal_with(KEY, sealed_in, OWNER, ROW, b"text")
            with pytest.raises(Unreadable):
                open_with(KEY, opened_in, OWNER, ROW, sealed)

    def test_another_key_cannot_open_it(self) -> None:
        sealed = seal_with(KEY, "content", OWNER, ROW, b"text")
        with pytest.raises(Unreadable):
            open_with(AESGCM(bytes(32)), "content", OWNER, ROW, sealed)

    def test_the_same_text_is_never_sealed_to_the_same_bytes(self) -> None:
        assert len({seal_with(KEY, "title", OWNER, ROW, b"text") for _ in range(100)}) == 100

    @pytest.mark.parametrize("raw", [b"", b"\x02rest", b"\xff", b"plain text"])
    def test_an_unknown_format_is_refused(self, raw: bytes) -> None:
        with pytest.raises(Unreadable):
            open_sealed("content", OWNER, ROW, raw)

    @given(plain=st.binary(max_size=200))
    def test_what_the_first_version_wrote_is_still_read(self, plain: bytes) -> None:
        assert open_sealed("content", OWNER, ROW, memoryview(b"\x00" + plain)) == plain

    def test_bytes_are_stored_like_this_for_ever(self) -> None:
        """A row from 2026: if this fails, texts that people have stored cannot be opened."""
        stored = base64.b64decode(STORED)
        assert open_with(KEY, "content", OWNER, ROW, stored) == "Grüße aus 2026".encode()


STORED = "AX4Jd0kDmjVJrTnUBdosBd0Y4m/39hUd0RKhG1aF8CYB7OKQgxOCJV/djQilTAHKz0yXolJU"


def entry(key_id: str, first: int = 0) -> str:
    return f"{key_id}:{base64.b64encode(bytes(range(first, first + 32))).decode()}"


class TestKeyRing:
    def test_the_first_wraps_and_all_unwrap(self) -> None:
        old, both = parse_ring(entry("old")), parse_ring(f"{entry('new', 9)}, {entry('old')}\n")
        wrapped = old.wrap(OWNER, b"k" * 32)
        assert (wrapped.master_key_id, both.current, both.ids) == ("old", "new", ("new", "old"))
        assert both.unwrap(OWNER, wrapped) == b"k" * 32
        assert both.unwrap(OWNER, both.wrap(OWNER, b"k" * 32)) == b"k" * 32
        with pytest.raises(UnknownMasterKey):
            old.unwrap(OWNER, both.wrap(OWNER, b"k" * 32))

    def test_another_key_of_the_same_id_is_told(self) -> None:
        wrapped = parse_ring(entry("k1")).wrap(OWNER, b"k" * 32)
        with pytest.raises(WrongMasterKey, match="k1"):
            parse_ring(entry("k1", 9)).unwrap(OWNER, wrapped)

    def test_a_wrapped_key_is_its_owners(self) -> None:
        ring = parse_ring(entry("k1"))
        with pytest.raises(WrongMasterKey):
            ring.unwrap(OTHER, ring.wrap(OWNER, b"k" * 32))

    @given(sealed=st.binary(max_size=80))
    def test_changed_bytes_are_refused(self, sealed: bytes) -> None:
        with pytest.raises(WrongMasterKey):
            parse_ring(entry("k1")).unwrap(OWNER, Wrapped("k1", sealed))

    def test_both_alphabets_of_base64_are_read(self) -> None:
        key = bytes(range(220, 252))
        texts = [base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()]
        assert texts[0] != texts[1]
        wrapped = parse_ring(f"a:{texts[0]}").wrap(OWNER, b"k" * 32)
        assert parse_ring(f"a:{texts[1]}").unwrap(OWNER, wrapped) == b"k" * 32

    def test_a_new_entry_is_usable(self) -> None:
        assert parse_ring(new_entry("k2")).current == "k2"
        assert new_entry("k2") != new_entry("k2")

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("", "empty"),
            (" , ", "empty"),
            ("c2VjcmV0c2VjcmV0", "Entry 1"),
            (f"{entry('a')},b", "Entry 2"),
            ("a b:c2VjcmV0", "Entry 1"),
            ("a:c2VjcmV0", "6 bytes"),
            ("a:***", "not base64"),
            ("a:" + base64.b64encode(bytes(32)).decode(), "not random"),
            (f"{entry('a')},{entry('a', 9)}", "two keys"),
            (",".join(entry(f"k{number}") for number in range(17)), "more than 16"),
        ],
    )
    def test_a_ring_that_cannot_be_used_is_explained_without_its_keys(
        self, text: str, told: str
    ) -> None:
        with pytest.raises(InvalidKeyRing, match=told) as raised:
            parse_ring(text)
        assert "c2VjcmV0" not in str(raised.value)

    def test_make_run_makes_a_master_key_once_and_keeps_it_private(self, tmp_path: Path) -> None:
        made = master_keys(tmp_path)
        assert parse_ring(made).current == "k1"
        assert master_keys(tmp_path) == made
        assert (tmp_path / "master-keys").stat().st_mode & 0o777 == 0o600

    def test_a_ring_is_shown_without_its_keys(self) -> None:
        assert repr(parse_ring(entry("k1"))) == "KeyRing(current='k1')"
