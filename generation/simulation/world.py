"""A world of people, replicas and time that does not pass by itself. Knows no Redis.

Events in order of time: somebody sends, an answer ends, somebody tries again or leaves, replicas
are lost and come back. What stands between (who is admitted, whose turn it is) is asked of a
`Queue` and of `generation.ladder`, as the product asks.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from generation.ladder import Admitted, Outlook, Refused, Wish, decide
from generation.simulation.scenarios import (
    ANSWER_TOKENS,
    LARGE,
    PROMPT_TOKENS,
    SITES,
    SMALL,
    Group,
    Scenario,
    Site,
    load_at,
)

LENGTH_SPREAD: Final = 0.8
"""Of a lognormal: most answers are short and some are very long."""

TRIES: Final = 3
COMES_BACK: Final = 0.7
"""How many of those refused try again, at the time they were told; three times at most."""

LEAVES_AFTER_MS: Final = 90_000
"""Whoever has waited for so long closes the page."""

TICK_MS: Final = 1_000
"""How often a replica says that it is there."""


@dataclass(slots=True)
class Job:
    """One send that was accepted."""

    run: str
    group: Group
    user: str
    prompt_tokens: int
    answer_tokens: int  # what it will write, once what it may write is known
    cost_tokens: int = 0  # what is reserved
    pool: str = ""
    sent_ms: float = 0.0
    waits: bool = False
    beginnings: int = 0  # on how many replicas it was begun
    script: bool = False


@dataclass(slots=True)
class Replica:
    """An engine and what it writes now."""

    name: str
    site: Site
    at_work: dict[str, Job] = field(default_factory=dict)
    is_there: bool = True

    def room(self, job_is_paid: bool) -> bool:
        limit = self.site.slots + (self.site.paid_burst if job_is_paid else 0)
        return self.is_there and len(self.at_work) < limit


class Queue(Protocol):
    """Whose turn it is. Times are milliseconds of the simulated clock."""

    def outlooks(self, job: Job, now_ms: float) -> dict[str, Outlook]:
        """Each pool, as this job would find it."""
        ...

    def enqueue(self, job: Job, now_ms: float) -> None: ...

    def pop(self, replica: Replica, now_ms: float) -> str | None:
        """The run that this replica begins; None where there is none for it."""
        ...

    def give_back(self, job: Job, now_ms: float) -> None:
        """It was begun, and its replica is lost."""
        ...

    def ended(self, job: Job, now_ms: float) -> None: ...

    def leave(self, job: Job, now_ms: float) -> None:
        """It waits no more, and was not begun."""
        ...

    def register(self, replicas: Sequence[Replica], now_ms: float) -> None:
        """These are there."""
        ...


@dataclass(slots=True)
class Tally:
    """What became of one plan's sends."""

    sends: int = 0
    refused: int = 0
    gave_up: int = 0
    left: int = 0
    smaller: int = 0
    shorter: int = 0
    ttft_ms: list[float] = field(default_factory=list)
    tokens: int = 0


class World:
    """One scenario over one queue. `run` returns when its time is over and all have their answer.

    `with_ladder` false: nobody is degraded or refused, as if no deadline stood in a plan.
    """

    def __init__(
        self,
        scenario: Scenario,
        queue: Queue,
        *,
        minutes: float,
        seed: int,
        with_ladder: bool = True,
    ) -> None:
        self._scenario = scenario
        self._queue = queue
        self._with_ladder = with_ladder
        self._length_ms = minutes * 60_000
        self._random = random.Random(seed)  # noqa: S311 — no secret
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._jobs: dict[str, Job] = {}
        self._waiting: dict[str, int] = {site.pool: 0 for site in SITES}
        self.now_ms = 0.0
        self.busy_ms = 0.0
        self.script = Tally()
        self.tallies = {group.plan: Tally() for group in scenario.groups}
        self.sites = {site.pool: site for site in SITES}
        self.replicas = {
            site.pool: [Replica(f"{site.pool}-{n}", site) for n in range(site.replicas)]
            for site in SITES
        }

    # --- the clock --------------------------------------------------------------------------------

    def run(self) -> None:
        self._tick()
        self._next_arrival()
        if self._scenario.lost:
            begins, ends, count = self._scenario.lost
            self._at(begins * self._length_ms, lambda: self._lose(count))
            self._at(ends * self._length_ms, self._restore)
        if self._scenario.script:
            self._at(self._scenario.script.from_share * self._length_ms, self._unleash)
        while self._events:
            self.now_ms, _, happen = heapq.heappop(self._events)
            happen()

    def _at(self, moment_ms: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(moment_ms, self.now_ms), next(self._numbers), happen))

    def _after(self, pause_ms: float, happen: Callable[[], None]) -> None:
        self._at(self.now_ms + pause_ms, happen)

    @property
    def _is_on(self) -> bool:
        return self.now_ms < self._length_ms

    def _tick(self) -> None:
        for pool in self.sites:
            self._queue.register([one for one in self.replicas[pool] if one.is_there], self.now_ms)
            self._dispatch(pool)
        if self._is_on or any(self._waiting.values()):
            self._after(TICK_MS, self._tick)

    # --- people -----------------------------------------------------------------------------------

    def _next_arrival(self) -> None:
        if not self._is_on:
            return
        asked = load_at(self._scenario, self.now_ms / self._length_ms) * capacity(self.sites)
        rate_per_ms = asked / ANSWER_TOKENS / 1_000
        self._after(self._random.expovariate(rate_per_ms), self._arrive)

    def _arrive(self) -> None:
        groups = self._scenario.groups
        (group,) = self._random.choices(groups, [one.share for one in groups])
        user = f"{group.plan}-{self._random.randrange(group.users)}"
        self._send(self._job(group, user), tries=1)
        self._next_arrival()

    def _unleash(self) -> None:
        script = self._scenario.script
        if script is None:
            return
        group = next(one for one in self._scenario.groups if one.plan == script.plan)
        for account, _ in itertools.product(range(script.accounts), range(script.chats)):
            self._send(self._job(group, f"script-{account}", script=True), tries=1)

    def _job(self, group: Group, user: str, *, script: bool = False) -> Job:
        return Job(
            run=f"g_{next(self._numbers):032x}",
            group=group,
            user=user,
            prompt_tokens=self._length(PROMPT_TOKENS),
            answer_tokens=self._length(ANSWER_TOKENS),
            script=script,
        )

    def _length(self, mean: int) -> int:
        drawn = self._random.lognormvariate(-(LENGTH_SPREAD**2) / 2, LENGTH_SPREAD)
        return max(1, round(mean * drawn))

    def _tally(self, job: Job) -> Tally:
        return self.script if job.script else self.tallies[job.group.plan]

    def _send(self, job: Job, tries: int) -> None:
        tally = self._tally(job)
        tally.sends += 1
        job.sent_ms = self.now_ms
        job.cost_tokens = min(job.group.context_tokens, job.prompt_tokens + job.group.answer_tokens)
        decision = self._decide(job)
        if isinstance(decision, Refused):
            self._refused(job, decision, tries)
            return
        tally.smaller += decision.is_smaller
        tally.shorter += decision.is_shorter
        job.pool = decision.pool
        job.answer_tokens = min(job.answer_tokens, decision.answer_tokens)
        job.prompt_tokens = min(job.prompt_tokens, decision.context_tokens - job.answer_tokens)
        job.cost_tokens = job.prompt_tokens + decision.answer_tokens
        self._jobs[job.run] = job
        self._stand(job, waits=True)
        self._queue.enqueue(job, self.now_ms)
        self._after(LEAVES_AFTER_MS, lambda: self._leave(job))
        self._offer(job)

    def _decide(self, job: Job) -> Admitted | Refused:
        group = job.group
        seen = self._queue.outlooks(job, self.now_ms)
        wish = Wish(
            is_paid=group.is_paid,
            deadline_ms=group.deadline_ms if self._with_ladder else 10_000_000,
            answer_tokens=group.answer_tokens,
            context_tokens=group.context_tokens,
        )
        return decide(wish, [seen[LARGE]], [seen[SMALL]], spread=self._random.random())

    def _refused(self, job: Job, refused: Refused, tries: int) -> None:
        tally = self._tally(job)
        tally.refused += 1
        again = job.script or (tries < TRIES and self._random.random() < COMES_BACK)
        if again and self._is_on:
            self._after(refused.retry_after_s * 1_000, lambda: self._send(job, tries + 1))
        else:
            tally.gave_up += 1

    def _leave(self, job: Job) -> None:
        """Still waiting: it never began."""
        if job.waits and not job.beginnings:
            self._stand(job, waits=False)
            del self._jobs[job.run]
            self._queue.leave(job, self.now_ms)
            self._tally(job).left += 1

    def _stand(self, job: Job, *, waits: bool) -> None:
        job.waits = waits
        self._waiting[job.pool] += 1 if waits else -1

    # --- engines ----------------------------------------------------------------------------------

    def _dispatch(self, pool: str) -> None:
        """Every replica with room takes what is its; the emptiest one first."""
        for replica in sorted(self.replicas[pool], key=lambda one: len(one.at_work)):
            self._fill(replica)

    def _offer(self, job: Job) -> None:
        """To the emptiest replica that has room for it, as its ticket would come there."""
        replicas = [one for one in self.replicas[job.pool] if one.room(job.group.is_paid)]
        if replicas:
            self._fill(min(replicas, key=lambda one: len(one.at_work)))

    def _fill(self, replica: Replica) -> None:
        while self._waiting[replica.site.pool] and replica.room(job_is_paid=True):
            run = self._queue.pop(replica, self.now_ms)
            if run is None:
                break
            self._begin(replica, self._jobs[run])

    def _begin(self, replica: Replica, job: Job) -> None:
        self._stand(job, waits=False)
        replica.at_work[job.run] = job
        job.beginnings += 1
        beginning = job.beginnings
        site = replica.site
        crowd = max(1.0, len(replica.at_work) / site.slots)
        write_ms = job.answer_tokens * 1_000 * crowd / site.tokens_per_s
        if beginning == 1:  # an answer has one first token
            self._tally(job).ttft_ms.append(self.now_ms - job.sent_ms + site.prefill_s * 1_000)

        def end() -> None:
            if job.beginnings == beginning and job.run in replica.at_work:
                self._end(replica, job, write_ms)

        self._after(site.prefill_s * 1_000 + write_ms, end)

    def _end(self, replica: Replica, job: Job, write_ms: float) -> None:
        del replica.at_work[job.run], self._jobs[job.run]
        if self._is_on:
            self.busy_ms += write_ms
        self._tally(job).tokens += job.answer_tokens
        self._queue.ended(job, self.now_ms)
        self._fill(replica)
        if job.script and self._is_on:
            self._send(self._job(job.group, job.user, script=True), tries=1)

    def _lose(self, count: int) -> None:
        """Their answers go on elsewhere; here, from the beginning."""
        for replica in self.replicas[LARGE][:count]:
            replica.is_there = False
            for job in replica.at_work.values():
                self._stand(job, waits=True)
                self._queue.give_back(job, self.now_ms)
            replica.at_work.clear()
        self._dispatch(LARGE)

    def _restore(self) -> None:
        for replica in self.replicas[LARGE]:
            replica.is_there = True
        self._dispatch(LARGE)

    @property
    def use(self) -> float:
        """The share of the slots' time in which something was written, while people came."""
        slots = sum(site.replicas * site.slots for site in self.sites.values())
        return self.busy_ms / (slots * self._length_ms)


def capacity(sites: dict[str, Site]) -> float:
    """Tokens a second of all that is there."""
    return sum(site.capacity for site in sites.values())
