"""The payload a worker publishes to a gateway: binary framing around ready-made SSE frames.

A gateway learns runs, seqs, names and frames from fixed-size fields and copies bytes; it parses no
JSON. Layout, numbers big-endian:

    payload  b"P1" then entries
    entry    run   34 bytes, ASCII ("g_" and 32 hex)
             told  8   the last seq in the run's log: ahead of what a client has → read the log
             count 2   how many events follow
             bytes 4   how long their frames are together
             table count x (seq 8, name 1 as an index into EVENT_NAMES, prefix 1, frame 4)
             body  the frames, one after the other

`prefix` is how many bytes of a frame stand before its data, so that data = frame[prefix:-2].
A client whose cursor is `events[0].seq - 1` can be given `body` as it is.

The owner's channel carries one more payload: b"S1" and a run id, the request to stop that run.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from generation.events import EVENT_NAMES, Event, check_run, frame_prefix
from generation.token_log.limits import MAX_PUSH_BYTES

_MAGIC: Final = b"P1"
_STOP: Final = b"S1"
_HEAD: Final = struct.Struct(">34sQHI")
_ROW: Final = struct.Struct(">QBBI")
_NAME_INDEX: Final = {name: index for index, name in enumerate(EVENT_NAMES)}
_NAMES: Final = len(EVENT_NAMES)
_MAX_COUNT: Final = 65_535


@dataclass(frozen=True, slots=True)
class PushedEvent:
    """One event as it goes to clients. `frame` is its SSE frame, `data` the JSON inside it."""

    seq: int
    name: str
    frame: bytes
    prefix_bytes: int

    @property
    def data(self) -> bytes:
        return self.frame[self.prefix_bytes : -2]


class PushedRun(NamedTuple):
    """What is new in one run. `told_seq` is the end of its log; `body` all frames joined.

    `length`: how many events. They are taken apart only where somebody looks: nearly every client
    can be given `body` as it is. `in_row`: their seqs rise by one.
    """

    run: str
    told_seq: int
    length: int
    first_seq: int
    last_seq: int
    last_name: str
    in_row: bool
    table: bytes
    body: bytes

    @property
    def events(self) -> tuple[PushedEvent, ...]:
        events: list[PushedEvent] = []
        at = 0
        for seq, name, prefix_bytes, frame_bytes in _ROW.iter_unpack(self.table):
            frame = self.body[at : at + frame_bytes]
            events.append(PushedEvent(seq, EVENT_NAMES[name], frame, prefix_bytes))
            at += frame_bytes
        return tuple(events)


Entry = tuple[str, int, Sequence[Event]]


def encode_push(entries: Iterable[Entry]) -> list[bytes]:
    """The payloads that carry `entries` (run, told seq, events), each at most MAX_PUSH_BYTES.

    An event too large to be pushed is left out, with those after it in its entry: the told seq
    sends the gateway to the log.
    """
    return pack_entries(encode_entry(*entry) for entry in entries)


def encode_entry(run: str, told_seq: int, events: Sequence[Event]) -> bytes:
    """One run's entry, which can be packed for several gateways."""
    table, frames = bytearray(), list[bytes]()
    room = MAX_PUSH_BYTES - len(_MAGIC) - _HEAD.size
    for event in events[:_MAX_COUNT]:
        prefix = frame_prefix(run, event.seq, event.name)
        frame_bytes = len(prefix) + len(event.data) + 2
        room -= _ROW.size + frame_bytes
        if room < 0:
            break
        table += _ROW.pack(event.seq, _NAME_INDEX[event.name], len(prefix), frame_bytes)
        frames += (prefix, event.data, b"\n\n")
    body = b"".join(frames)
    head = _HEAD.pack(_run_bytes(run), told_seq, len(table) // _ROW.size, len(body))
    return b"".join((head, table, body))


# The same runs again and again: those of a worker here, those that a web process watches below.
@lru_cache(maxsize=4_096)
def _run_bytes(run: str) -> bytes:
    return check_run(run).encode("ascii")


@lru_cache(maxsize=16_384)
def _run_of(name: bytes) -> str:
    return check_run(name.decode("ascii"))


def pack_entries(entries: Iterable[bytes]) -> list[bytes]:
    """Entries put together into as few payloads as MAX_PUSH_BYTES allows, in their order."""
    payloads: list[bytes] = []
    packed: list[bytes] = [_MAGIC]
    size = len(_MAGIC)
    for entry in entries:
        if size + len(entry) > MAX_PUSH_BYTES and len(packed) > 1:
            payloads.append(b"".join(packed))
            packed, size = [_MAGIC], len(_MAGIC)
        packed.append(entry)
        size += len(entry)
    if len(packed) > 1:
        payloads.append(b"".join(packed))
    return payloads


def decode_push(payload: bytes) -> list[PushedRun]:
    """The runs in a payload. Raises ValueError for bytes that are none."""
    if payload[:2] != _MAGIC or len(payload) > MAX_PUSH_BYTES:
        raise ValueError("not a push payload")
    runs: list[PushedRun] = []
    at = len(_MAGIC)
    try:
        while at < len(payload):
            run, at = _decode_entry(payload, at)
            runs.append(run)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ValueError("a push payload is cut off or damaged") from None
    return runs


def encode_stop(run: str) -> bytes:
    """The payload that asks a run's owner to stop it."""
    return _STOP + check_run(run).encode("ascii")


def decode_stop(payload: bytes) -> str:
    """The run to be stopped. Raises ValueError for any other payload."""
    if payload[:2] != _STOP or len(payload) > 64:
        raise ValueError("not a stop payload")
    return check_run(payload[2:].decode("ascii", errors="replace"))


def _decode_entry(payload: bytes, at: int) -> tuple[PushedRun, int]:
    run, told_seq, count, body_bytes = _HEAD.unpack_from(payload, at)
    table_at = at + _HEAD.size
    body_at = table_at + count * _ROW.size
    end = body_at + body_bytes
    if end > len(payload):
        raise IndexError(end)
    table = payload[table_at:body_at]
    first_seq, last_seq, name, in_row = _read_table(table, body_bytes)
    entry = PushedRun(
        _run_of(run),
        told_seq,
        count,
        first_seq,
        last_seq,
        EVENT_NAMES[name],
        in_row,
        table,
        payload[body_at:end],
    )
    return entry, end


def _read_table(table: bytes, body_bytes: int) -> tuple[int, int, int, bool]:
    """First and last seq, the last event's name as an index, and whether the seqs rise by one."""
    first_seq = last_seq = frames_bytes = name = 0
    in_row = True
    for seq, name, _, frame_bytes in _ROW.iter_unpack(table):
        in_row = in_row and (seq == last_seq + 1 or not first_seq)
        first_seq, last_seq = first_seq or seq, seq
        frames_bytes += frame_bytes
        if name >= _NAMES:
            raise IndexError(name)
    if frames_bytes != body_bytes:
        raise IndexError(frames_bytes)
    return first_seq, last_seq, name, in_row
