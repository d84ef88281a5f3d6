"""The calls to the queue's scripts: arguments and replies, the same for both clients. No I/O."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from generation.scheduler.entries import (
    Asker,
    AtWork,
    Beat,
    EnqueueResult,
    Loan,
    Outlook,
    Place,
    PopResult,
    QueueEntry,
    Record,
    Room,
    check_replica,
    pool_keys,
)

REBUILD_ENTRIES: Final = 250
"""Entries in one call of rebuild.lua: a few milliseconds in which Redis serves no one else."""

PLACES: Final = 100
"""Runs in one call of places.lua, for the same reason."""

LOCK_MS: Final = 15_000
"""How long a rebuild may take; then another may start, and the first is refused by its token."""

USER_PART: Final = 4
"""One user's runs may be a quarter of the room that is left in a pool's queue: whoever comes finds
some, however many a few others have put there (the dynamic thresholds of shared buffers; Choudhury
and Hahne, 1998)."""

FREE_SHARE: Final = 0.9
"""Of a pool's queue that plans may fill which do not pay."""

_FOLDER: Final = Path(__file__).parent / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """One `.lua` file, with shared.lua in front of it, and the name that Redis has for it."""

    source: str
    sha: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script: its name, its pool and ARGV; KEYS are always all keys of the pool."""

    script: str
    pool: str
    args: Sequence[str | int]

    def words(self) -> tuple[str | int, ...]:
        """The Redis command, where Redis knows the script."""
        return ("EVALSHA", source(self.script).sha, *self._rest())

    def words_with_source(self) -> tuple[str | int, ...]:
        """The same, where it may not; it knows it then."""
        return ("EVAL", source(self.script).source, *self._rest())

    def _rest(self) -> tuple[str | int, ...]:
        keys = pool_keys(self.pool).all()
        return (len(keys), *keys, *self.args)


@lru_cache(maxsize=32)
def source(script: str) -> Script:
    text = "\n".join((_FOLDER / f"{name}.lua").read_text("utf-8") for name in ("shared", script))
    # Redis names scripts by SHA-1; nothing here relies on its strength.
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def check(pool: str) -> Call:
    return Call("check", pool, [])


def enqueue(
    pool: str,
    entry: QueueEntry,
    place: Literal["back", "front"],
    now: str,
    replica: str = "",
) -> Call:
    return Call("enqueue", pool, [entry.run, entry.pack(), place, replica, now])


def enqueued(reply: Sequence[Any]) -> EnqueueResult:
    built, added, replica = reply
    return EnqueueResult(bool(built), bool(added), replica.decode("ascii") or None)


def pop(pool: str, replica: str, room: tuple[int, int, int], now: str) -> Call:
    """`room`: runs at work at the replica, its slots, its paid burst."""
    return Call("pop", pool, [check_replica(replica), *room, now])


def popped(reply: Sequence[bytes | int]) -> PopResult:
    built, wait_ms, *entry = reply
    match entry:
        case [bytes(run), bytes(packed)]:
            preferred = packed.decode("ascii").split("|")[11]
            unpacked = QueueEntry.unpack(run, packed)
            return PopResult(built=True, entry=unpacked, preferred_replica=preferred or None)
        case [bytes(replica)]:
            return PopResult(built=True, entry=None, passed_to=replica.decode("ascii"))
        case _:
            return PopResult(built=bool(built), entry=None, wait_ms=int(wait_ms))


def borrowable(pool: str, most: int, trip_ms: int, now: str) -> Call:
    return Call("borrowable", pool, [most, trip_ms, now])


def loans(reply: Sequence[Any]) -> list[Loan]:
    """From borrowable.lua's reply."""
    threes = zip(reply[::3], reply[1::3], reply[2::3], strict=True)
    return [Loan(QueueEntry.unpack(run, packed), int(wait_ms)) for run, packed, wait_ms in threes]


def remove(pool: str, run: str) -> Call:
    return Call("remove", pool, [run])


def ended(pool: str, run: str, spent_tokens: int | None, replica: str, now: str) -> Call:
    spent = "" if spent_tokens is None else max(0, spent_tokens)
    return Call("ended", pool, [run, replica, spent, now])


def beat(pool: str, replica: str, room: tuple[int, int, int], now: str) -> Call:
    """`room` as for a pop."""
    at_work, slots, paid_burst = room
    return Call("beat", pool, [check_replica(replica), slots, paid_burst, at_work, now])


def heard(reply: Sequence[Any]) -> Beat:
    built, waiting, paid, ready, *lost = reply
    return Beat(bool(built), waiting, paid, ready, tuple(name.decode("ascii") for name in lost))


def lost(pool: str, runs: Sequence[str], now: str) -> Call:
    return Call("lost", pool, [now, *runs])


def places(waiting: Sequence[tuple[str, str]], now: str) -> list[tuple[Call, list[int]]]:
    """The calls that ask for the places of (pool, run) pairs, and which pairs each is for."""
    by_pool: dict[str, list[int]] = {}
    for index, (pool, _) in enumerate(waiting):
        by_pool.setdefault(pool, []).append(index)
    return [
        (Call("places", pool, [now, *(waiting[index][1] for index in part)]), part)
        for pool, indexes in by_pool.items()
        for part in _parts(indexes, PLACES)
    ]


def placed(
    count: int, asked: Sequence[tuple[Call, list[int]]], replies: Sequence[Sequence[int]]
) -> list[Place | None]:
    found: list[Place | None] = [None] * count
    for (_, indexes), reply in zip(asked, replies, strict=True):
        for index, position, wait_ms in zip(indexes, reply[::2], reply[1::2], strict=True):
            if position:
                found[index] = Place(position, None if wait_ms < 0 else wait_ms)
    return found


def outlook(pool: str, asker: Asker, now: str) -> Call:
    # Its checks are the entry's: a separator would change what is counted.
    QueueEntry("g_" + "0" * 32, asker.user, plan=asker.plan, weight=asker.weight)
    paid = int(asker.is_paid)
    return Call("outlook", pool, [asker.user, asker.plan, asker.weight, paid, now])


def figures(pool: str, plans: Sequence[tuple[str, int, bool]], now: str) -> Call:
    """`plans`: slug, weight, whether it pays."""
    threes: list[str | int] = []
    for plan, weight, paid in plans:
        threes += [plan, weight, int(paid)]
    return Call("figures", pool, [now, *threes])


def weigh(pool: str, plan: str, weight: int) -> Call:
    # Its checks are the entry's.
    QueueEntry("g_" + "0" * 32, "u", plan=plan, weight=weight)
    return Call("weigh", pool, [plan, weight])


def rebuild(
    pool: str, found: Iterable[QueueEntry | AtWork], token: str, now: str
) -> Iterator[Call]:
    """The calls that fill a queue, in order; stop at the first that answers 0."""
    yield Call("rebuild", pool, [token, "first", now])
    for part in _parts(found, REBUILD_ENTRIES):
        yield Call("rebuild", pool, [token, "more", now, *itertools.chain(*map(_three, part))])
    yield Call("rebuild", pool, [token, "last", now])


def let_go(pool: str, token: str) -> Call:
    """Let go of the lock of a rebuild that does nothing."""
    return Call("rebuild", pool, [token, "none", ""])


def _three(one: QueueEntry | AtWork) -> tuple[str, str, str]:
    if isinstance(one, QueueEntry):
        return one.run, one.pack(), ""
    at_work = f"{check_replica(one.replica)}|{one.since_ms}"
    return one.entry.run, one.entry.pack(), at_work


def _parts(items: Iterable[Any], most: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while part := list(itertools.islice(rest, most)):
        yield part


@dataclass(frozen=True, slots=True)
class Limits:
    """How many runs may wait: in one pool, and in one pool by one user."""

    per_pool: int
    per_user: int

    def room(self, replies: Sequence[bytes | int | None]) -> Room:
        """From the replies to EXISTS built, ZCARD jobs, HGET users user, and a write."""
        built, waiting, of_user, _ = (int(reply or 0) for reply in replies)
        return self._room(bool(built), waiting, of_user)

    def outlook(self, reply: Sequence[Any], *, is_paid: bool = False) -> Outlook:
        """From outlook.lua's reply."""
        built, paused, depth, user_waiting, free_room, slots, replicas, runs, tokens = reply[:9]
        speed, wait_ms = reply[9:]
        return Outlook(
            room=self._room(bool(built), depth, user_waiting, is_paid=is_paid),
            is_paused=bool(paused),
            depth=depth,
            user_waiting=user_waiting,
            free_room=free_room,
            slots=slots,
            replicas=replicas,
            runs_before=runs,
            tokens_before=tokens,
            tokens_per_s=float(speed) if speed else None,
            predicted_wait_ms=None if wait_ms < 0 else wait_ms,
        )

    def _room(self, built: bool, waiting: int, of_user: int, *, is_paid: bool = False) -> Room:
        if not built:
            return Room.NOT_BUILT
        left = int(self.per_pool * (1 if is_paid else FREE_SHARE)) - waiting
        if of_user >= self.per_user:
            return Room.USER_FULL
        if left <= 0:
            return Room.POOL_FULL
        return Room.FREE if of_user < max(1, left // USER_PART) else Room.USER_FULL


def flags(paused: bool | None, chores_paused: bool | None) -> dict[str, int]:
    """What `configure` writes; None: as it is."""
    asked = {"paused": paused, "chores_paused": chores_paused}
    return {name: int(flag) for name, flag in asked.items() if flag is not None}


def records(reply: Mapping[bytes, bytes]) -> list[Record]:
    """From a part of the hash `running`."""
    found = []
    for run, packed in reply.items():
        user, _, _, _, replica, popped_ms = packed.decode("ascii").split("|")
        found.append(Record(run.decode("ascii"), user, replica, int(popped_ms)))
    return found


def positions(places: Sequence[Place | None]) -> list[int | None]:
    return [place.position if place is not None else None for place in places]


def by_user(reply: Mapping[bytes, bytes]) -> dict[str, int]:
    return {user.decode("ascii"): int(count) for user, count in reply.items()}
