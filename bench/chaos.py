"""What is lost while web processes, workers, engines and Valkey are killed at random.

People send and read as the page does (bench/support/patient.py), and read their history between,
while every second or two something is killed with SIGKILL, and a worker now and then stopped for
longer than its lease (SIGSTOP). At the end nothing is killed any more, all answers are awaited, and
what each sender saw is held against PostgreSQL: the number of runs, the stored replies, the usage.
The engine counts (w1 w2 w3 …), so that each answer's text is known before.

For some seconds workers are killed, for some Valkey is, and engines and web processes all the time:
a run that loses its log and its owner at once has nowhere to be, and ends with its last checkpoint.
Where it happens all the same it is counted apart, as `double_losses`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from uuid import UUID

import httpx

from bench.support.cli import Bench, Target
from bench.support.patient import Person, Shown
from bench.support.people import make_people
from bench.support.services import Process, Services, Web
from chatproject.embedded.ports import free_port

POOL: Final = "sim"
WEBS: Final = 2
WORKERS: Final = 3
SLOTS: Final = 8
WORDS: Final = (20, 240)
QUICK_WORDS: Final = (20, 100)
TOKENS_PER_S: Final = 40
PAUSE_S: Final = (0.5, 2.0)
"""Between two kills."""
DOWN_S: Final = (0.0, 2.0)
"""How long what was killed stays away."""
FROZEN_S: Final = 9.0
"""Longer than a lease lasts."""
DOUBLE_LOSS_S: Final = 10.0
"""A worker killed so shortly before or after Valkey (a lease, a second look and a sweep): its runs
had nowhere else to be."""
PHASES_S: Final = (20.0, 16.0, 30.0, 16.0)
QUICK_PHASES_S: Final = (4.0, 11.0, 10.0, 12.0)
"""How long Valkey is killed, neither, workers, neither: until no lease is waited for."""
KINDS: Final = frozenset({"web", "worker", "engine", "valkey"})
READ_S: Final = 0.3
TARGETS: Final = {
    "lost": Target(0),
    "duplicated": Target(0),
    "mismatched": Target(0),
    "interrupted": Target(0),
    "read_failures_share": Target(0.0005),
}
ROWS: Final = (
    ("sends", "accepted"),
    ("kills", "of web processes, workers, engines and Valkey"),
    ("lost", "accepted, and never ended or never stored"),
    ("duplicated", "runs, messages or usage entries beside the one"),
    ("mismatched", "answers shown otherwise than stored, or not as the engine wrote them"),
    ("interrupted", "answers that broke off"),
    ("double_losses", "answers that broke off for want of both log and owner; not counted"),
    ("read_failures_share", "of the reads of history"),
    ("reads", "of history"),
    ("connections_per_answer", ""),
    ("recovered", "answers that another owner has finished"),
    ("longest_answer_s", "from the send to `done`"),
    ("minutes", "of killing"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    bench = Bench.of_command_line(
        "chaos",
        "Sends while everything is killed at random.",
        [
            ("--people", 24, "people who talk"),
            ("--sends", 0, "how many, at least; 0: 1,000, quick 100"),
            ("--kills", 0, "how many, at least; 0: 100, quick 10"),
            ("--seed", 0, "of what is killed when; 0: another one each time"),
        ],
        arguments,
    )
    options = bench.options
    bench.say("starting PostgreSQL, Valkey")
    with Services({"WORKER_GRACE_S": "1", "DATABASE_POOL_SIZE": "6"}) as services:
        house = House(bench, services)
        services.env["ENGINE_PROFILES"] = json.dumps({POOL: house.profile(0)})
        services.set_up_django()
        tokens = make_people(options.people)
        _patience_of_pool()
        house.start()
        seed = options.seed or random.SystemRandom().randrange(1, 1_000_000)
        bench.say(f"killing begins (--seed {seed})")
        people = asyncio.run(_chaos(bench, house, tokens, random.Random(seed)))
        _hold_against(bench, house, people)
    return bench.finish(ROWS, TARGETS)


def _patience_of_pool() -> None:
    from generation.models import Pool

    Pool.objects.update(silence_s=3)


class House:
    """All that can be killed, each with the one that comes after it."""

    def __init__(self, bench: Bench, services: Services) -> None:
        self._bench = bench
        self.services = services
        self.ports = [free_port() for _ in range(WORKERS)]
        self.webs: list[Web] = []
        self.workers: list[Process] = []
        self.engines: list[Process] = []
        self.kills: list[tuple[float, str]] = []  # Unix time, what
        self.busy: set[str] = set()

    def profile(self, number: int) -> dict[str, object]:
        """Each worker has an engine of its own, behind HTTP."""
        return {
            "kind": "openai",
            "model": "sim",
            "url": f"http://127.0.0.1:{self.ports[number]}",
            "slots": SLOTS,
            "context_tokens": 32_768,
            "options": {"can_continue": True},
        }

    def start(self) -> None:
        self._bench.say(f"starting {WEBS} web processes, {WORKERS} workers, {WORKERS} engines")
        self.engines = [self.services.spawn_engine(port) for port in self.ports]
        self.webs = [self.services.spawn_web(free_port()) for _ in range(WEBS)]
        self.workers = [self._worker(number) for number in range(WORKERS)]
        for web in self.webs:
            web.wait()
        for number, worker in enumerate(self.workers):
            self._wait_healthy(worker, number)

    def _worker(self, number: int) -> Process:
        profile = json.dumps({POOL: self.profile(number)})
        more = {"ENGINE_PROFILES": profile}
        return self.services.spawn_worker(POOL, SLOTS, number + 1, more)

    def _wait_healthy(self, worker: Process, number: int) -> None:
        worker.wait_until(lambda: self.services.is_healthy(POOL, number + 1), "a healthy replica")

    def has_killed_all(self) -> bool:
        """Something of each kind."""
        return {what.partition(" ")[0] for _, what in self.kills} >= KINDS

    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{web.port}" for web in self.webs]

    # --- what can happen --------------------------------------------------------------------------

    async def kill_web(self, chance: random.Random) -> None:
        at = chance.randrange(WEBS)
        async with self._alone(f"web {at}", of="web"):
            self.webs[at].kill()
            await self._stay_away(chance)
            self.webs[at] = self.services.spawn_web(self.webs[at].port)
            await asyncio.to_thread(self.webs[at].wait)

    async def kill_worker(self, chance: random.Random) -> None:
        at = chance.randrange(WORKERS)
        async with self._alone(f"worker {at}"):
            self.workers[at].kill()
            await self._stay_away(chance)
            self.workers[at] = self._worker(at)

    async def freeze_worker(self, chance: random.Random) -> None:
        at = chance.randrange(WORKERS)
        async with self._alone(f"worker {at}"):
            self.workers[at].freeze()
            await asyncio.sleep(FROZEN_S)
            self.workers[at].thaw()

    async def kill_engine(self, chance: random.Random) -> None:
        at = chance.randrange(WORKERS)
        async with self._alone(f"engine {at}"):
            self.engines[at].kill()
            await self._stay_away(chance)
            self.engines[at] = self.services.spawn_engine(self.ports[at])

    async def kill_valkey(self, chance: random.Random) -> None:
        async with self._alone("valkey"):
            self.services.valkey.kill()
            await self._stay_away(chance)
            self.services.valkey.start()  # here: children end with the thread that forks

    async def _stay_away(self, chance: random.Random) -> None:
        await asyncio.sleep(chance.uniform(*DOWN_S))

    @contextlib.asynccontextmanager
    async def _alone(self, what: str, of: str = "") -> Any:
        """One thing is not killed again before it is back; of web processes one stays alive."""
        name = of or what
        if name in self.busy:
            raise Busy
        self.busy.add(name)
        self.kills.append((time.time(), what))
        try:
            yield
        finally:
            self.busy.discard(name)


class Busy(Exception):
    """It is away already."""


Deed = Callable[[random.Random], Awaitable[None]]


async def _chaos(
    bench: Bench, house: House, tokens: Sequence[str], chance: random.Random
) -> list[Person]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, timeout=20.0) as client:
        people = [Person(client, token, house.urls) for token in tokens]
        enough = asyncio.Event()
        words = QUICK_WORDS if bench.quick else WORDS
        work = [asyncio.create_task(_talk(person, chance, words, enough)) for person in people]
        reading = asyncio.create_task(_read(people, enough))
        began_s = time.monotonic()
        await _kill(bench, house, people, chance)
        bench.figures["minutes"] = round((time.monotonic() - began_s) / 60, 1)
        bench.say("nothing is killed any more; waiting for the last answers")
        enough.set()
        await asyncio.gather(*work, reading)
    return people


async def _talk(
    person: Person, chance: random.Random, words: tuple[int, int], enough: asyncio.Event
) -> None:
    while not enough.is_set():
        await person.talk(_script, chance.randint(*words))


def _script(words: int) -> str:
    return f'Go on. [[sim {{"tokens": {words}, "tokens_per_s": {TOKENS_PER_S}}}]]'


async def _read(people: Sequence[Person], enough: asyncio.Event) -> None:
    for person in _round(people):
        if enough.is_set():
            return
        await person.read_history()
        await asyncio.sleep(READ_S)


def _round(people: Sequence[Person]) -> Any:
    while True:
        yield from people


async def _kill(
    bench: Bench, house: House, people: Sequence[Person], chance: random.Random
) -> None:
    sends = bench.options.sends or (100 if bench.quick else 1_000)
    kills = bench.options.kills or (10 if bench.quick else 100)
    always: list[Deed] = [house.kill_web, house.kill_engine]
    by_phase: list[list[Deed]] = [
        [*always, house.kill_valkey, house.kill_valkey],
        always,
        [*always, house.freeze_worker, house.kill_worker, house.kill_worker],
        always,
    ]
    phases_s = QUICK_PHASES_S if bench.quick else PHASES_S
    phases = itertools.cycle(zip(phases_s, by_phase, strict=True))
    under_way: set[asyncio.Task[None]] = set()
    told_s = time.monotonic()
    until_s, deeds = 0.0, always
    first: list[Deed] = []
    while _ended(people) < sends or len(house.kills) < kills or not house.has_killed_all():
        await asyncio.sleep(chance.uniform(*PAUSE_S))
        now_s = time.monotonic()
        if now_s > until_s:
            phase_s, deeds = next(phases)
            until_s = now_s + phase_s
            # What this phase is for comes first: chance might leave it out.
            first = deeds[-1:]
        deed = first.pop() if first else chance.choice(deeds)
        under_way.add(asyncio.create_task(_try(deed, chance)))
        if now_s - told_s > 10:
            told_s = now_s
            bench.say(f"{_ended(people)} answers, {len(house.kills)} kills")
    await asyncio.gather(*under_way)


async def _try(deed: Deed, chance: random.Random) -> None:
    with contextlib.suppress(Busy):
        await deed(chance)


def _ended(people: Sequence[Person]) -> int:
    return sum(bool(shown.finish) for person in people for shown in person.shown)


# --- what became of it ----------------------------------------------------------------------------


def _hold_against(bench: Bench, house: House, people: Sequence[Person]) -> None:
    sent = [one for person in people for one in person.shown]
    shown = [one for one in sent if one.accepted]
    stored = _stored([one.run for one in shown])
    problems: dict[str, list[str]] = {"lost": [], "duplicated": [], "mismatched": []}
    problems["lost"] += [f"{one.key} was refused for minutes" for one in sent if not one.accepted]
    broken: list[Shown] = []
    for one in shown:
        for figure, problem in _problems(one, stored.get(one.run)):
            problems[figure].append(f"{one.run}: {problem}")
        if one.finish == "interrupted":
            broken.append(one)
    doubles = [one for one in broken if _is_double_loss(house, one)]
    problems["duplicated"] += _duplicates(people)
    failed_reads = [problem for person in people for problem in person.failed_reads]
    for figure, lines in {**problems, "reads": failed_reads}.items():
        for line in lines[:5]:
            bench.say(f"{figure}: {line}")
    reads = sum(person.reads for person in people)
    bench.figures |= {
        "sends": len(shown),
        "kills": len(house.kills),
        **{figure: len(lines) for figure, lines in problems.items()},
        "interrupted": len(broken) - len(doubles),
        "double_losses": len(doubles),
        "reads": reads,
        "read_failures_share": len(failed_reads) / max(1, reads),
        "connections_per_answer": round(
            sum(one.connections for one in shown) / max(1, len(shown)), 2
        ),
        "recovered": sum(stored[one.run]["epoch"] > 1 for one in shown if one.run in stored),
        "longest_answer_s": round(max((one.ended_s - one.began_s for one in shown), default=0), 1),
    }


def _stored(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of each run that PostgreSQL has: how it ended, its reply's text, its entries of usage."""
    from accounts.ids import parse_id
    from generation import runs
    from generation.models import Run
    from quotas.models import UsageEntry

    ids = [parse_id("g", name) for name in names if name]
    texts: dict[str, str] = {}
    for at in range(0, len(ids), runs.MAX_RUNS_PER_LOOKUP):
        part = [f"g_{one.hex}" for one in ids[at : at + runs.MAX_RUNS_PER_LOOKUP]]
        texts |= {run: end.text for run, end in runs.run_ends(part).items() if end is not None}
    used: dict[UUID, int] = {}
    for run_id in UsageEntry.objects.filter(run_id__in=ids).values_list("run_id", flat=True):
        used[run_id] = used.get(run_id, 0) + 1
    return {
        row.external_id: {
            "finish": row.finish,
            "epoch": row.epoch,
            "text": texts.get(row.external_id),
            "output_tokens": row.output_tokens,
            "entries": used.get(row.id, 0),
        }
        for row in Run.objects.filter(id__in=ids)
    }


def _problems(one: Shown, stored: dict[str, Any] | None) -> list[tuple[str, str]]:
    found = [("mismatched", problem) for problem in one.problems]
    if not one.finish:
        return [*found, ("lost", "it did not end")]
    if stored is None or stored["text"] is None:
        return [*found, ("lost", "it is not stored")]
    if stored["entries"] != 1:
        found.append(("duplicated", f"{stored['entries']} entries of usage"))
    if (stored["text"], stored["finish"]) != (one.text, one.finish):
        found.append(("mismatched", f"shown {one.text[-40:]!r}, stored {stored['text'][-40:]!r}"))
    whole = " ".join(f"w{number}" for number in range(1, one.words + 1))
    if one.finish == "stop" and one.text != whole:
        found.append(("mismatched", f"{len(one.text)} characters instead of {len(whole)}"))
    if one.finish == "stop" and stored["output_tokens"] != one.words:
        found.append(("mismatched", f"{stored['output_tokens']} tokens, not {one.words}"))
    if one.finish not in ("stop", "interrupted"):
        found.append(("mismatched", f"it ended as {one.finish}"))
    return found


def _duplicates(people: Sequence[Person]) -> list[str]:
    """Runs and messages that no send stands for."""
    from accounts.ids import parse_id
    from conversations.models import Message
    from generation.models import IdempotencyKey, Run

    keys = {one.key: one for person in people for one in person.shown}
    rows = IdempotencyKey.objects.filter(key__in=keys).values_list("key", "run_id")
    known = dict(rows)
    problems = [
        f"{one.run}: its key stands for another run"
        for key, one in keys.items()
        if one.run and known.get(key) != parse_id("g", one.run)
    ]
    extra = Run.objects.exclude(id__in=known.values()).count()
    if extra:
        problems += [f"{extra} runs without a send"]
    messages = Message.objects.filter(role="user").count()
    if messages != len(known):
        problems.append(f"{messages} messages for {len(known)} sends")
    return problems


def _is_double_loss(house: House, one: Shown) -> bool:
    """Whether Valkey and a worker were both killed around the time it was written."""
    span = [
        (at_s, what)
        for at_s, what in house.kills
        if one.began_s - DOUBLE_LOSS_S < at_s < (one.ended_s or time.time())
    ]
    lost = [at_s for at_s, what in span if what == "valkey"]
    return any(
        abs(at_s - lost_s) < DOUBLE_LOSS_S
        for at_s, what in span
        if what.startswith("worker")
        for lost_s in lost
    )


if __name__ == "__main__":
    sys.exit(main())
