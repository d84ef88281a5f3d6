"""How a reader follows a run: what to pass on, what to drop, when to look into the log. Pure.

A gateway keeps a Follower (one cursor) per client; a new owner uses assemble() to get the text so
far out of the log it takes over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from generation.events import Event

# What a client may be given over a hole in what was pushed, because it replaces all the client
# has. `done` is not among them: the pieces before it may only have been lost on the way, and are
# still in the log.
_REPLACES = frozenset({"snapshot", "retract"})


class Step(Enum):
    """What to do with a pushed event."""

    PASS = auto()  # give it to the client
    DROP = auto()  # the client has it
    READ = auto()  # something is missing before it: read the log after the cursor


class Follower:
    """The cursor of one client in one run: the last seq it has been given."""

    __slots__ = ("cursor", "ended")

    def __init__(self, cursor: int = 0) -> None:
        self.cursor = cursor
        self.ended = False

    def pushed(self, seq: int, name: str) -> Step:
        """What to do with an event that was pushed; PASS moves the cursor."""
        if seq <= self.cursor:
            return Step.DROP
        if seq > self.cursor + 1 and name not in _REPLACES:
            return Step.READ
        self._move(seq, name)
        return Step.PASS

    def pushed_row(self, first_seq: int, last_seq: int, last_name: str) -> bool:
        """Whether events that were pushed, their seqs rising by one, go on from the cursor as they
        are; then it moves over all of them. Otherwise ask for each."""
        if first_seq != self.cursor + 1:
            return False
        self._move(last_seq, last_name)
        return True

    def read(self, seq: int, name: str) -> bool:
        """Whether to pass on an event read from the log: all after the cursor are."""
        if seq <= self.cursor:
            return False
        self._move(seq, name)
        return True

    def lags(self, told_seq: int) -> bool:
        """Whether a told seq says that the log holds more than the client has been given."""
        return told_seq > self.cursor and not self.ended

    def _move(self, seq: int, name: str) -> None:
        self.cursor = seq
        self.ended = name == "done"


@dataclass(frozen=True, slots=True)
class Assembled:
    """The answer as the events give it: `text`, the last seq seen, and whether nothing is missing.

    `retracted`: the answer was taken back, and `text` is empty. `whole=False`: the log begins in
    the middle or has a hole; `text` must not be continued from.
    """

    text: str
    last_seq: int
    whole: bool
    retracted: bool = False
    ended: bool = False


def assemble(
    events: Iterable[Event], *, text: str = "", after: int = 0, whole: bool = True
) -> Assembled:
    """What a client that held `text` at cursor `after` holds once it has read `events`. `whole`:
    whether nothing was missing before."""
    pieces = [text]
    retracted, ended = False, False
    for event in events:
        if event.seq <= after:
            continue
        if event.name in _REPLACES:
            retracted = event.name == "retract"
            pieces, whole = ["" if retracted else event_text(event)], True
        elif event.seq != after + 1 and event.name != "done":
            whole = False
        if event.name == "delta":
            pieces.append(event_text(event))
        after, ended = event.seq, event.name == "done"
    return Assembled("".join(pieces), after, whole, retracted, ended)


def event_text(event: Event) -> str:
    """The text of a `delta` or a `snapshot`."""
    return str(json.loads(event.data)["text"])
