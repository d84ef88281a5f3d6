"""What waits in a pool's queue, what the queue answers, and its keys. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final, Literal

_SLUG: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{0,64}")
_RUN: Final = re.compile(r"g_[0-9a-f]{32}")
_USER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

CAP_MAX: Final = 1_000_000
"""Of one user's runs at once, for those who have no cap of their own."""

Kind = Literal["answer", "chore"]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One waiting run, with what its owner's plan says at this moment.

    `cost_tokens` is the prompt to prefill and the room for the answer; the plan is charged with it
    when the run is popped. `weight` is the plan's share, `cap` how many of the user's runs may be
    at work in this pool. `conversation` chooses the replica that may hold its prefix; empty: any.
    `is_pinned`: it must not leave the pool's region.
    Of two entries of one plan, or of one user, the one that came last says weight, paid and cap.
    """

    run: str
    user: str
    cost_tokens: int = 0
    plan: str = ""
    weight: int = 1
    is_paid: bool = False
    cap: int = CAP_MAX
    kind: Kind = "answer"
    conversation: str = ""
    is_pinned: bool = False

    def __post_init__(self) -> None:
        # A separator inside a field would give the place of one user to another.
        _check(_RUN, self.run, "run")
        _check(_USER, self.user, "user")
        _check(_NAME, self.plan, "plan")
        _check(_NAME, self.conversation, "conversation")
        if self.kind not in ("answer", "chore"):
            raise ValueError(f"not a kind: {self.kind!r}")
        if not 0 <= self.cost_tokens < 2**53:
            raise ValueError("cost_tokens must be between 0 and 2**53")
        if not 1 <= self.weight <= CAP_MAX:
            raise ValueError("weight must be between 1 and a million")
        if not 1 <= self.cap <= CAP_MAX:
            raise ValueError("cap must be between 1 and a million")

    def pack(self) -> str:
        """For Redis, which adds the entry's place, its time, and the replica that it prefers."""
        parts = (self.user, self.plan, self.weight, int(self.is_paid), self.cap, self.cost_tokens)
        return "|".join((*map(str, parts), self.kind, self.conversation, str(int(self.is_pinned))))

    @classmethod
    def unpack(cls, run: bytes, packed: bytes) -> QueueEntry:
        parts = packed.decode("ascii").split("|")
        user, plan, weight, paid, cap, cost, kind, conversation, pinned, *_ = parts
        return cls(
            run=run.decode("ascii"),
            user=user,
            cost_tokens=int(cost),
            plan=plan,
            weight=int(weight),
            is_paid=paid == "1",
            cap=int(cap),
            kind="chore" if kind == "chore" else "answer",
            conversation=conversation,
            is_pinned=pinned == "1",
        )


@dataclass(frozen=True, slots=True)
class AtWork:
    """A run that is at work, for a rebuild: `since_ms` is when it was claimed (Unix time)."""

    entry: QueueEntry
    replica: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Record:
    """What the queue knows of a run that was popped and has not ended."""

    run: str
    user: str
    replica: str
    popped_ms: int


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """`built` false: nothing was done, the queue waits for its rebuild (NOT_BUILT).

    `added` false: it waits already, or was popped so recently that its claim may be on its way.
    `replica`: whose ticket it is, where one has room; first the one that may hold its prefix.
    """

    built: bool
    added: bool
    replica: str | None = None


@dataclass(frozen=True, slots=True)
class PopResult:
    """`entry` is None where nobody may be served, and where the queue is not built.

    `wait_ms` above 0: somebody waits for another replica, at most so long; look again then.
    `passed_to`: the replica that has the slot which this one lacks; it is sent the ticket.
    """

    built: bool
    entry: QueueEntry | None
    wait_ms: int = 0
    preferred_replica: str | None = None
    passed_to: str | None = None


class Room(Enum):
    """Whether one more run may be put into a queue; asked before anything is saved."""

    FREE = "free"
    POOL_FULL = "pool_full"
    USER_FULL = "user_full"
    NOT_BUILT = "not_built"


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for a pool's outlook: a run that is not queued yet."""

    user: str
    plan: str
    weight: int
    is_paid: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one more run would meet in a pool's queue now.

    `depth` counts the runs that wait, `user_waiting` those of this user. `free_room` is how many
    runs of this kind (paid or free) the replicas have room for at this moment, burst included for
    paid ones; it does not count those that wait already. `slots` and `replicas` are those heard of
    lately. `tokens_before` will be served first. `tokens_per_s` is the measured speed of the whole
    pool. `predicted_wait_ms` is None where it cannot be known: nothing was measured yet, no
    replica is there, or the pool is paused.
    """

    room: Room
    is_paused: bool
    depth: int
    user_waiting: int
    free_room: int
    slots: int
    replicas: int
    runs_before: int
    tokens_before: int
    tokens_per_s: float | None
    predicted_wait_ms: int | None

    @property
    def built(self) -> bool:
        """Whether the queue may be trusted; where it may not, nothing can be queued."""
        return self.room is not Room.NOT_BUILT


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run stands: `position` counts from 1, the next to be popped.

    Both are predictions: others may come, with a better claim. None: see `Outlook`.
    """

    position: int
    predicted_wait_ms: int | None

    @property
    def eta_s(self) -> int | None:
        """The wait for people to read, in steps that grow with it: nobody watches single seconds of
        a minute, and each that changed would be told."""
        if self.predicted_wait_ms is None:
            return None
        seconds = math.ceil(self.predicted_wait_ms / 1000)
        step_s = next((step_s for most_s, step_s in _STEPS_S if seconds <= most_s), _LONGEST_STEP_S)
        return math.ceil(seconds / step_s) * step_s


_STEPS_S: Final = ((10, 1), (60, 5), (600, 30))
_LONGEST_STEP_S: Final = 300


@dataclass(frozen=True, slots=True)
class Loan:
    """A run that another region may take over. `wait_ms`: how long it would wait where it is, or
    has waited where nobody knows."""

    entry: QueueEntry
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Beat:
    """What a replica hears when it announces itself.

    `waiting` counts the runs that a slot could serve now, `paid` those of them that the burst
    could. `ready` counts the users who wait for an answer and could be served now, were there a
    slot: no chores, nobody at their cap, nobody while the pool is paused. `lost`: replicas that
    nobody has heard of for long; told once.
    """

    built: bool
    waiting: int
    paid: int
    ready: int
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolKeys:
    """The keys of one pool; one hash tag, so that a cluster keeps them in one slot. No others are
    ever made: a rebuild deletes them all. lua/shared.lua says what each holds."""

    built: str
    entries: str
    jobs: str
    turns: str
    lines: str
    plans: str
    tags: str
    users: str
    running: str
    busy: str
    replicas: str
    lock: str

    def all(self) -> list[str]:
        """In the order in which every script takes them."""
        return [getattr(self, field.name) for field in fields(self)]


def pool_keys(pool: str) -> PoolKeys:
    """Raises ValueError for what is no slug: braces in it would change the slot."""
    _check(_SLUG, pool, "pool")
    tag = f"{{pool:{pool}}}"
    return PoolKeys(*(f"{tag}:{field.name}" for field in fields(PoolKeys)))


def check_replica(name: str) -> str:
    """The name itself. Raises ValueError for what is no slug."""
    _check(_SLUG, name, "replica")
    return name


def _check(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"not a {what}: {text[:120]!r}")
