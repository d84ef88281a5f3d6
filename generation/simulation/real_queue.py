"""The product's own queue for a simulated world: the Lua scripts, in Redis, at the world's time.

Under pool names of its own, which are gone when it is closed; nothing of a running product is
touched. No tickets: in the world whoever has room asks.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, Literal

from redis import Redis
from redis.exceptions import NoScriptError

from generation import ladder
from generation.scheduler import calls
from generation.scheduler.calls import USER_PART, Call, Limits
from generation.scheduler.entries import Asker, QueueEntry, Room, pool_keys
from generation.simulation.scenarios import SITES
from generation.simulation.world import Job, Replica

Order = Literal["fair", "fifo", "strict"]

PER_POOL: Final = 2_000
LIMITS: Final[dict[Order, Limits]] = {
    "fair": Limits(PER_POOL, per_user=100),
    "strict": Limits(PER_POOL, per_user=100),
    # All are one user there, and have the whole room.
    "fifo": Limits((USER_PART + 1) * PER_POOL, per_user=PER_POOL),
}
"""As the settings have them by default."""

STRICT_WEIGHT: Final = 1_000_000
"""Against 1: who pays goes before everybody else, always."""

EPOCH_MS: Final = 1_000_000
"""The world's time begins at 0; that of a queue never does."""


class RealQueue:
    """See `world.Queue`. `order`: the product's, first in first out, or strictly by who pays."""

    def __init__(self, redis: Redis, order: Order) -> None:
        self._redis = redis
        self._order = order
        mark = secrets.token_hex(4)
        self._names = {site.pool: f"simulated-{mark}-{site.pool}" for site in SITES}
        for pool in self._names.values():
            for call in calls.rebuild(pool, [], self._locked(pool), ""):
                self._run(call)

    def _locked(self, pool: str) -> str:
        self._redis.set(pool_keys(pool).lock, "simulation")
        return "simulation"

    def close(self) -> None:
        """Leave nothing behind."""
        for pool in self._names.values():
            self._redis.delete(*pool_keys(pool).all())

    # --- world.Queue ------------------------------------------------------------------------------

    def outlooks(self, job: Job, now_ms: float) -> dict[str, ladder.Outlook]:
        entry = self._entry(job)
        asker = Asker(entry.user, entry.plan, entry.weight, entry.is_paid)
        asked = [calls.outlook(name, asker, _at(now_ms)) for name in self._names.values()]
        replies = self._run_all(asked)
        return {
            pool: self._seen(pool, reply, is_paid=entry.is_paid)
            for pool, reply in zip(self._names, replies, strict=True)
        }

    def _seen(self, pool: str, reply: Sequence[Any], *, is_paid: bool) -> ladder.Outlook:
        outlook = LIMITS[self._order].outlook(reply, is_paid=is_paid)
        return ladder.Outlook(
            pool,
            region="here",
            wait_ms=outlook.predicted_wait_ms or 0,
            has_room=outlook.predicted_wait_ms == 0,
            is_full=outlook.room is not Room.FREE,
        )

    def enqueue(self, job: Job, now_ms: float) -> None:
        self._run(calls.enqueue(self._names[job.pool], self._entry(job), "back", _at(now_ms)))

    def pop(self, replica: Replica, now_ms: float) -> str | None:
        site = replica.site
        room = (len(replica.at_work), site.slots, site.paid_burst)
        call = calls.pop(self._names[site.pool], replica.name, room, _at(now_ms))
        found = calls.popped(self._run(call)).entry
        return found.run if found is not None else None

    def give_back(self, job: Job, now_ms: float) -> None:
        self._run(calls.enqueue(self._names[job.pool], self._entry(job), "front", _at(now_ms)))

    def ended(self, job: Job, now_ms: float) -> None:
        spent = job.prompt_tokens + job.answer_tokens
        self._run(calls.ended(self._names[job.pool], job.run, spent, "", _at(now_ms)))

    def leave(self, job: Job, now_ms: float) -> None:
        self._run(calls.remove(self._names[job.pool], job.run))

    def register(self, replicas: Sequence[Replica], now_ms: float) -> None:
        self._run_all(
            [
                calls.beat(
                    self._names[one.site.pool],
                    one.name,
                    (len(one.at_work), one.site.slots, one.site.paid_burst),
                    _at(now_ms),
                )
                for one in replicas
            ]
        )

    # --- entries ----------------------------------------------------------------------------------

    def _entry(self, job: Job) -> QueueEntry:
        group = job.group
        match self._order:
            case "fifo":
                return QueueEntry(job.run, "everybody", job.cost_tokens, "all", is_paid=True)
            case "strict":
                plan, weight = ("paid", STRICT_WEIGHT) if group.is_paid else ("free", 1)
            case "fair":
                plan, weight = group.plan, group.weight
        return QueueEntry(
            job.run, job.user, job.cost_tokens, plan, weight, group.is_paid, group.concurrent_runs
        )

    # --- Redis ------------------------------------------------------------------------------------

    def _run(self, call: Call) -> Any:
        redis: Any = self._redis
        try:
            return redis.execute_command(*call.words())
        except NoScriptError:
            return redis.execute_command(*call.words_with_source())

    def _run_all(self, asked: Sequence[Call]) -> list[Any]:
        pipe: Any = self._redis.pipeline(transaction=False)
        for call in asked:
            pipe.execute_command(*call.words())
        replies = pipe.execute(raise_on_error=False)
        return [
            self._run(call) if isinstance(reply, NoScriptError) else reply
            for call, reply in zip(asked, replies, strict=True)
        ]


def _at(now_ms: float) -> str:
    return str(EPOCH_MS + int(now_ms))
