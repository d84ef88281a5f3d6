"""What a busy queue costs those who should not notice it; in fair order, and first in, first out.

The real stack with a simulated engine of a few slots, each answer a second long or two:

- one user runs 50 chats at once, another of the same plan sends one at a time;
- free people send at 1.3 times what the slots can serve, and a few who pay send between them;
- a thousand clients that were refused try again at the same moment, time after time.

The first two are measured in the product's order, and in the order in which they came
(SCHEDULER_ORDER=fifo, a switch that exists for this alone). All times are to the first token,
from the send.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from bench.support.cli import Bench, Target
from bench.support.numbers import percentile
from bench.support.peer import Peer
from bench.support.people import make_people
from bench.support.services import Services

POOL: Final = "sim"
PAID_PLAN: Final = "bench-paid"
SLOTS: Final = 8
PAID_BURST: Final = 2
TTFT_MS: Final = 300
TOKENS_PER_S: Final = 40
CHATS: Final = 50
STORM: Final = 1_000
STORM_EVERY_S: Final = 2.0
FREE_USERS: Final = 40
PAID_USERS: Final = 12
OVERLOAD: Final = 1.3
PAID_LOAD: Final = 0.15
"""Shares of what the slots can serve."""
WINDOWS_S: Final = {"alone": 4.0, "storm": 3.0, "neighbour": 4.0, "paid": 6.0}
"""Of the quick version; in the order in which they came, half."""
LOCALITY_S: Final = 0.15
"""How long a run may be passed over for its replica."""
ORDERS: Final = ("fair", "fifo")
FIGURES: Final = ("p50_ms", "p95_ms")
TARGETS: Final = {
    "paid_ttft_ratio_p95": Target(1.2),
    "neighbour_delay_turns": Target(1.5),
    "paid_overtaken": Target(0),
    "storm_ttft_ratio_p95": Target(1.2),
    "keyed_storm_ttft_ratio_p95": Target(1.2),
    "failed": Target(0),
}


def _rows() -> list[tuple[str, str]]:
    rows = [
        ("paid_ttft_ratio_p95", "who pays: under load against unloaded"),
        ("neighbour_delay_turns", "of the crowd's answers, that a neighbour waits longer (p95)"),
        ("fifo_paid_ttft_ratio_p95", "the same, first in, first out"),
        ("fifo_neighbour_delay_turns", ""),
        ("paid_overtaken", "paid runs that a later free one was begun before"),
        ("free_share", "of the answers begun under load, those of free people"),
        ("storm_ttft_ratio_p95", f"while {STORM} refused clients try again at once: to alone"),
        ("storm_s", "until the last of them has its refusal"),
        ("keyed_storm_ttft_ratio_p95", "the same, each with an idempotency key of its own"),
        ("keyed_storm_s", ""),
    ]
    alone = [("alone", "somebody by themselves, of either plan")]
    alone.append(("storm", f"while {STORM} refused clients try again at once"))
    alone.append(("keyed_storm", "the same, each with an idempotency key"))
    groups = [("neighbour", f"beside {CHATS} chats of one user"), ("crowd", "those chats")]
    groups += [("paid", "beside free people at 1.3 times capacity"), ("free", "those people")]
    for name, text in alone:
        rows += [(f"{name}_{figure}", text) for figure in FIGURES]
    for order in ORDERS:
        rows += [(f"{order}_{name}_{f}", text) for name, text in groups for f in FIGURES]
    return [*rows, ("failed", "answers of those measured that were refused or broke off")]


@dataclass(frozen=True, slots=True)
class People:
    """API tokens: one user with many chats, a neighbour of the same plan, free people, payers, and
    one who may send once a minute."""

    crowd: str
    neighbour: str
    free: list[str]
    paid: list[str]
    refused: str


def main(arguments: Sequence[str] | None = None) -> int:
    bench = Bench.of_command_line(
        "fairness",
        "A busy queue, and those who should not notice it.",
        [
            ("--tokens", 0, "tokens of an answer; 0: 60, quick 16"),
            ("--seconds", 0, "of each measurement; 0: 40, quick 2 to 6"),
        ],
        arguments,
    )
    tokens = bench.options.tokens or (16 if bench.quick else 60)
    bench.say("starting PostgreSQL, Valkey")
    env = {"ENGINE_PROFILES": json.dumps({POOL: _profile(tokens)}), "WORKER_GRACE_S": "0"}
    with Services(env) as services:
        services.set_up_django()
        people = _people()
        first, second = (Peer.start(services, name, "bench.support.load") for name in ("a", "b"))
        house = House(bench, services, people, first, second, tokens)
        for order in ORDERS:
            house.measure(order)
    _note_ratios(bench, house.turn_s)
    return bench.finish(_rows(), TARGETS)


def _profile(tokens: int) -> dict[str, object]:
    script = {"tokens": tokens, "tokens_per_s": TOKENS_PER_S, "ttft_s": TTFT_MS / 1000}
    return {"kind": "simulated", "slots": SLOTS, "context_tokens": 8_192, "options": script}


def _people() -> People:
    """Nobody has a limit but the queue's: what is measured is the order."""
    crowd, neighbour, *free = make_people(2 + FREE_USERS, ttft_deadline_ms=600_000)
    paid = make_people(PAID_USERS, PAID_PLAN, weight=8, is_paid=True, ttft_deadline_ms=600_000)
    (refused,) = make_people(1, "bench-refused", requests_per_minute=1)
    return People(crowd, neighbour, free, paid, refused)


class House:
    """A web process and a worker in one order, and two loads that talk to them."""

    def __init__(
        self,
        bench: Bench,
        services: Services,
        people: People,
        first: Peer,
        second: Peer,
        tokens: int,
    ) -> None:
        self._bench = bench
        self._services = services
        self._people = people
        self._first, self._second = first, second
        self.turn_s = TTFT_MS / 1000 + tokens / TOKENS_PER_S
        self._port = 0

    def _window_s(self, what: str, order: str = "fair") -> float:
        if self._bench.options.seconds or not self._bench.quick:
            return float(self._bench.options.seconds or 40)
        return WINDOWS_S[what] / (1 if order == "fair" else 2)

    def measure(self, order: str) -> None:
        self._bench.say(f"starting a web process and a GPU worker, order: {order}")
        self._services.env["SCHEDULER_ORDER"] = order
        web, worker = self._services.start_web_and_worker(POOL, SLOTS, PAID_BURST)
        self._port = web.port
        try:
            if order == "fair":
                self._warm_up()
                self._alone()
                self._storm("storm", keyed=False)
                self._storm("keyed_storm", keyed=True)
            self._neighbour(order)
            self._paid(order)
        finally:
            worker.stop()
            web.stop()

    def _warm_up(self) -> None:
        self._first.ask("chat", port=self._port, tokens=self._people.paid, content="Hi", over_s=0.5)
        time.sleep(min(4.0, 2 * self.turn_s))
        self._first.ask("hush")
        self._drain()

    def _alone(self) -> None:
        """One send after the other, of somebody who pays and somebody who does not."""
        self._bench.say("somebody by themselves")
        tokens = [self._people.neighbour, *self._people.paid[:2]]
        self._first.ask("chat", port=self._port, tokens=tokens, content="Hi", over_s=self.turn_s)
        time.sleep(self._window_s("alone"))
        self._note("alone", self._begun(self._first))

    def _storm(self, name: str, *, keyed: bool) -> None:
        """Its clients send what one of them was refused a moment ago. With keys each may be the
        retry of one that was accepted, so each is looked up."""
        self._bench.say(f"somebody by themselves, and {STORM} clients that were refused ({name})")
        storm = {
            "port": self._port,
            "token": self._people.refused,
            "content": "Hi",
            "keyed": keyed,
        }
        self._first.ask("storm", clients=2, **storm)
        tokens = self._people.paid[:3]
        self._second.ask("chat", port=self._port, tokens=tokens, content="Hi", over_s=self.turn_s)
        until_s, took_s = time.monotonic() + self._window_s("storm"), 0.0
        while time.monotonic() < until_s:
            found = self._first.ask("storm", clients=STORM, **storm)
            if found["refused"] < STORM - 1:  # at most one has its turn meanwhile
                raise RuntimeError(f"only {found['refused']} were refused")
            took_s = max(took_s, found["took_s"])
            time.sleep(max(0.0, STORM_EVERY_S - found["took_s"]))
        self._note(name, self._begun(self._second))
        self._bench.figures[f"{name}_s"] = round(took_s, 2)

    def _neighbour(self, order: str) -> None:
        self._bench.say(f"one user with {CHATS} chats, and a neighbour")
        chats = [self._people.crowd] * CHATS
        self._first.ask("chat", port=self._port, tokens=chats, content="Hi", over_s=1.0)
        time.sleep(1.0 + self.turn_s)  # until all slots are theirs
        neighbour = [self._people.neighbour]
        self._second.ask("chat", port=self._port, tokens=neighbour, content="Hi", over_s=0)
        time.sleep(self._window_s("neighbour", order))
        crowd = self._first.ask("hush")["answers"]
        self._note(f"{order}_neighbour", self._begun(self._second))
        self._note(f"{order}_crowd", [one for one in crowd if one["first_s"]], counted=False)
        self._drain()

    def _paid(self, order: str) -> None:
        self._bench.say("free people at 1.3 times capacity, and some who pay")
        capacity = SLOTS / self.turn_s
        free = {"tokens": self._people.free, "rate": OVERLOAD * capacity, "seed": 1}
        self._first.ask("arrive", port=self._port, content="Hi", **free)
        time.sleep(2 * self.turn_s)  # until runs wait
        began_s = time.time()
        paid = {"tokens": self._people.paid, "rate": PAID_LOAD * capacity, "seed": 2}
        self._second.ask("arrive", port=self._port, content="Hi", **paid)
        time.sleep(self._window_s("paid", order))
        self._note(f"{order}_paid", self._begun(self._second))
        free_answers = self._first.ask("hush")["answers"]
        self._note(f"{order}_free", [one for one in free_answers if one["first_s"]], counted=False)
        if order == "fair":
            self._note_order(began_s)
        self._drain()

    def _begun(self, load: Peer) -> list[dict[str, Any]]:
        """The answers so far; of those that were sent, all have begun."""
        until_s = load.ask("seen")["at_s"]
        give_up_s = time.monotonic() + 20
        while load.ask("seen")["waits_since_s"] <= until_s and time.monotonic() < give_up_s:
            time.sleep(0.1)
        answers: list[dict[str, Any]] = load.ask("hush")["answers"]
        return [one for one in answers if one["sent_s"] <= until_s]

    def _drain(self) -> None:
        """Until nothing waits or runs: what was measured before must not slow what comes."""
        from generation.models import Run
        from generation.run_state import LIVE
        from generation.stopping import stop_run

        while live := list(Run.objects.filter(status__in=LIVE)):
            for run in live:
                stop_run(run)
            time.sleep(0.2)

    def _note(
        self, name: str, answers: Sequence[Mapping[str, Any]], *, counted: bool = True
    ) -> None:
        waits_ms = [(one["first_s"] - one["sent_s"]) * 1000 for one in answers if one["first_s"]]
        figures = self._bench.figures
        figures[f"{name}_p50_ms"] = round(percentile(waits_ms, 50))
        figures[f"{name}_p95_ms"] = round(percentile(waits_ms, 95))
        failed = [one["problem"] or "never begun" for one in answers if not one["first_s"]]
        if failed and counted:
            self._bench.say(f"{name}: {len(failed)} failed: {failed[0]}")
        figures["failed"] = figures.get("failed", 0) + (len(failed) if counted else 0)

    def _note_order(self, began_s: float) -> None:
        values = {"began": began_s, "locality": LOCALITY_S, "paid": PAID_PLAN}
        with psycopg.connect(self._services.env["DATABASE_URL"]) as connection:
            ((overtaken,),) = connection.execute(_OVERTAKEN, values)
            ((free, every),) = connection.execute(_BEGUN, values)
        self._bench.figures["paid_overtaken"] = overtaken
        self._bench.figures["free_share"] = round(free / max(1, every), 2)


# A paid run that was begun after a free one which had come later.
_OVERTAKEN = """
SELECT count(*) FROM generation_run paid
WHERE paid.plan = %(paid)s AND paid.queued_at > to_timestamp(%(began)s) AND EXISTS (
    SELECT 1 FROM generation_run free
    WHERE free.plan <> %(paid)s AND free.queued_at > paid.queued_at
        AND free.claimed_at < paid.claimed_at - make_interval(secs => %(locality)s)
)
"""
_BEGUN = """
SELECT count(*) FILTER (WHERE plan <> %(paid)s), count(*) FROM generation_run
WHERE claimed_at > to_timestamp(%(began)s)
"""


def _note_ratios(bench: Bench, turn_s: float) -> None:
    figures = bench.figures
    alone_ms = figures["alone_p95_ms"]
    for storm in ("storm", "keyed_storm"):
        figures[f"{storm}_ttft_ratio_p95"] = round(figures[f"{storm}_p95_ms"] / alone_ms, 2)
    for order, before in (("fair", ""), ("fifo", "fifo_")):
        ratio = figures[f"{order}_paid_p95_ms"] / alone_ms
        figures[f"{before}paid_ttft_ratio_p95"] = round(ratio, 2)
        late_ms = figures[f"{order}_neighbour_p95_ms"] - alone_ms
        figures[f"{before}neighbour_delay_turns"] = round(late_ms / (turn_s * 1000), 2)


if __name__ == "__main__":
    sys.exit(main())
