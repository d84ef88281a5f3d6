from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.titles import (
    ELLIPSIS,
    MAX_DRAWN_CHARS,
    MAX_TITLE_CHARS,
    InvalidTitle,
    checked_title,
    drawn_title,
)

ANY_TEXT = st.text(st.characters(exclude_categories=[]))


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("How do I bake bread?", "How do I bake bread?"),
        ("\n\n  How   do\tI bake?\nSecond line", "How do I bake?"),
        ("one\r\ntwo", "one"),
        ("", ""),
        (" \n\t\n ", ""),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 20, "word " * 10 + "word word…"[:9] + "…"),
        ("漢" * 100, "漢" * 59 + "…"),
        ("a\x00b", "a\ufffdb"),
    ],
)
def test_a_title_is_drawn_from_the_first_line(text: str, title: str) -> None:
    assert drawn_title(text) == title


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_drawn_title_is_short_single_lined_and_storable(text: str) -> None:
    title = drawn_title(text)
    assert len(title) <= MAX_DRAWN_CHARS
    assert title == " ".join(title.split())
    title.encode()


@settings(deadline=None)
@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=30))
def test_a_long_line_is_cut_between_words(words: list[str]) -> None:
    title = drawn_title(" ".join(words))
    kept = title.removesuffix(ELLIPSIS).split(" ")
    assert kept == words[: len(kept)]


def test_a_cut_leaves_no_dangling_joiner() -> None:
    text = "x" * 58 + "\u200d" + "y" * 10
    assert drawn_title(text) == "x" * 58 + ELLIPSIS


def test_a_given_title_is_kept_on_one_line() -> None:
    assert checked_title("  My\n trip \u200f שלום ") == "My trip \u200f שלום"
    assert checked_title("x" * MAX_TITLE_CHARS) == "x" * MAX_TITLE_CHARS


@pytest.mark.parametrize(
    ("title", "says"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("x" * (MAX_TITLE_CHARS + 1), "at most 200"),
        ("x" * 65_536, "at most 200"),
        ("a\x00", "NUL"),
        ("\ud800", "surrogate"),
    ],
)
def test_a_bad_title_is_refused_with_the_reason(title: str, says: str) -> None:
    with pytest.raises(InvalidTitle, match=says):
        checked_title(title)
