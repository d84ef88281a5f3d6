"""How runs ended, from PostgreSQL: many viewers' questions as one query."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from django.db import Error

from accounts.aio import in_database
from generation import runs
from generation.runs import MAX_RUNS_PER_LOOKUP, RunEnd

log = logging.getLogger(__name__)

GATHER_S: Final = 0.02
"""How long questions are gathered before they are asked together."""


GONE: Final = RunEnd(last_seq=0, done_data=b"", text="")
"""Stands for a run that is no longer there: its owner's account was deleted."""


async def run_ends(wanted: Iterable[str]) -> dict[str, RunEnd | None]:
    """For each run PostgreSQL knows: its end, or None while it is live; GONE for one it knows not.

    What could not be asked is left out: whoever asked waits, and asks again.
    """
    found: dict[str, RunEnd | None] = {}
    names = sorted(set(wanted))
    try:
        for at in range(0, len(names), MAX_RUNS_PER_LOOKUP):
            part = names[at : at + MAX_RUNS_PER_LOOKUP]
            known = await in_database(runs.run_ends, part)
            found.update({run: known.get(run, GONE) for run in part})
    except Error:
        log.warning("run ends not read: PostgreSQL is away", extra={"action": "lookup_failed"})
    return found


async def waiting_pools(wanted: Iterable[str]) -> dict[str, str]:
    """Where those runs that still wait do so; what could not be asked is left out."""
    found: dict[str, str] = {}
    names = sorted(set(wanted))
    try:
        for at in range(0, len(names), MAX_RUNS_PER_LOOKUP):
            part = names[at : at + MAX_RUNS_PER_LOOKUP]
            found.update(await in_database(runs.waiting_pools, part))
    except Error:
        log.warning("pools not read: PostgreSQL is away", extra={"action": "lookup_failed"})
    return found


class Gatherer:
    """Collects runs for a moment, so that one query answers for all of them."""

    def __init__(self) -> None:
        self._wanted: set[str] = set()

    def add(self, run: str) -> bool:
        """True for the first of a batch: that caller asks, after GATHER_S."""
        first = not self._wanted
        self._wanted.add(run)
        return first

    async def take(self) -> set[str]:
        await asyncio.sleep(GATHER_S)
        taken, self._wanted = self._wanted, set()
        return taken
