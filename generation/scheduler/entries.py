"""What waits in a pool's queue, what the queue answers, and its keys. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

_SLUG: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_RUN: Final = re.compile(r"g_[0-9a-f]{32}")
_USER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One waiting run. `cost_tokens` is the prompt to prefill and the room for the answer."""

    run: str
    user: str
    cost_tokens: int = 0
    preferred_replica: str | None = None

    def __post_init__(self) -> None:
        # A separator inside a field would give the place of one user to another.
        _check(_RUN, self.run, "run")
        _check(_USER, self.user, "user")
        if self.preferred_replica is not None:
            _check(_SLUG, self.preferred_replica, "replica")
        if not 0 <= self.cost_tokens < 2**53:
            raise ValueError("cost_tokens must be between 0 and 2**53")

    def pack(self) -> str:
        return f"{self.user}|{self.cost_tokens}|{self.preferred_replica or ''}"

    @classmethod
    def unpack(cls, run: bytes, packed: bytes) -> QueueEntry:
        user, cost_tokens, preferred = packed.decode("ascii").split("|")
        return cls(run.decode("ascii"), user, int(cost_tokens), preferred or None)


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """`built` false: nothing was done, the queue waits for its rebuild (NOT_BUILT).

    `position` counts from 1 and tells the place of a run that waited already, too; 0 if not built.
    """

    built: bool
    added: bool
    position: int


@dataclass(frozen=True, slots=True)
class PopResult:
    """`entry` is None where nobody waits, and where the queue is not built."""

    built: bool
    entry: QueueEntry | None


class Room(Enum):
    """Whether one more run may be put into a queue; asked before anything is saved."""

    FREE = "free"
    POOL_FULL = "pool_full"
    USER_FULL = "user_full"
    NOT_BUILT = "not_built"


@dataclass(frozen=True, slots=True)
class PoolKeys:
    """The keys of one pool; one hash tag, so that a cluster keeps them in one slot."""

    built: str
    queue: str
    entries: str
    users: str
    ends: str
    lock: str


def pool_keys(pool: str) -> PoolKeys:
    """Raises ValueError for what is no slug: braces in it would change the slot."""
    _check(_SLUG, pool, "pool")
    tag = f"{{pool:{pool}}}"
    return PoolKeys(*(f"{tag}:{name}" for name in PoolKeys.__slots__))


def _check(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"not a {what}: {text[:120]!r}")
