"""Where an answer goes on: nothing is written twice, and nothing is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.prompts.seam import TAIL_CHARS_MAX, Seam, split_tail

SPACE = st.text(" \n\t", max_size=6)
WORDS = st.text("ab.é👍", min_size=1, max_size=8)
ANSWER = st.lists(st.one_of(SPACE, WORDS), max_size=12).map("".join)


def joined(tail: str, *pieces: str) -> str:
    """What is shown after the text that was there, over pieces as an engine gives them."""
    seam = Seam(tail)
    return "".join([*map(seam.feed, pieces), seam.end()])


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    at = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


@given(ANSWER)
def test_a_text_is_its_two_parts(text: str) -> None:
    kept, tail = split_tail(text)
    assert kept + tail == text
    assert not tail.strip()
    assert not tail or kept == kept.rstrip()


@given(ANSWER, st.integers(0, 100), st.lists(st.integers(0, 100), max_size=5))
def test_an_engine_that_goes_on_where_its_text_ends(answer: str, at: int, cuts: list[int]) -> None:
    """It knows nothing of what was kept back, and writes it again: the answer is as it was."""
    before = answer[: at % (len(answer) + 1)]
    kept, tail = split_tail(before)
    rest = answer[len(kept) :]
    assert before + joined(tail, *pieces_of(rest, cuts)) == answer


@given(ANSWER, st.integers(0, 100), st.lists(st.integers(0, 100), max_size=5))
def test_an_engine_that_kept_the_white_space(answer: str, at: int, cuts: list[int]) -> None:
    """It begins with the next word: nothing of that is lost."""
    at %= len(answer) + 1
    before, rest = answer[:at], answer[at:].lstrip()
    _, tail = split_tail(before)
    assert before + joined(tail, *pieces_of(rest, cuts)) == before + rest


@given(SPACE, WORDS, st.lists(st.integers(0, 100), max_size=5))
def test_no_word_is_ever_lost_and_none_comes_late(tail: str, word: str, cuts: list[int]) -> None:
    begun = " \n " + word
    shown = joined(tail, *pieces_of(begun, cuts))
    assert shown.strip() == word
    assert begun.endswith(shown)


@pytest.mark.parametrize(
    ("tail", "begun", "shown"),
    [
        ("\n\n", "\n\nNext", "Next"),
        (" ", " next", "next"),
        (" ", "next", "next"),
        ("\n", "\n\nNext", "\nNext"),
        (" \n", "\nNext", "Next"),
        ("\n\n", "\nNext", "Next"),
        ("", "\n\nNext", "\n\nNext"),
        ("\n", " next", " next"),
    ],
)
def test_the_seam(tail: str, begun: str, shown: str) -> None:
    assert joined(tail, begun) == shown
    assert joined(tail, *begun) == shown


def test_an_answer_that_ends_in_white_space_alone() -> None:
    assert joined("\n", "\n", "\n") == "\n"
    assert joined("\n") == ""


def test_white_space_without_end_is_not_held_for_ever() -> None:
    seam = Seam("\n")
    assert seam.feed(" " * (TAIL_CHARS_MAX + 1)) == " " * (TAIL_CHARS_MAX + 1)
    text = "a" + "\n" * (TAIL_CHARS_MAX + 1)
    assert split_tail(text) == (text, "")


def test_a_text_of_white_space_alone_is_sent_as_it_is() -> None:
    assert split_tail(" \n") == (" \n", "")
    assert split_tail("") == ("", "")
