"""Text from engines: nothing in it that PostgreSQL or UTF-8 cannot hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.engines.text import PieceCleaner, clean_text

units = st.lists(st.integers(0, 0xFFFF), max_size=40)


def as_utf16(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]


@settings(deadline=None)
@given(units, st.lists(st.integers(1, 5), max_size=60))
def test_pieces_give_what_the_whole_gives(units: list[int], sizes: list[int]) -> None:
    """A server that thinks in UTF-16 may cut anywhere between two units."""
    cleaner, out, at = PieceCleaner(), "", 0
    for size in [*sizes, len(units)]:
        out += cleaner.feed("".join(map(chr, units[at : at + size])))
        at += size
    out += cleaner.end()
    assert out == clean_text("".join(map(chr, units)))
    out.encode()
    assert "\x00" not in out


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
def test_good_text_is_not_touched(text: str) -> None:
    assert clean_text(text) == text
    halves = "".join(map(chr, as_utf16(text)))
    assert clean_text(halves) == text


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("a\x00b", "a\ufffdb"),
        ("\ud83d", "\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_nul_and_lone_halves_become_replacement_characters(dirty: str, clean: str) -> None:
    assert clean_text(dirty) == clean


def test_a_high_half_waits_for_the_next_piece() -> None:
    cleaner = PieceCleaner()
    assert [cleaner.feed("a\ud83d"), cleaner.feed("\ude00b"), cleaner.end()] == ["a", "😀b", ""]


def test_a_high_half_at_the_end_is_not_lost_silently() -> None:
    cleaner = PieceCleaner()
    assert [cleaner.feed("\ud83d"), cleaner.end(), cleaner.end()] == ["", "\ufffd", ""]
