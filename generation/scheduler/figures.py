"""What a pool tells people who look on: figures, counts, and samples of the last hour. No I/O.

Beside the queue's own keys a pool has three more, under the same hash tag; no script reads them,
and a rebuild leaves them alone:

    {pool:<slug>}:counts   hash, field -> whole number that only rises (until Redis is lost), and
                           "last.<plan>" -> "<field>|<Unix time, ms>": what was counted last for it
    {pool:<slug>}:history  list of samples, the newest first
    {pool:<slug>}:sampled  string that lives until the next sample is due

A field is a name and its labels with dots between them: "admitted.free.home". Slugs have no dots.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from generation.scheduler.entries import pool_keys

SAMPLE_MS: Final = 10_000
SAMPLES: Final = 360
"""An hour of them."""

LAST: Final = "last"
LADDER: Final = ("admitted", "refused")
"""Fields of these names are remembered as what happened last to their plan."""

_FIELD: Final = re.compile(r"[a-z_]{1,32}(\.[A-Za-z0-9_-]{0,100}){1,3}")


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """`wait_ms` is what one more user of the plan would wait; None: nobody knows."""

    plan: str
    weight: int
    is_paid: bool
    depth: int
    wait_ms: int | None


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """As the replica has told `age_ms` ago; `at_work` is the queue's own count."""

    name: str
    slots: int
    paid_burst: int
    at_work: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """A pool at one moment. `chores` and `plans` are those that the queue knows, and those asked
    for; `slot_tokens_per_s` is the mean speed of one slot, None where nothing was measured."""

    built: bool
    is_paused: bool
    chores_paused: bool
    depth: int
    slot_tokens_per_s: float | None
    chores: PlanFigures | None
    plans: tuple[PlanFigures, ...]
    replicas: tuple[ReplicaFigures, ...]

    @property
    def slots(self) -> int:
        return sum(one.slots for one in self.replicas)

    @property
    def paid_burst(self) -> int:
        return sum(one.paid_burst for one in self.replicas if one.slots)

    @property
    def at_work(self) -> int:
        return sum(one.at_work for one in self.replicas)

    @property
    def tokens_per_s(self) -> float | None:
        """What all slots together serve while none is idle."""
        return None if self.slot_tokens_per_s is None else self.slot_tokens_per_s * self.slots


@dataclass(frozen=True, slots=True)
class Counts:
    """`totals`: labels -> number, by name; `last`: plan -> (name, rest of the labels, Unix ms)."""

    totals: Mapping[str, Mapping[tuple[str, ...], int]]
    last: Mapping[str, tuple[str, str, int]]

    def of(self, name: str) -> Mapping[tuple[str, ...], int]:
        return self.totals.get(name, {})

    def sum(self, name: str) -> int:
        return sum(self.of(name).values())


NO_COUNTS: Final = Counts({}, {})


def counts_key(pool: str) -> str:
    return _key(pool, "counts")


def history_key(pool: str) -> str:
    return _key(pool, "history")


def sampled_key(pool: str) -> str:
    return _key(pool, "sampled")


def _key(pool: str, name: str) -> str:
    return pool_keys(pool).built.removesuffix("built") + name


def count_commands(pool: str, more: Mapping[str, int], now: str) -> list[tuple[str | int, ...]]:
    """The Redis commands that add to the counts; `now` in Unix ms, empty: this process' time.
    Raises ValueError for what is no field, or less than 0."""
    now = now or str(time.time_ns() // 1_000_000)
    key = counts_key(pool)
    commands: list[tuple[str | int, ...]] = []
    for field, number in more.items():
        name, _, labels = field.partition(".")
        if not _FIELD.fullmatch(field) or name == LAST or (name in LADDER and "." not in labels):
            raise ValueError(f"not a count: {field[:120]!r}")
        if number < 0:
            raise ValueError(f"a count only rises: {field}")
        if number:
            commands.append(("HINCRBY", key, field, number))
        if name in LADDER:
            plan = labels.partition(".")[0]
            commands.append(("HSET", key, f"{LAST}.{plan}", f"{field}|{now}"))
    return commands


def counts(reply: Sequence[bytes] | Mapping[bytes, bytes]) -> Counts:
    """From the reply to HGETALL."""
    totals: dict[str, dict[tuple[str, ...], int]] = {}
    last: dict[str, tuple[str, str, int]] = {}
    for field, value in _pairs(reply):
        name, *labels = field.decode().split(".")
        if name == LAST:
            what, _, at_ms = value.decode().partition("|")
            kind, _, rest = what.split(".", 2)
            last[labels[0]] = (kind, rest, int(at_ms))
        else:
            totals.setdefault(name, {})[tuple(labels)] = int(value)
    return Counts(totals, last)


def _pairs(reply: Sequence[bytes] | Mapping[bytes, bytes]) -> Iterable[tuple[bytes, bytes]]:
    if isinstance(reply, Mapping):
        return reply.items()
    return zip(reply[::2], reply[1::2], strict=True)


def pool_figures(reply: Sequence[Any]) -> PoolFigures:
    """From figures.lua's reply."""
    (built, paused, chores_paused, depth, speed), classes, replicas = reply
    found = [
        PlanFigures(name.decode(), weight, bool(paid), waiting, None if wait < 0 else wait)
        for name, weight, paid, waiting, wait in _parts(classes)
    ]
    return PoolFigures(
        built=bool(built),
        is_paused=bool(paused),
        chores_paused=bool(chores_paused),
        depth=depth,
        slot_tokens_per_s=float(speed) if speed else None,
        chores=next((one for one in found if one.plan == CHORES), None),
        plans=tuple(one for one in found if one.plan != CHORES),
        replicas=tuple(ReplicaFigures(name.decode(), *rest) for name, *rest in _parts(replicas)),
    )


CHORES: Final = "~"
"""As lua/shared.lua calls the class of all chores."""


def _parts(flat: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (flat[at : at + 5] for at in range(0, len(flat), 5))
