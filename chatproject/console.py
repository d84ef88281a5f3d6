"""What `make run` prints: lines with the name of the process that said them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
# A line longer than this is cut into several: one child must not fill our memory.
LINE_MAX_BYTES = 8192


class Console:
    """Prefixed lines, coloured on a terminal. `broken` once nobody reads any more."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._coloured = self._stream.isatty() and not os.environ.get("NO_COLOR")
        self._colours: dict[str, int] = {}
        self.broken = False

    def say(self, text: str, name: str = "hearth") -> None:
        for line in text.split("\n"):
            self._write(f"{self._prefix(name)} {_printable(line)}\n")

    def box(self, lines: Sequence[str]) -> None:
        """Lines in a frame, for what must not be overlooked."""
        shown = [_printable(line) for line in lines]
        width = max(map(len, shown))
        edge = "─" * (width + 2)
        body = "".join(f"│ {line:<{width}} │\n" for line in shown)
        self._write(f"\n┌{edge}┐\n{body}└{edge}┘\n\n")

    def _prefix(self, name: str) -> str:
        plain = f"{name:<9}│"
        if not self._coloured:
            return plain
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        return f"\x1b[{colour}m{plain}\x1b[0m"

    def _write(self, text: str) -> None:
        if self.broken:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            # A terminal may know ASCII only.
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError:  # the pipe's reader or the terminal has gone
            self._give_up()

    def _give_up(self) -> None:
        """Leave the stream alone, and what is in its buffer too: Python tries that again at its
        end, and an orderly stop would end with a status of its own (120).
        """
        self.broken = True
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def _printable(line: str) -> str:
    """Without control characters: what a child prints must not steer the terminal."""
    return "".join(c for c in line.expandtabs(4) if c.isprintable())


class LineCutter:
    """Cuts the bytes that one child prints into lines and shows them.

    Lines that `take` accepts are not shown.
    """

    def __init__(
        self, name: str, console: Console, take: Callable[[str], bool] | None = None
    ) -> None:
        self._name = name
        self._console = console
        self._take = take
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._show(line)
        while len(self._rest) > LINE_MAX_BYTES:
            self._show(self._rest[:LINE_MAX_BYTES])
            self._rest = self._rest[LINE_MAX_BYTES:]

    def close(self) -> None:
        if self._rest:
            self._show(self._rest)
            self._rest = b""

    def _show(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip("\r")
        if self._take is None or not self._take(line):
            self._console.say(line, self._name)
