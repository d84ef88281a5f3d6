from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.content import (
    MAX_PARTS,
    InvalidContent,
    checked_content,
    clean_text,
    decode_parts,
    encode_parts,
    plain_text,
    text_content,
)

ANY_TEXT = st.text(st.characters(exclude_categories=[]))  # surrogates and NUL too
STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
EXACT = [
    "👩‍👩‍👧‍👦 ❤️ 🏴󠁧󠁢󠁷󠁬󠁳󠁿",
    "क्षत्रिय हिन्दी",
    "שלום, עולם — العربية \u202bRTL\u202c",
    "one\r\ntwo\rthree\nfour\u2028five\u0085six",
    "e\u0301 is not \u00e9",
    "data: {}\n\nevent: done\n\n",
    "\ufeff \u200b \x01 \x1b[31m \x7f \ufffe",
    " outer spaces stay ",
]


@pytest.mark.parametrize("text", EXACT)
def test_text_is_kept_to_the_byte(text: str) -> None:
    parts = checked_content(text, max_bytes=1_000)
    assert plain_text(decode_parts(encode_parts(parts))).encode() == text.encode()


@settings(deadline=None)
@given(st.lists(STORABLE, max_size=MAX_PARTS))
def test_parts_come_back_as_they_went(texts: list[str]) -> None:
    parts = [part for text in texts for part in text_content(text)]
    assert decode_parts(encode_parts(parts)) == parts


@settings(deadline=None)
@given(STORABLE.filter(str.strip))
def test_a_text_and_its_one_part_are_the_same(text: str) -> None:
    as_part = checked_content([{"type": "text", "text": text}], max_bytes=10_000)
    assert as_part == checked_content(text, max_bytes=10_000)


@settings(deadline=None)
@given(ANY_TEXT)
def test_cleaned_text_can_always_be_stored(text: str) -> None:
    cleaned = clean_text(text)
    assert b"\x00" not in cleaned.encode()
    assert len(cleaned) == len(text)


@settings(deadline=None)
@given(STORABLE)
def test_cleaning_leaves_good_text_alone(text: str) -> None:
    assert clean_text(text) == text


@settings(deadline=None)
@given(ANY_TEXT, ANY_TEXT)
def test_text_cleaned_in_pieces_equals_text_cleaned_whole(first: str, second: str) -> None:
    assert clean_text(first) + clean_text(second) == clean_text(first + second)


def test_nul_and_lone_surrogates_become_the_replacement_character() -> None:
    assert clean_text("a\x00b\ud83dc\ude00d") == "a\ufffdb\ufffdc\ufffdd"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ([], "empty"),
        ([{"type": "text", "text": ""}], "empty"),
        ("a\x00b", "NUL"),
        ("\ud83d", "surrogate"),
        ([{"type": "text", "text": "\ude00"}], "surrogate"),
        (None, "must be"),
        (7, "must be"),
        (True, "must be"),
        ({"type": "text", "text": "x"}, "must be"),
        (["x"], "Each part"),
        ([{"type": "image", "text": "x"}], "Each part"),
        ([{"type": "text"}], "nothing else"),
        ([{"type": "text", "text": 7}], "nothing else"),
        ([{"type": "text", "text": "x", "more": 1}], "nothing else"),
        ([{"type": "text", "text": "x"}] * (MAX_PARTS + 1), "parts are allowed"),
    ],
)
def test_bad_content_is_refused_with_the_reason(value: object, says: str) -> None:
    with pytest.raises(InvalidContent, match=says):
        checked_content(value, max_bytes=1_000)


def test_the_limit_counts_utf8_bytes_over_all_parts() -> None:
    parts = [{"type": "text", "text": "é" * 2}, {"type": "text", "text": "ab"}]
    assert checked_content(parts, max_bytes=6) == parts
    with pytest.raises(InvalidContent, match="6 bytes long; 5 are allowed"):
        checked_content(parts, max_bytes=5)
