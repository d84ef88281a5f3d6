"""The calls to the queue's scripts: arguments and replies, the same for both clients. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from generation.scheduler.entries import (
    EnqueueResult,
    PopResult,
    QueueEntry,
    Room,
    pool_keys,
)

REBUILD_ENTRIES: Final = 500
"""Entries in one call of rebuild.lua: a few milliseconds in which Redis serves no one else."""

LOCK_MS: Final = 15_000
"""How long a rebuild may take; then another may start, and the first is refused by its token."""

SCRIPTS: Final = ("check", "enqueue", "pop", "rebuild", "remove")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script: its name, KEYS and ARGV."""

    script: str
    keys: Sequence[str]
    args: Sequence[str]


@lru_cache(maxsize=len(SCRIPTS))
def source(script: str) -> str:
    return (Path(__file__).parent / "lua" / f"{script}.lua").read_text("utf-8")


def check(pool: str) -> Call:
    return Call("check", [pool_keys(pool).built], [])


def enqueue(pool: str, entry: QueueEntry, place: Literal["back", "front"]) -> Call:
    keys = pool_keys(pool)
    return Call(
        "enqueue",
        [keys.built, keys.queue, keys.entries, keys.users, keys.ends],
        [entry.run, entry.pack(), place],
    )


def enqueued(reply: Sequence[int]) -> EnqueueResult:
    built, added, position = reply
    return EnqueueResult(built=bool(built), added=bool(added), position=position)


def pop(pool: str, replica: str) -> Call:
    keys = pool_keys(pool)
    return Call("pop", [keys.built, keys.queue, keys.entries, keys.users], [replica])


def popped(reply: Sequence[bytes | int]) -> PopResult:
    built, *entry = reply
    match entry:
        case [bytes(run), bytes(packed)]:
            return PopResult(built=True, entry=QueueEntry.unpack(run, packed))
        case _:
            return PopResult(built=bool(built), entry=None)


def remove(pool: str, run: str) -> Call:
    keys = pool_keys(pool)
    return Call("remove", [keys.queue, keys.entries, keys.users], [run])


def rebuild(pool: str, entries: Iterable[QueueEntry], token: str) -> Iterator[Call]:
    """The calls that fill a queue, in order; stop at the first that answers 0."""
    keys = pool_keys(pool)
    all_keys = [keys.built, keys.queue, keys.entries, keys.users, keys.ends, keys.lock]
    yield Call("rebuild", all_keys, [token, "first"])
    rest = iter(entries)
    while part := list(itertools.islice(rest, REBUILD_ENTRIES)):
        pairs = [text for entry in part for text in (entry.run, entry.pack())]
        yield Call("rebuild", all_keys, [token, "more", *pairs])
    yield Call("rebuild", all_keys, [token, "last"])


@dataclass(frozen=True, slots=True)
class Limits:
    """How many runs may wait: in one pool, and in one pool by one user."""

    per_pool: int
    per_user: int

    def room(self, replies: Sequence[bytes | int | None]) -> Room:
        """From the replies to EXISTS built, ZCARD queue, HGET users user, and a write."""
        built, waiting, of_user, _ = (int(reply or 0) for reply in replies)
        if not built:
            return Room.NOT_BUILT
        if of_user >= self.per_user:
            return Room.USER_FULL
        return Room.FREE if waiting < self.per_pool else Room.POOL_FULL


def positions(replies: Sequence[int | None]) -> list[int | None]:
    """From ZRANK replies (from 0) to positions (from 1)."""
    return [None if rank is None else rank + 1 for rank in replies]


def by_user(reply: dict[bytes, bytes]) -> dict[str, int]:
    return {user.decode("ascii"): int(count) for user, count in reply.items()}
