"""Text that PostgreSQL, JSON and UTF-8 can hold, whatever the pieces it came in."""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

_UNSAFE = re.compile("[\x00\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HIGH_FIRST, _HIGH_LAST = "\ud800", "\udbff"


def clean_text(text: str) -> str:
    """`text` with surrogate pairs joined; NUL and lone surrogates become U+FFFD.

    PostgreSQL refuses NUL in text, and a lone surrogate cannot be written as UTF-8.
    """
    if not _UNSAFE.search(text):
        return text
    return _UNSAFE.sub(REPLACEMENT, _PAIR.sub(_join, text))


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


class PieceCleaner:
    """`clean_text` over a stream of pieces.

    A server that escapes non-ASCII as JSON may cut an emoji between its two surrogates; cleaned
    piece by piece, both halves would be lost for good. So a high surrogate at the end of a piece
    waits for the next one.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """What is certain so far; may be empty."""
        text = self._held + text
        self._held = ""
        if text and _HIGH_FIRST <= text[-1] <= _HIGH_LAST:
            self._held, text = text[-1], text[:-1]
        return clean_text(text)

    def end(self) -> str:
        """What is left at the end of the stream: nothing, or one U+FFFD."""
        held, self._held = self._held, ""
        return clean_text(held)
