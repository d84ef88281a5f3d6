"""How the engine is, and the replica's row that says so to everybody else."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.db import Error as DatabaseError
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from accounts.aio import in_database
from generation.engines import ChatMessage, Engine, EngineError, GenerateRequest, Health
from generation.engines.errors import EngineRejected
from generation.models import Replica
from generation.worker_context import WorkerContext

logger = logging.getLogger(__name__)

HEARTBEAT_S: Final = 5.0
"""How often the row is written when nothing changes. A row older than three of these is dead."""

POLL_S: Final = 5.0
SICK_POLL_S: Final = 0.5
"""How often a sick engine is asked: a slot may already wait for it (an engine that loads)."""

ASK_S: Final = 5.0
"""An engine that does not answer for so long is not healthy."""


TRUST_AGAIN_S: Final = 300.0
"""How long a replica whose health check is well can stay suspect."""

PROBE: Final = ChatMessage("user", "Hi")

TOLD: Final = (
    "pool_id",
    "slots",
    "paid_burst",
    "healthy",
    "detail",
    "running",
    "heartbeat",
    "last_healthy",
)
"""What a worker writes of its row; `wanted_pool` is the administrators'."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Why the engine is not trusted, since when, until when at least (the loop's clock), and how
    long it may take to give a piece."""

    why: str
    since_s: float
    hold_until_s: float
    silence_s: float


@transaction.atomic
def take_row(replica: Replica) -> datetime:
    """Make the row ours, whosever it was before; the `started` that says so.

    By the database's clock: two processes by one name may run on two machines.
    """
    Replica.objects.bulk_create(
        [replica], update_conflicts=True, unique_fields=["name"], update_fields=TOLD
    )
    mine = Replica.objects.filter(name=replica.name)
    mine.update(started=Now())
    return mine.values_list("started", flat=True).get()


def write_row(replica: Replica) -> None:
    """Write the row while it is ours, or there is none: one that is replaced may end later."""
    mine = Replica.objects.filter(name=replica.name, started=replica.started)
    if not mine.update(**{name: getattr(replica, name) for name in TOLD}):
        Replica.objects.bulk_create([replica], ignore_conflicts=True)


def announce(replica: Replica, started: datetime | None) -> datetime:
    """Write it, for the first time where `started` is None; the `started` from now on."""
    if started is None:
        return take_row(replica)
    replica.started = started
    write_row(replica)
    return started


class ReplicaWatch:
    """Asks the engine for its health and keeps the replica's row fresh.

    `healthy` is set while the engine can serve and the replica neither drains nor is about to leave
    its pool.
    `refused` is why it does not go where it is wanted.
    """

    def __init__(self, context: WorkerContext) -> None:
        self.healthy = asyncio.Event()
        self._context = context
        self._engine = context.engine
        self._pool = context.pool
        self._replica = context.replica
        self._suspicion: Suspicion | None = None
        self._probing: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._started: datetime | None = None  # until the row is ours
        self._last_healthy: datetime | None = None
        self._health = Health(ok=False, detail="starting")
        self.refused = ""
        self._leaving = ""  # what is said instead of the engine's health
        self._is_draining = False
        self._left = ""  # the pool it came from, until the engine of this one is well
        self._written_s = float("-inf")
        self._in_turn = asyncio.Lock()

    async def run(self) -> None:
        try:
            while True:
                await self.look()
                await self._pause(POLL_S if self._health.ok else SICK_POLL_S)
        finally:
            if self._probing is not None:
                self._probing.cancel()

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        self._woken.clear()

    def suspect(self, why: str, hold_s: float, silence_s: float) -> None:
        """It has failed a run: it gets no new ones for `hold_s`, and until it has shown that it
        answers."""
        now_s = asyncio.get_running_loop().time()
        self._suspicion = Suspicion(why, now_s, now_s + hold_s, silence_s)
        self.healthy.clear()
        self._woken.set()
        logger.warning(
            "The engine is probed before it gets another run: %s",
            why,
            extra={"action": "replica_suspected", "replica": self._replica},
        )

    async def look(self) -> None:
        """Ask once, and write the row if the answer is news or the row grows old."""
        asked = self._engine
        health = await self._ask()
        if asked is not self._engine:
            return  # moved meanwhile: whoever moved it looks again
        health = self._with_move(self._with_suspicion(health))
        # Not its load: that changes all the time, and is told with the next heartbeat.
        changed = (health.ok, health.detail) != (self._health.ok, self._health.detail)
        self._health = health
        if health.ok:
            self.healthy.set()
        else:
            self.healthy.clear()
        # Sleeps are never exact: a tenth early is better than a whole poll late.
        if changed or time.monotonic() - self._written_s > HEARTBEAT_S * 0.9:
            await self._write(health)

    def _with_suspicion(self, health: Health) -> Health:
        if not health.ok or self._suspicion is None:
            return health
        return Health(ok=False, detail=f"suspect: {self._suspicion.why}")

    def _with_move(self, health: Health) -> Health:
        """The engine's health as the row tells it: what is said of a move stands before it."""
        if self._leaving:
            return Health(ok=False, detail=self._leaving)
        if self._is_draining:
            detail = "draining: no new answers" if self._context.running else "drained"
            return Health(ok=False, detail=detail)
        if health.ok:
            self._left = ""
        hint = self._left and f"moved from {self._left}: move it back if it does not start"
        parts = [self.refused, hint, health.detail]
        return replace(health, detail="; ".join(part for part in parts if part))

    def leave(self, detail: str) -> None:
        """Not healthy from now on, whatever the engine says."""
        self._leaving = detail
        self._last_healthy = None  # its runs need not wait for it
        self.healthy.clear()

    async def drain(self, is_draining: bool) -> None:
        """Begin no run from now on, whatever the engine says; False: as the engine says."""
        if is_draining == self._is_draining:
            return
        self._is_draining = is_draining
        if is_draining:
            self._last_healthy = None  # what is queued need not wait for it
            self.healthy.clear()
        await self.look()

    def stay(self) -> None:
        """It does not leave after all."""
        self._leaving = ""

    def arrive(self, engine: Engine, pool: str, left: str) -> None:
        """Another engine, in another pool; not healthy before it says so."""
        self._engine, self._pool = engine, pool
        self._leaving, self._left = "", left
        self._suspicion = None

    async def sign_off(self, detail: str) -> None:
        """Write the last row of this process: not healthy any more."""
        self.healthy.clear()
        await self._write(Health(ok=False, detail=detail))

    async def _ask(self) -> Health:
        try:
            async with asyncio.timeout(ASK_S):
                health = await self._engine.health()
        except TimeoutError:
            return Health(ok=False, detail=f"no answer for {ASK_S:.0f} s")
        if health.ok and self._suspicion is not None:
            self._look_into(self._suspicion)
        return health

    def _look_into(self, suspicion: Suspicion) -> None:
        """In a task of its own: a probe may last as long as the pool is patient, and a row that
        grows old meanwhile is that of a dead worker."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(suspicion))

    async def _probe(self, suspicion: Suspicion) -> None:
        # Only the one that was looked into: the next may have come meanwhile.
        if await self._answers(suspicion) and self._suspicion is suspicion:
            self._suspicion = None
            self._woken.set()

    async def _answers(self, suspicion: Suspicion) -> bool:
        """Whether the engine has given a piece since: of an answer that is written, or of the
        shortest one there is. Health checks are answered by engines whose core hangs."""
        now_s = asyncio.get_running_loop().time()
        if now_s < suspicion.hold_until_s:
            return False
        # Too slow to be probed, and well otherwise: better than none.
        if now_s - suspicion.since_s > TRUST_AGAIN_S or self._context.heard_s > suspicion.since_s:
            return True
        model = self._context.profile.model or self._context.last_model
        request = GenerateRequest(f"probe-{self._replica}", model, (PROBE,), max_tokens=1)
        try:
            async with (
                asyncio.timeout(max(ASK_S, suspicion.silence_s)),
                aclosing(self._engine.generate(request)) as pieces,
            ):
                return await anext(pieces, None) is not None
        except EngineRejected:
            return True  # it does not know the model by this name, and says so
        except (EngineError, TimeoutError):
            return False

    async def _write(self, health: Health) -> None:
        """As it is now. A write whose caller is cancelled goes on; the next one has its turn after
        it, and they are written in the order in which they were said."""
        await asyncio.shield(asyncio.ensure_future(self._write_in_turn(self._row(health))))

    async def _write_in_turn(self, row: Replica) -> None:
        async with self._in_turn:
            try:
                self._started = await in_database(announce, row, self._started)
            except DatabaseError as error:
                # Runs need no row to go on; without it others think that this replica is dead.
                logger.warning(
                    "The replica's row could not be written: %s",
                    type(error).__name__,
                    extra={"action": "heartbeat_failed", "replica": self._replica},
                )
                return
            self._written_s = time.monotonic()

    def _row(self, health: Health) -> Replica:
        if health.ok:
            self._last_healthy = timezone.now()
        return Replica(
            name=self._replica,
            pool_id=self._pool,
            slots=self._context.slots,
            paid_burst=self._context.paid_burst,
            healthy=health.ok,
            detail=_told(health)[:200].replace("\0", ""),
            running=len(self._context.running),
            heartbeat=timezone.now(),
            last_healthy=self._last_healthy,
        )


def _told(health: Health) -> str:
    """For the row's `detail`: how the engine is, and what it does where it tells that."""
    return f"{health.detail}: {health.load}" if health.load else health.detail
