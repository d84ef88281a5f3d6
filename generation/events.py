"""The events of a token log and their two outer forms: compact JSON and the SSE frame.

Pure: knows no Django, no Redis, no HTTP. The JSON of an event is encoded once, by whoever
writes the event; everything after that copies bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Final, NamedTuple

EVENT_NAMES: Final = ("start", "notice", "delta", "snapshot", "retract", "done", "error")
"""Every name an event of a token log can have."""

JUMP_NAMES: Final = frozenset({"snapshot", "retract", "done"})
"""The events a client may reach over missing seqs: they replace or end what it holds."""

EPOCH_SPAN: Final = 1_000_000
"""How many seqs one epoch may use: epoch n > 1 begins at (n - 1) * EPOCH_SPAN + 1."""

MAX_SEQ: Final = 10**15 - 1
"""The largest seq: 15 digits, below 2**53, so that Lua's numbers compare it exactly."""

# What some clients' line splitters (not the SSE standard) take for the end of a line. JSON leaves
# these three as they are; unescaped, such a client would cut the answer in the middle.
_LINE_BREAKS_JSON_KEEPS: Final = (("\x85", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
# One for all: json.dumps makes one for each call that is not by its defaults.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_RUN: Final = re.compile(r"g_[0-9a-f]{32}")
_CURSOR: Final = re.compile(r"(g_[0-9a-f]{32}):(0|[1-9][0-9]{0,14})")


class Event(NamedTuple):
    """One entry of a token log.

    `seq` counts from 1 within its run; `name` is one of EVENT_NAMES; `data` is JSON already
    encoded (UTF-8, without a line break), as encode_data gives it.
    """

    seq: int
    name: str
    data: bytes


def encode_data(payload: Mapping[str, object]) -> bytes:
    """`payload` as compact UTF-8 JSON on one line.

    Raises ValueError for what has no such form: a lone surrogate, NaN, an infinity, a value JSON
    does not know (the message never holds the text).
    """
    try:
        text = _ENCODER.encode(payload)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("the data of an event must be plain JSON") from None
    return _encoded(text)


def _encoded(text: str) -> bytes:
    for plain, escaped in _LINE_BREAKS_JSON_KEEPS:
        text = text.replace(plain, escaped)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("the data of an event holds a lone surrogate") from None


def encode_text(text: str) -> bytes:
    """encode_data({"text": text}), for what nearly every event holds. Same error."""
    return _encoded(f'{{"text":{encode_basestring(text)}}}')


def frame_prefix(run: str, seq: int, name: str) -> bytes:
    """What stands before the data in the SSE frame of an event."""
    return f"id: {run}:{seq}\nevent: {name}\ndata: ".encode("ascii")


def sse_frame(run: str, event: Event) -> bytes:
    """The SSE frame of an event: `id`, `event` and `data` lines and a blank line."""
    return frame_prefix(run, event.seq, event.name) + _one_line(event.data) + b"\n\n"


def frame_without_id(name: str, data: bytes) -> bytes:
    """An SSE frame that leaves the client's cursor where it is (queue positions, a late start)."""
    _check_name(name)
    return b"event: " + name.encode("ascii") + b"\ndata: " + _one_line(data) + b"\n\n"


def comment_frame() -> bytes:
    """The heartbeat of a silent stream: a comment line, which clients pass over."""
    return b":\n\n"


def retry_frame(ms: int) -> bytes:
    """Tells the client how many milliseconds to wait before it connects again."""
    if not 0 <= ms <= 3_600_000:
        raise ValueError("retry must be between 0 ms and an hour")
    return b"retry: %d\n\n" % ms


def parse_cursor(text: str) -> tuple[str, int]:
    """`"g_<32 hex>:<seq>"` as (run, seq). Raises ValueError for anything else."""
    match = _CURSOR.fullmatch(text) if len(text) <= 50 else None
    if match is None:
        raise ValueError("a cursor is <run>:<seq>")
    return match.group(1), int(match.group(2))


def check_run(run: str) -> str:
    """`run` itself where it is an external run id. Raises ValueError otherwise."""
    if _RUN.fullmatch(run) is None:
        raise ValueError("a run id is g_ and 32 hexadecimal digits")
    return run


def check_event(event: Event) -> Event:
    """`event` itself where its seq, its name and its data can stand in a log, else ValueError."""
    if not 1 <= event.seq <= MAX_SEQ:
        raise ValueError(f"a seq lies between 1 and {MAX_SEQ}")
    _check_name(event.name)
    _one_line(event.data)
    return event


def takeover_seq(epoch: int) -> int:
    """The seq of the `snapshot` with which the owner of an epoch above 1 begins."""
    if epoch < 2:
        raise ValueError("only an owner after the first one takes over")
    return (epoch - 1) * EPOCH_SPAN + 1


def _check_name(name: str) -> None:
    if name not in EVENT_NAMES:
        raise ValueError("unknown event name")


def _one_line(data: bytes) -> bytes:
    # A line break inside the data would end the frame early and let text forge the next one.
    if b"\n" in data or b"\r" in data:
        raise ValueError("the data of an event must be one line")
    return data
