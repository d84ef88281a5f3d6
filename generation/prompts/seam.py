"""Where one engine goes on with what another has written. Pure.

An engine gets the text so far as the beginning of its answer, and its template and tokenizer may
change the end of it: most templates strip white space there, and a model whose text ends in half a
line break writes the whole one again. So the white space at the end is kept back, and what the
engine then begins with is compared with it: nothing is written twice, and nothing is left out.
"""

from __future__ import annotations

from typing import Final

TAIL_CHARS_MAX: Final = 200
"""More white space than this at the end of a text is sent as it is."""


def split_tail(text: str) -> tuple[str, str]:
    """`text` as the engine gets it, and the white space at its end that is kept back."""
    kept = text.rstrip()
    if not kept or len(text) - len(kept) > TAIL_CHARS_MAX:
        return text, ""
    return kept, text[len(kept) :]


class Seam:
    """Takes from the engine's first pieces what stands in the text already.

    `tail` is the white space that was kept back; it has been shown. What the engine begins with is
    held until it shows something else, or ends: it is white space, and short.
    """

    def __init__(self, tail: str) -> None:
        self._tail = tail
        self._begun = ""
        self._open = bool(tail)

    def feed(self, text: str) -> str:
        """What of `text` is new."""
        if not self._open:
            return text
        self._begun += text
        if not self._begun.strip() and len(self._begun) <= TAIL_CHARS_MAX:
            return ""
        return self.end()

    def end(self) -> str:
        """What is still held, where nothing more comes."""
        if not self._open:
            return ""
        self._open = False
        begun, self._begun = self._begun, ""
        return begun[_overlap(self._tail, begun) :]


def _overlap(tail: str, begun: str) -> int:
    """How many characters at the beginning of `begun` stand at the end of `tail` already.

    An engine that writes less white space than there was means the same place: all of it goes.
    """
    space = begun[: len(begun) - len(begun.lstrip())]
    if tail.startswith(space):
        return len(space)
    longest = min(len(tail), len(space))
    return next((n for n in range(longest, 0, -1) if space.startswith(tail[-n:])), 0)
