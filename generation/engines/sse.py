"""Server-sent events from bytes, as engines write them.

Works on bytes and cuts at LF only: `str.splitlines` (and httpx's `aiter_lines`) also cut at U+2028,
U+0085 and others, which a model may write inside its answer. UTF-8 is decoded per whole line, so a
character split between network reads stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LINE_BYTES_MAX = 1024 * 1024


class LineTooLong(ValueError):
    """One line, or the data of one event, is longer than the limit."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """`data` has its lines joined by LF. `name` is empty unless the server gave one."""

    name: str
    data: str


class SseParser:
    """Feed it what comes from the network, in any cuts. Limit: `line_bytes_max` per event."""

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._buffer = bytearray()
        self._searched = 0
        self._name = ""
        self._data: list[str] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Events that are complete now. Raises `LineTooLong`. Must be consumed to its end."""
        self._buffer += chunk
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._searched))) >= 0:
            line = bytes(self._buffer[start:end])
            start = end + 1
            if event := self._line(line):
                yield event
        del self._buffer[:start]
        # Without this, a long line that comes byte by byte is searched again for every byte.
        self._searched = len(self._buffer)
        self._check(self._searched)

    def end(self) -> Iterator[SseEvent]:
        """At the end of the stream: an event whose blank line is missing. A cut line is dropped."""
        if event := self._line(b""):
            yield event

    def _line(self, line: bytes) -> SseEvent | None:
        line = line.removesuffix(b"\r")
        if not line:
            return self._dispatch()
        self._check(len(line))
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data_bytes += len(value)
            self._check(self._data_bytes)
            self._data.append(value.decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"error":
            # Older llama.cpp servers write `error: {...}` where a `data:` belongs.
            self._name = "error"
            self._data.append(value.decode("utf-8", "replace"))
        return None

    def _dispatch(self) -> SseEvent | None:
        if not self._data:
            self._name = ""
            return None
        event = SseEvent(self._name, "\n".join(self._data))
        self._name, self._data, self._data_bytes = "", [], 0
        return event

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._line_bytes_max:
            raise LineTooLong(f"more than {self._line_bytes_max} bytes in one event")
