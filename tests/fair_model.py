"""The fair queue in plain Python: what the scripts of generation/scheduler/lua are held against.

Lists and dictionaries, no Redis, no clock of its own. It is written to be read: a line is a list, a
rotation is a list, and a user's standing follows from both.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from generation.scheduler import QueueEntry

CHORES = "~"
CLAIM_MS = 10_000
LOCALITY_MS = 150
HEARD_MS = 3_000
FRESH_MS = 15_000
LOOK = 8
LOST_MS = 3_000
LAG_TOKENS = 65_536


@dataclass(slots=True)
class Plan:
    """`rotation`: the users who may be served, the next one first. `tag`: where its next run
    starts, in tokens by weight. `epoch` counts the times it became ready, `slack` is what of its
    tag is from before the last."""

    name: str
    tag: float = 0.0
    epoch: int = 0
    slack: float = 0.0
    weight: int = 1
    is_paid: bool = False
    rotation: list[str] = field(default_factory=list)

    def rank(self) -> tuple[float, bool, int, str]:
        return (self.tag, not self.is_paid, -self.weight, self.name)


@dataclass(slots=True)
class Job:
    entry: QueueEntry
    queued_ms: int
    preferred: str = ""
    ticket_of: str = ""

    @property
    def plan(self) -> str:
        return CHORES if self.entry.kind == "chore" else self.entry.plan

    @property
    def line(self) -> tuple[str, str]:
        return (self.plan, self.entry.user)


@dataclass(slots=True)
class Held:
    user: str
    plan: str
    cost: int
    epoch: int
    replica: str
    popped_ms: int


@dataclass(slots=True)
class FairModel:
    jobs: dict[str, Job] = field(default_factory=dict)
    lines: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    caps: dict[tuple[str, str], int] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    at_work: dict[str, Held] = field(default_factory=dict)
    replicas: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    virtual: float = 0.0
    owed: int = 0
    is_paused: bool = False
    chores_paused: bool = False
    now_ms: int = 0
    looked_ms: int = 0

    # --- the verbs --------------------------------------------------------------------------------

    def enqueue(self, entry: QueueEntry) -> tuple[bool, str]:
        if entry.run in self.jobs:
            return False, ""
        held = self.at_work.get(entry.run)
        if held is not None:
            if held.popped_ms + CLAIM_MS > self.now_ms:
                return False, ""
            self._release(entry.run, 0)
        return True, self._add(entry, "back", held.replica if held is not None else "")

    def requeue_front(self, entry: QueueEntry, replica: str = "") -> tuple[bool, str]:
        if entry.run in self.jobs:
            return False, ""
        giver = replica
        held = self.at_work.get(entry.run)
        if held is not None:
            is_its_own = replica in ("", held.replica)
            if not is_its_own and held.popped_ms + CLAIM_MS > self.now_ms:
                return False, ""
            giver = held.replica
            self._release(entry.run, 0)
        return True, self._add(entry, "front", giver)

    def pop(
        self, replica: str, at_work: int, slots: int, burst: int
    ) -> tuple[QueueEntry | None, int, str]:
        """The run, how long somebody is kept, and who is sent the ticket instead."""
        run, kept_ms = None, 0
        if not self.is_paused:
            run, kept_ms = self._choose(replica, at_work < slots, at_work < slots + burst)
        if run is None:
            passed_to = "" if kept_ms else self._pass_on(replica, at_work, slots, burst)
            if not kept_ms and not passed_to and self.owed < len(self.jobs):
                self.owed += 1
            return None, kept_ms, passed_to
        if run in self.at_work:
            self._release(run, 0)
        job = self.jobs[run]
        self._take_out(run)
        plan = self._plan(job.plan)
        if plan.name != CHORES:
            self.virtual = max(self.virtual, plan.tag)
            plan.tag += job.entry.cost_tokens / plan.weight
        self.at_work[run] = Held(
            job.entry.user, plan.name, job.entry.cost_tokens, plan.epoch, replica, self.now_ms
        )
        self._arrange(job.line, "tail")
        if plan.name != CHORES:
            self._arrange_others(job.entry.user, plan.name)
        return job.entry, 0, ""

    def beat(self, replica: str, slots: int, burst: int) -> tuple[list[str], int]:
        """Who was lost, and how many users could be served."""
        self.replicas[replica] = (slots, burst, self.now_ms)
        lost: list[str] = []
        if self.looked_ms + LOST_MS <= self.now_ms:
            self.looked_ms = self.now_ms
            lost = [name for name in self.replicas if not self._is_fresh(name)]
        for name in lost:
            del self.replicas[name]
        ready = 0 if self.is_paused else sum(len(plan.rotation) for plan in self._ready())
        return sorted(lost), ready

    def remove(self, run: str) -> bool:
        job = self.jobs.get(run)
        if job is None:
            return False
        self._take_out(run)
        self._arrange(job.line, "keep")
        return True

    def ended(self, run: str, spent: int | None, replica: str = "") -> tuple[bool, bool]:
        held = self.at_work.get(run)
        if held is None or replica not in ("", held.replica):
            return False, False
        self._release(run, held.cost if spent is None else spent)
        if not self.owed:
            return True, False
        self.owed -= 1
        return True, any(plan.rotation for plan in self.plans.values())

    def rebuild(self, waiting: list[QueueEntry], at_work: list[tuple[QueueEntry, str]]) -> None:
        for part in (self.jobs, self.lines, self.caps, self.plans, self.at_work):
            part.clear()
        self.virtual, self.owed = 0.0, 0
        for entry, replica in at_work:
            plan = self._plan(CHORES if entry.kind == "chore" else entry.plan)
            if plan.name != CHORES:
                plan.weight, plan.is_paid = entry.weight, entry.is_paid
            self.at_work[entry.run] = Held(
                entry.user, plan.name, entry.cost_tokens, -1, replica, self.now_ms
            )
        for entry in waiting:
            if entry.run not in self.jobs and entry.run not in self.at_work:
                self._add(entry, "rebuilt")

    # --- whose turn it is -------------------------------------------------------------------------

    def _choose(self, me: str, has_slot: bool, has_burst: bool) -> tuple[str | None, int]:
        plans = self._ready()
        kept_longest = 0
        for plan in plans:
            may = has_slot or (plan.is_paid and has_burst and not self._is_far_ahead(plan))
            if not may:
                continue
            run, kept = self._first_run(plan, me)
            if run is not None:
                return run, 0
            kept_longest = min(kept_longest or kept, kept)
        chores = self.plans.get(CHORES)
        if not plans and has_slot and chores and chores.rotation and not self.chores_paused:
            return self._first_run(chores, me)
        return None, kept_longest

    def _first_run(self, plan: Plan, me: str) -> tuple[str | None, int]:
        kept_shortest = 0
        for user in plan.rotation[:LOOK]:
            run = self.lines[plan.name, user][0]
            kept = self._kept_ms(self.jobs[run], me)
            if not kept:
                return run, 0
            kept_shortest = min(kept_shortest or kept, kept)
        return None, kept_shortest

    def _pass_on(self, me: str, at_work: int, slots: int, burst: int) -> str:
        """Somebody could be served here but for a slot: who has one, and no such ticket yet?"""
        plans = [] if self.is_paused or at_work < slots else self._ready()
        without_slot = [
            plan
            for plan in plans
            if not (plan.is_paid and at_work < slots + burst and not self._is_far_ahead(plan))
        ]
        chores = self.plans.get(CHORES)
        may_chores = at_work >= slots and not (self.is_paused or self.chores_paused)
        if may_chores and not plans and chores is not None:
            without_slot = [chores]
        for plan in without_slot:
            heads = [self.jobs[self.lines[plan.name, user][0]] for user in plan.rotation[:LOOK]]
            job = next((job for job in heads if not job.ticket_of), None)
            if job is not None:
                job.ticket_of = self._with_room(job, me)
                if job.ticket_of:
                    return job.ticket_of
        return ""

    def _is_far_ahead(self, plan: Plan) -> bool:
        return any(
            (plan.tag - other.tag) * other.weight > LAG_TOKENS
            for other in self._ready()
            if not other.is_paid
        )

    def _ready(self) -> list[Plan]:
        ready = [plan for plan in self.plans.values() if plan.rotation and plan.name != CHORES]
        return sorted(ready, key=Plan.rank)

    def _standing(self) -> float:
        plans = self._ready()
        weights, total = 0, 0.0
        for plan in plans:
            weights += plan.weight
            total += plan.weight * plan.tag
        return min(self.virtual, total / weights) if weights else self.virtual

    # --- locality ---------------------------------------------------------------------------------

    def _is_fresh(self, name: str) -> bool:
        return name in self.replicas and self.replicas[name][2] + FRESH_MS >= self.now_ms

    def _room(self, name: str, *, is_paid: bool) -> int:
        slots, burst, seen_ms = self.replicas[name]
        if seen_ms + HEARD_MS < self.now_ms:
            return 0
        busy = sum(held.replica == name for held in self.at_work.values())
        return max(0, slots + (burst if is_paid else 0) - busy)

    def _with_room(self, job: Job, but: str) -> str:
        """The replica that the job prefers, or the emptiest, where what comes to it fits in too."""
        is_paid = job.entry.is_paid and job.plan != CHORES
        coming = Counter(one.ticket_of for one in self.jobs.values())
        room = {
            name: self._room(name, is_paid=is_paid) - coming[name]
            for name in self.replicas
            if name != but
        }
        found = sorted(name for name in room if room[name] > 0)
        if job.preferred in found:
            return job.preferred
        return max(found, key=lambda name: room[name], default="")

    def _preferred(self, conversation: str) -> str:
        names = [name for name in self.replicas if self._is_fresh(name) and self.replicas[name][0]]

        def weight(name: str) -> str:
            text = f"{name}|{conversation}".encode()
            return hashlib.sha1(text, usedforsecurity=False).hexdigest()

        return max(names, key=weight, default="")

    def _kept_ms(self, job: Job, me: str) -> int:
        left = job.queued_ms + LOCALITY_MS - self.now_ms
        if job.preferred in ("", me) or left <= 0 or not self._is_fresh(job.preferred):
            return 0
        return left if self._room(job.preferred, is_paid=job.entry.is_paid) else 0

    # --- keeping it together ----------------------------------------------------------------------

    def _plan(self, name: str) -> Plan:
        return self.plans.setdefault(name, Plan(name))

    def _add(self, entry: QueueEntry, how: str, but: str = "") -> str:
        job, front = Job(entry, self.now_ms), how == "front"
        if not front and entry.conversation:
            job.preferred = self._preferred(entry.conversation)
        is_next = front or not self.waiting_by_user().get(entry.user)
        is_below = job.plan == CHORES or self.busy()[entry.user] < entry.cap
        if how != "rebuilt" and is_next and is_below:
            job.ticket_of = self._with_room(job, but)
        self.jobs[entry.run] = job
        line = self.lines.setdefault(job.line, [])
        line.insert(0 if front else len(line), entry.run)
        plan = self._plan(job.plan)
        if plan.name != CHORES:
            plan.weight, plan.is_paid = entry.weight, entry.is_paid
        self.caps[job.line] = entry.cap
        self._arrange(job.line, "front" if front else "keep")
        return job.ticket_of

    def _take_out(self, run: str) -> None:
        job = self.jobs.pop(run)
        line = self.lines[job.line]
        line.remove(run)
        if not line:
            del self.lines[job.line]

    def _release(self, run: str, spent: int) -> None:
        held = self.at_work.pop(run)
        if held.plan == CHORES:
            return
        plan = self.plans.get(held.plan)
        if plan is not None:
            _settle(plan, held.epoch, spent - held.cost)
        self._arrange_others(held.user)

    def _arrange_others(self, user: str, but: str | None = None) -> None:
        for name in sorted(self.plans):
            if name != but and (name, user) in self.lines:
                self._arrange((name, user), "keep")

    def _arrange(self, line: tuple[str, str], how: str) -> None:
        name, user = line
        plan = self.plans[name]
        stands = user in plan.rotation
        shall = line in self.lines and (name == CHORES or self.busy()[user] < self.caps[line])
        if shall and not stands and not plan.rotation and name != CHORES:
            standing = self._standing()
            plan.epoch, plan.slack = plan.epoch + 1, max(0.0, plan.tag - standing)
            plan.tag = max(plan.tag, standing)
        if stands and not (shall and how == "keep"):
            plan.rotation.remove(user)
        if shall and (not stands or how != "keep"):
            plan.rotation.insert(0 if how == "front" else len(plan.rotation), user)

    # --- looking ----------------------------------------------------------------------------------

    def busy(self) -> Counter[str]:
        return Counter(held.user for held in self.at_work.values() if held.plan != CHORES)

    def waiting_by_user(self) -> dict[str, int]:
        return dict(Counter(job.entry.user for job in self.jobs.values()))


def _settle(plan: Plan, epoch: int, difference: int) -> None:
    change = difference / plan.weight
    if plan.epoch != epoch:
        if plan.slack <= 0 or epoch < 0:
            return
        change = max(change, -plan.slack)
        plan.slack += change
    plan.tag += change
