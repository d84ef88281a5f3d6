"""Titles of conversations: checked when people give them, drawn from the first message otherwise.

Pure.
"""

from __future__ import annotations

from conversations.content import clean_text

MAX_TITLE_CHARS = 200
MAX_DRAWN_CHARS = 60
ELLIPSIS = "…"


class InvalidTitle(ValueError):
    """The title cannot be used; the message says why."""


def checked_title(title: str) -> str:
    """A title that a person gave, on one line and without outer spaces. Raises InvalidTitle."""
    if clean_text(title) != title:
        raise InvalidTitle("The title holds a NUL character or half of a surrogate pair.")
    if len(title) > MAX_TITLE_CHARS:
        raise InvalidTitle(f"A title has at most {MAX_TITLE_CHARS} characters.")
    one_line = " ".join(title.split())
    if not one_line:
        raise InvalidTitle("The title is empty.")
    return one_line


def drawn_title(text: str) -> str:
    """A readable title from the first line of a first message, cut at a word; "" from no words."""
    lines = (" ".join(line.split()) for line in clean_text(text).splitlines())
    line = next((line for line in lines if line), "")
    if len(line) <= MAX_DRAWN_CHARS:
        return line
    room = MAX_DRAWN_CHARS - len(ELLIPSIS)
    words, space, _ = line[: room + 1].rpartition(" ")
    # A single long word, or a script without spaces, is cut where the room ends.
    return (words if space else _whole_characters(line[:room])).rstrip() + ELLIPSIS


def _whole_characters(text: str) -> str:
    """`text` without a last character that was cut from its joiner or its marks."""
    return text.rstrip("\u200d\ufe0f")
