"""What one owner has written and Redis has not confirmed yet. Pure: no clock, no Redis.

Text and events are given in any number; they are numbered when a batch is made, so that text
given between two batches becomes one `delta`. A numbered event keeps its seq until it is
confirmed, or is given up for a `snapshot` at a higher seq: no seq ever names two things.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from generation.events import EPOCH_SPAN, Event, check_event, encode_text
from generation.token_log.errors import AnswerTooLong, LogClosed, LogFull
from generation.token_log.limits import (
    DELTA_CHARS,
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    MAX_EVENT_BYTES,
)

_EMPTY_TEXT_BYTES: Final = len(encode_text(""))
# What JSON takes as it is, byte for byte: nearly every piece, and a tenth of the work.
_IS_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*").fullmatch
_TEXT_NAMES: Final = frozenset({"delta", "snapshot"})

# Kept free at the end of an epoch's seqs for what must still be said there: the rest of the text
# (at most 1 MiB, 66 deltas), a snapshot, the error and `done`.
_RESERVED_SEQS: Final = 1_000


class RunBuffer:
    """The unconfirmed end of one run's log, and the whole text behind it.

    `seq` is the last seq given to an event, `confirmed_seq` the last one known to be in the log.
    `given` counts what was handed in and `flushed` how much of that is in the log. `sealed`: the
    text is complete; `ended`: so is the log, once `done` is confirmed.
    """

    def __init__(self, *, epoch: int, last_seq: int, text: str = "") -> None:
        self.seq = last_seq
        self.confirmed_seq = last_seq
        self.given = 0
        self.flushed = 0
        self.sealed = False
        self.ended = False
        self._numbered = 0
        self._last_usable_seq = max(epoch, 1) * EPOCH_SPAN
        self._pending: list[tuple[str, str | bytes]] = []
        self._queue: deque[Event] = deque()
        self._pieces = [text]
        self._text_bytes = _text_bytes(text)
        self._retraction: bytes | None = None
        self._wants_snapshot = False

    @property
    def whole_text(self) -> str:
        """The answer so far, confirmed or not; empty after a retract."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def retracted(self) -> bool:
        return self._retraction is not None

    @property
    def idle(self) -> bool:
        """Whether everything given is in the log."""
        return not (self._queue or self._pending or self._wants_snapshot)

    def add_text(self, text: str) -> None:
        """More of the answer. Raises AnswerTooLong, LogFull, LogClosed, or ValueError for text
        that has no UTF-8 form; then nothing was added.
        """
        self._check_open()
        if self.retracted:
            raise LogClosed("the answer was taken back")
        if not text:
            return
        self._check_room()
        text_bytes = self._text_bytes + _text_bytes(text)
        if text_bytes + _EMPTY_TEXT_BYTES > MAX_EVENT_BYTES:
            raise AnswerTooLong(f"an answer holds at most {MAX_EVENT_BYTES} bytes of JSON")
        self._text_bytes = text_bytes
        self._pieces.append(text)
        self._pending.append(("delta", text))
        self.given += 1

    def add_event(self, name: str, data: bytes) -> None:
        """An event that is not text: `notice`, `error` or `retract`. Same errors as add_text."""
        self._check_open()
        if name not in ("notice", "error", "retract"):
            raise ValueError(f"an owner does not write {name!r} as an event")
        if name == "notice":
            self._check_room()
        _check_data(name, data)
        if name == "retract":
            self._retract(data)
        self._pending.append((name, data))
        self.given += 1

    def begin_anew(self) -> None:
        """The answer is written from its beginning again: an empty `snapshot` drops its text."""
        self._check_open()
        self._pending = [item for item in self._pending if not isinstance(item[1], str)]
        self._pieces, self._text_bytes = [""], 0
        self._wants_snapshot = True
        self.given += 1

    def want_snapshot(self) -> None:
        """A reader needs the whole text; it replaces the text that is still pending."""
        if not self.sealed:
            self._wants_snapshot = True

    def next_events(self) -> Sequence[Event]:
        """What to append now: the same events again until they are confirmed or given up."""
        if not self._queue:
            self._number_pending()
        if not self._queue:
            self.flushed = self._numbered
        return tuple(_bounded(self._queue))

    def confirm(self, seq: int) -> None:
        """The log holds everything up to `seq`."""
        while self._queue and self._queue[0].seq <= seq:
            self._queue.popleft()
        self.confirmed_seq = max(self.confirmed_seq, seq)
        if not self._queue:
            self.flushed = self._numbered

    def spend(self, seq: int) -> None:
        """An event of that seq may be in the log, and none of ours may have it."""
        self.seq = max(self.seq, seq)

    def opened(self, last_seq: int) -> None:
        """The log is open for this owner and ends at `last_seq`."""
        self.seq = max(self.seq, last_seq)
        self.confirm(last_seq)

    def begin_again(self) -> Event:
        """The event to open a lost log with: the whole text so far, at a seq of its own.

        Unconfirmed text is in it, so only other events are kept to be appended after it. Nothing
        counts as confirmed before opened(). May be called again.
        """
        kept: list[tuple[str, str | bytes]] = [
            (event.name, event.data) for event in self._queue if event.name not in _TEXT_NAMES
        ]
        kept += [item for item in self._pending if item[0] not in _TEXT_NAMES]
        self._queue.clear()
        self._wants_snapshot = False
        self._pending = [item for item in kept if item[0] != "retract"]
        if not self._pending:
            self._numbered = self.given
        return self._numbered_event(*self._whole())

    def seal(self) -> int:
        """Ends the text: everything given is numbered now. Returns the seq that `done` will have.

        From now on only `done` can be added, unless unseal() is called.
        """
        self._number_pending()
        self.sealed = True
        return self.seq + 1

    def unseal(self) -> None:
        """The finish was not fixed after all: text and events can be added again."""
        self.sealed = False

    def add_done(self, data: bytes) -> None:
        """The last event, at the seq that seal() told."""
        if self.ended or not self.sealed:
            raise LogClosed("`done` comes once, after the text was sealed")
        _check_data("done", data)
        self.ended = True
        self._queue.append(self._numbered_event("done", data))
        self.given += 1
        self._numbered = self.given

    def give_up(self) -> None:
        """The log is gone for good: nothing waits for it any longer."""
        self._queue.clear()
        self._pending.clear()
        self._wants_snapshot = False
        self._numbered = self.flushed = self.given

    def _check_open(self) -> None:
        if self.sealed:
            raise LogClosed("the text of this run is complete")

    def _check_room(self) -> None:
        if self.seq + len(self._pending) >= self._last_usable_seq - _RESERVED_SEQS:
            raise LogFull("this epoch has no seqs left")

    def _retract(self, data: bytes) -> None:
        # What was taken back must not be sent any more, not even for a moment; a client may jump
        # over the seqs that fall out here, because `retract` replaces what it holds.
        self._retraction = data
        self._queue.clear()
        self._pending.clear()
        self._pieces, self._text_bytes = [""], 0

    def _whole(self) -> tuple[str, bytes]:
        if self._retraction is not None:
            return "retract", self._retraction
        return "snapshot", encode_text(self.whole_text)

    def _number_pending(self) -> None:
        items = list(self._items())
        self._pending.clear()
        self._wants_snapshot = False
        self._queue.extend(self._numbered_event(name, data) for name, data in items)
        self._numbered = self.given

    def _items(self) -> Iterator[tuple[str, bytes]]:
        if self._wants_snapshot:
            yield self._whole()
        text: list[str] = []
        for name, content in self._pending:
            if isinstance(content, str):
                text.append("" if self._wants_snapshot else content)
            else:
                yield from _deltas("".join(text))
                text.clear()
                yield name, content
        yield from _deltas("".join(text))

    def _numbered_event(self, name: str, data: bytes) -> Event:
        self.seq += 1
        return Event(self.seq, name, data)


def _bounded(queue: deque[Event]) -> Iterator[Event]:
    room_bytes = MAX_BATCH_BYTES
    for event in islice(queue, MAX_BATCH_EVENTS):
        room_bytes -= len(event.data)
        if room_bytes < 0:
            return
        yield event


def _deltas(text: str) -> Iterator[tuple[str, bytes]]:
    for at in range(0, len(text), DELTA_CHARS):
        yield "delta", encode_text(text[at : at + DELTA_CHARS])


def _text_bytes(text: str) -> int:
    """How much room it takes in JSON. Raises ValueError for text that has no UTF-8 form."""
    if _IS_PLAIN(text):
        return len(text)
    return len(encode_text(text)) - _EMPTY_TEXT_BYTES


def _check_data(name: str, data: bytes) -> None:
    check_event(Event(1, name, data))
    if len(data) > MAX_EVENT_BYTES:
        raise ValueError(f"the data of an event is at most {MAX_EVENT_BYTES} bytes")
