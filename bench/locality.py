"""How many turns of a conversation reach the replica that answered the turn before, and what the
wait for it costs, while 30 %, 70 % and 95 % of all slots are at work.

The queue's real scripts on a Valkey of its own, in simulated time: turns come by chance, answers
take 10 to 30 s, tickets travel in no time and wait where no thread is free, replicas announce
themselves every second. A turn misses where its replica was full, or where it was served in 150 ms
by nobody: what a prefix cache then costs is one prompt read again.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from redis import Redis

from bench.support.cli import Bench, Target
from bench.support.numbers import percentile
from chatproject.embedded import EmbeddedValkey
from generation.scheduler import Limits, QueueEntry, SchedulerSync

POOL: Final = "bench"
LOADS: Final = (30, 70, 95)
ANSWER_MS: Final = (10_000, 30_000)
BEAT_MS: Final = 1_000
REFILL_MS: Final = 50
TURNS_EACH: Final = 10
"""Of a conversation, before another takes its place."""
TARGETS: Final = {"hit_share_30": Target(0.9, at_least=True)}


@dataclass(slots=True)
class Replica:
    name: str
    slots: int
    threads: int = 0  # with a ticket in hand: at work, or waiting to look again
    at_work: int = 0

    @property
    def idle(self) -> int:
        return self.slots - self.threads


@dataclass
class Evening:
    """One load, played from its first turn to its last."""

    redis: Redis
    replicas: list[Replica]
    load: float
    chance: random.Random
    now_ms: int = 1_000_000
    _end_ms: int = 0
    hits: int = 0
    homes: int = 0
    returning: int = 0
    waits_ms: list[float] = field(default_factory=list)
    _events: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _tickets: Counter[str | None] = field(default_factory=Counter)
    _queued_ms: dict[str, int] = field(default_factory=dict)
    _last: dict[str, str] = field(default_factory=dict)
    _turns: Counter[str] = field(default_factory=Counter)
    _free: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = SchedulerSync(
            self.redis, Limits(100_000, 100_000), lambda: self.now_ms, self._publish
        )

    def play(self, turns: int) -> None:
        self.redis.flushall()
        self.queue.rebuild(POOL, list)
        slots = sum(replica.slots for replica in self.replicas)
        every_ms = sum(ANSWER_MS) / 2 / (self.load * slots)
        self._free = [self._conversation() for _ in range(6 * slots)]
        at_ms = float(self.now_ms)
        for _ in range(turns):
            at_ms += self.chance.expovariate(1 / every_ms)
            self._at(int(at_ms), self._come)
        self._end_ms = int(at_ms)
        for replica in self.replicas:
            self._beat(replica)
        while self._events:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()

    def _at(self, ms: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (ms, next(self._numbers), event))

    def _conversation(self) -> str:
        return f"c_{next(self._numbers)}"

    # --- people -----------------------------------------------------------------------------------

    def _come(self) -> None:
        if not self._free:
            self._free.append(self._conversation())
        conversation = self._free.pop(self.chance.randrange(len(self._free)))
        run = f"g_{next(self._numbers):032x}"
        self._queued_ms[run] = self.now_ms
        entry = QueueEntry(run, f"u{conversation}", 1_000, "free", conversation=conversation)
        self.queue.enqueue(entry, pool=POOL)

    def _served(self, replica: Replica, entry: QueueEntry) -> None:
        conversation = entry.conversation
        self.waits_ms.append(self.now_ms - self._queued_ms.pop(entry.run))
        if conversation in self._last:
            self.returning += 1
            self.hits += self._last[conversation] == replica.name
        self._last[conversation] = replica.name
        self._turns[conversation] += 1
        self._at(self.now_ms + self.chance.randint(*ANSWER_MS), lambda: self._end(replica, entry))

    def _end(self, replica: Replica, entry: QueueEntry) -> None:
        replica.threads -= 1
        replica.at_work -= 1
        ended = self._turns[entry.conversation] >= TURNS_EACH
        self._free.append(self._conversation() if ended else entry.conversation)
        self.queue.ended(entry.run, POOL, 500, replica=replica.name)
        self._take_tickets()
        self._at(self.now_ms + REFILL_MS, lambda: self._sweep(replica))

    # --- workers ----------------------------------------------------------------------------------

    def _publish(self, _pool: str, replica: str | None) -> None:
        self._tickets[replica] += 1
        self._take_tickets()

    def _take_tickets(self) -> None:
        order = self.chance.sample(self.replicas, len(self.replicas))
        for replica in order:
            for queue in (replica.name, None):
                while replica.idle > 0 and self._tickets[queue] > 0:
                    self._tickets[queue] -= 1
                    replica.threads += 1
                    self._pop(replica)

    def _pop(self, replica: Replica) -> None:
        popped = self.queue.pop(POOL, replica.name, at_work=replica.at_work, slots=replica.slots)
        if popped.entry is not None:
            replica.at_work += 1
            self.homes += popped.preferred_replica == replica.name
            self._served(replica, popped.entry)
        elif popped.wait_ms:
            self._at(self.now_ms + popped.wait_ms, lambda: self._pop(replica))
        else:
            replica.threads -= 1

    def _beat(self, replica: Replica) -> None:
        self._sweep(replica)
        if self.now_ms < self._end_ms:
            self._at(self.now_ms + BEAT_MS, lambda: self._beat(replica))

    def _sweep(self, replica: Replica) -> None:
        beat = self.queue.beat(
            POOL, replica.name, at_work=replica.at_work, slots=replica.slots, paid_burst=0
        )
        for _ in range(min(replica.idle, beat.waiting)):
            self._publish(POOL, replica.name)


def main() -> int:
    bench = Bench.of_command_line(
        "locality",
        "Counts turns that reach the replica which answered the turn before.",
        [
            ("--replicas", 4, "replicas of the pool"),
            ("--slots", 8, "slots of each"),
            ("--turns", 6_000, "turns at each load"),
        ],
    )
    options: Any = bench.options
    turns = min(options.turns, 1_500) if bench.quick else options.turns
    rows = []
    with EmbeddedValkey.temporary() as valkey, Redis.from_url(valkey.url) as redis:
        for load in LOADS:
            bench.say(f"{turns} turns while {load} % of the slots are at work")
            replicas = [Replica(f"r-{n}", options.slots) for n in range(options.replicas)]
            evening = Evening(redis, replicas, load / 100, random.Random(load))
            evening.play(turns)
            figures = {
                f"hit_share_{load}": evening.hits / max(1, evening.returning),
                f"home_share_{load}": evening.homes / turns,
                f"wait_p50_ms_{load}": percentile(evening.waits_ms, 50),
                f"wait_p95_ms_{load}": percentile(evening.waits_ms, 95),
            }
            bench.figures.update(figures)
            rows += [
                (f"hit_share_{load}", f"turns on the replica of the one before, at {load} % load"),
                (f"home_share_{load}", "turns on the replica that their conversation prefers"),
                (f"wait_p50_ms_{load}", "in the queue"),
                (f"wait_p95_ms_{load}", ""),
            ]
    return bench.finish(rows, TARGETS)


if __name__ == "__main__":
    sys.exit(main())
