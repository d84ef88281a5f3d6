"""The one place that builds the arguments of the token log's scripts and reads their replies.

Pure but for the scripts' text: TokenLog (async) and TokenLogSync send what is built here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from generation.events import MAX_SEQ, Event, check_event, check_run
from generation.token_log.limits import (
    ENDED_MS,
    LEASE_MS,
    LIVE_MS,
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    MAX_CHANNEL_CHARS,
    MAX_EVENT_BYTES,
    MAX_READ_EVENTS,
    UNSEEN_MS,
)
from generation.token_log.scripts import Call, script

MAX_EPOCH: Final = 999_999_999
_TIMES: Final = tuple(b"%d" % ms for ms in (LIVE_MS, ENDED_MS, UNSEEN_MS))


class Code(StrEnum):
    """What Redis says to an owner (open.lua, append.lua)."""

    OK = "OK"
    FENCED = "FENCED"
    BEHIND = "BEHIND"
    MISSING = "MISSING"


_CODES: Final = {code.value.encode(): code for code in Code}
_NOBODY: Final[Mapping[str, int]] = MappingProxyType({})

LogStatus = Literal["queued", "running", "ended"]


@dataclass(frozen=True, slots=True)
class OpenReply:
    """What open.lua found and made. `watchers` maps a gateway's channel to since when (ms).

    `arrivals`: how many watchers had come by then (see Batch.known).
    """

    code: Code
    epoch: int
    last_seq: int
    found_seq: int
    stop: bool
    arrivals: int
    watchers: Mapping[str, int]


class Batch(NamedTuple):
    """One append: the events of one run, numbered above `expected_seq`, in rising order.

    `expected_seq` is the last seq the owner knows to be in the log. An empty batch is a heartbeat;
    `lease_ms=0` gives the lease up. `known`: the arrivals of the last reply that told who watches;
    while nobody came since, the lease stays as it is and the reply tells nobody. -1: ask.
    `tokens`: how many output tokens the answer has by then; -1: as many as before.
    """

    run: str
    epoch: int
    expected_seq: int
    events: Sequence[Event] = ()
    lease_ms: int = LEASE_MS
    known: int = -1
    tokens: int = -1


class AppendReply(NamedTuple):
    """What append.lua answered. `error` names what Redis refused, and then nothing else holds.

    `arrivals` -1: the caller knows who watches, and `watchers` is empty.
    """

    code: Code | None
    epoch: int = 0
    last_seq: int = 0
    stop: bool = False
    resync: bool = False
    arrivals: int = -1
    watchers: Mapping[str, int] = _NOBODY
    error: str = ""


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries after a cursor. `ended`: the log has its `done`, in this page or a later one."""

    events: tuple[Event, ...]
    last_seq: int
    ended: bool


@dataclass(frozen=True, slots=True)
class LogState:
    """Where a log stands. Compare the lease with `now_ms`, which is Redis' own clock."""

    epoch: int
    last_seq: int
    status: LogStatus
    stop: bool
    lease_until_ms: int
    output_tokens: int
    now_ms: int

    @property
    def leased(self) -> bool:
        """Whether an owner is taken to be alive."""
        return self.status == "running" and self.lease_until_ms > self.now_ms


@dataclass(frozen=True, slots=True)
class Registered:
    """What a gateway that registers learns about a log, in the same round trip."""

    epoch: int
    last_seq: int
    status: LogStatus


def log_key(run: str) -> bytes:
    return b"run:{%s}" % check_run(run).encode("ascii")


def meta_key(run: str) -> bytes:
    return log_key(run) + b":m"


def watchers_key(run: str) -> bytes:
    return log_key(run) + b":w"


def open_call(
    run: str,
    *,
    epoch: int,
    owner: str,
    status: LogStatus,
    events: Sequence[Event],
    base_seq: int,
    only_if_behind: bool,
    tokens: int,
) -> Call:
    args = [
        _number(epoch, MAX_EPOCH),
        _channel(owner) if owner else b"",
        status.encode(),
        _number(base_seq, MAX_SEQ),
        b"behind" if only_if_behind else b"always",
        *_numbers(LEASE_MS, LIVE_MS, ENDED_MS, UNSEEN_MS),
        b"%d" % tokens,
        *_event_args(events, above=base_seq),
    ]
    return Call(script("open"), _all_keys(run), tuple(args))


def append_call(batch: Batch) -> Call:
    args = [
        _number(batch.epoch, MAX_EPOCH),
        _number(batch.expected_seq, MAX_SEQ),
        b"%d" % batch.lease_ms,
        b"%d" % batch.known,
        *_TIMES,
        b"%d" % batch.tokens,
        *_event_args(batch.events, above=0),
    ]
    return Call(script("append"), _all_keys(batch.run), tuple(args))


def stop_call(run: str) -> Call:
    return Call(script("stop"), (meta_key(run),), ())


def resync_call(run: str) -> Call:
    return Call(script("resync"), (meta_key(run),), ())


def state_call(run: str) -> Call:
    return Call(script("state"), (meta_key(run),), ())


def register_call(run: str, channel: str) -> Call:
    args = (_channel(channel), *_numbers(UNSEEN_MS))
    return Call(script("register"), (meta_key(run), watchers_key(run)), args)


def delete_call(run: str, epoch: int) -> Call:
    args = (_number(epoch, MAX_EPOCH), *_numbers(UNSEEN_MS))
    return Call(script("delete"), _all_keys(run), args)


def read_words(run: str, after: int, limit: int) -> tuple[tuple[str | bytes | int, ...], ...]:
    """The two commands of a read. The meta comes first, so that an ended log is read to its end."""
    if not 1 <= limit <= MAX_READ_EVENTS:
        raise ValueError(f"a read takes 1 to {MAX_READ_EVENTS} entries")
    start = b"(" + _number(after, MAX_SEQ) + b"-0"
    return (
        ("HMGET", meta_key(run), "seq", "status"),
        ("XRANGE", log_key(run), start, "+", "COUNT", limit),
    )


def parse_open(reply: Any) -> OpenReply:
    code, epoch, last_seq, found_seq, stop, arrivals, *watchers = _reply_list(reply)
    return OpenReply(
        _CODES[code],
        int(epoch),
        int(last_seq),
        int(found_seq),
        stop == b"1",
        int(arrivals),
        _watchers(tuple(watchers)),
    )


def parse_append(reply: Any) -> AppendReply:
    """Never raises for what Redis refused: one run's trouble must not stop the others."""
    if isinstance(reply, Exception):
        return AppendReply(None, error=f"{type(reply).__name__}: {str(reply)[:200]}")
    code, epoch, last_seq, stop, resync = reply[:5]
    said = (_CODES[code], int(epoch or 0), int(last_seq), stop == b"1", resync == b"1")
    if len(reply) == 5:
        return AppendReply(*said)
    return AppendReply(*said, int(reply[5]), _watchers(tuple(reply[6:])))


def parse_channel(reply: Any) -> str | None:
    return None if _value(reply) is None else reply.decode("utf-8")


def parse_state(reply: Any) -> LogState | None:
    if _value(reply) is None:
        return None
    epoch, last_seq, status, stop, lease_until_ms, tokens, now_ms = reply
    return LogState(
        int(epoch),
        int(last_seq),
        status.decode(),
        stop == b"1",
        int(lease_until_ms),
        int(tokens),
        int(now_ms),
    )


def parse_registered(reply: Any) -> Registered | None:
    if _value(reply) is None:
        return None
    epoch, last_seq, status = reply
    return Registered(int(epoch), int(last_seq), status.decode())


def parse_flag(reply: Any) -> bool:
    return bool(_value(reply))


def parse_read(meta: Any, entries: Any) -> LogPage | None:
    seq, status = _value(meta)
    if seq is None:
        return None
    events = tuple(_entry(entry) for entry in _value(entries))
    last_seq = max(int(seq), events[-1].seq if events else 0)
    return LogPage(events, last_seq, status == b"ended")


def _entry(entry: Any) -> Event:
    entry_id, fields = entry
    return Event(int(entry_id.partition(b"-")[0]), fields[b"e"].decode(), fields[b"d"])


# Asked for with every append: the same few runs again and again.
@lru_cache(maxsize=4_096)
def _all_keys(run: str) -> tuple[bytes, ...]:
    log = log_key(run)
    return (log, log + b":m", log + b":w")


def _numbers(*values: int) -> tuple[bytes, ...]:
    return tuple(b"%d" % value for value in values)


def _number(value: int, largest: int) -> bytes:
    if not 0 <= value <= largest:
        raise ValueError(f"{value} is not between 0 and {largest}")
    return b"%d" % value


def _channel(channel: str) -> bytes:
    if not 1 <= len(channel) <= MAX_CHANNEL_CHARS or not channel.isascii():
        raise ValueError("a channel is 1 to 200 ASCII characters")
    return channel.encode("ascii")


def _event_args(events: Sequence[Event], *, above: int) -> list[bytes]:
    if len(events) > MAX_BATCH_EVENTS:
        raise ValueError(f"a batch holds at most {MAX_BATCH_EVENTS} events")
    args: list[bytes] = []
    total_bytes = 0
    for event in events:
        if check_event(event).seq <= above:
            raise ValueError("the seqs of a batch rise, above what is there")
        if len(event.data) > MAX_EVENT_BYTES:
            raise ValueError(f"the data of an event is at most {MAX_EVENT_BYTES} bytes")
        above = event.seq
        total_bytes += len(event.data)
        args += (b"%d" % event.seq, event.name.encode("ascii"), event.data)
    if total_bytes > MAX_BATCH_BYTES:
        raise ValueError(f"a batch holds at most {MAX_BATCH_BYTES} bytes")
    return args


@lru_cache(maxsize=4_096)
def _watchers(flat: tuple[bytes, ...]) -> Mapping[str, int]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    found = {channel.decode("ascii"): int(since_ms) for channel, since_ms in pairs}
    return MappingProxyType(found)


def _value(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _reply_list(reply: Any) -> list[bytes]:
    return list(_value(reply))
