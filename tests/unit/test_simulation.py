"""The simulated world by itself, over a queue that serves in the order in which people came."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest

from generation.ladder import Outlook
from generation.simulation.scenarios import ANSWER_TOKENS, SCENARIOS, SITES, Scenario, load_at
from generation.simulation.world import Job, Replica, World, capacity

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


class InOrder:
    """First in, first out; the wait is that of the tokens before, at full speed."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {site.pool: deque() for site in SITES}
        self.most = 0

    def outlooks(self, job: Job, now_ms: float) -> dict[str, Outlook]:
        return {
            site.pool: Outlook(
                site.pool,
                "here",
                len(self._waiting[site.pool]) * ANSWER_TOKENS * 1_000 / site.capacity,
            )
            for site in SITES
        }

    def enqueue(self, job: Job, now_ms: float) -> None:
        self._waiting[job.pool].append(job.run)
        self.most = max(self.most, len(self._waiting[job.pool]))

    def pop(self, replica: Replica, now_ms: float) -> str | None:
        assert len(replica.at_work) < replica.site.slots + replica.site.paid_burst
        waiting = self._waiting[replica.site.pool]
        return waiting.popleft() if waiting and replica.room(job_is_paid=False) else None

    def give_back(self, job: Job, now_ms: float) -> None:
        self._waiting[job.pool].appendleft(job.run)

    def ended(self, job: Job, now_ms: float) -> None:
        assert job.run not in self._waiting[job.pool]

    def leave(self, job: Job, now_ms: float) -> None:
        self._waiting[job.pool].remove(job.run)

    def register(self, replicas: Sequence[Replica], now_ms: float) -> None: ...


def world_of(scenario: Scenario, seed: int = 1, *, with_ladder: bool = True) -> World:
    world = World(scenario, InOrder(), minutes=2, seed=seed, with_ladder=with_ladder)
    world.run()
    return world


@pytest.mark.parametrize("name", BY_NAME)
def test_every_send_is_refused_answered_or_left(name: str) -> None:
    world = world_of(BY_NAME[name])
    for tally in [*world.tallies.values(), world.script]:
        assert tally.sends == tally.refused + tally.left + len(tally.ttft_ms)
    assert 0 < world.use <= 1.1  # the burst is above the slots
    assert world.tallies["pro"].refused == 0, "who pays is not refused"


def test_a_seed_is_an_evening() -> None:
    first, again, other = (world_of(BY_NAME["evening"], seed) for seed in (5, 5, 6))
    assert first.tallies == again.tallies
    assert first.tallies != other.tallies


def test_what_is_asked_is_the_scenarios_share_of_what_is_there() -> None:
    steady = replace(BY_NAME["evening"], load={0.0: 0.5, 1.0: 0.5})
    world = world_of(steady, with_ladder=False)
    written = sum(tally.tokens for tally in world.tallies.values())
    asked = 0.5 * capacity(world.sites) * 120
    # Answers end at their room: a few long ones are cut.
    assert written == pytest.approx(asked, rel=0.12)
    assert world.tallies["free"].smaller == world.tallies["free"].shorter == 0
    assert load_at(BY_NAME["launch"], 0.35) == pytest.approx(1.3)


def test_the_capacity_is_that_of_the_numbers_in_the_design() -> None:
    assert capacity({site.pool: site for site in SITES}) == pytest.approx(23_000, rel=0.01)


def test_replicas_that_are_lost_come_back() -> None:
    world = world_of(BY_NAME["loss"])
    assert all(one.is_there for pool in world.replicas.values() for one in pool)
    assert not any(one.at_work for pool in world.replicas.values() for one in pool)
