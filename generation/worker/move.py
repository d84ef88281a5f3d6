"""Moves this worker's replica to the pool where an administrator wants it.

The row says where: `wanted_pool`, or the pool of the worker's environment; and whether it is to
drain there. The worker looks every LOOK_S. To drain is to claim no more. To move, it lets its
answers end too, stops an engine that it owns, starts that of the other pool, and announces itself
there. Nothing is touched where that cannot even be tried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from django.conf import settings

from accounts.aio import in_database
from accounts.api_errors import AWAY
from generation.engines import Engine, EngineProfile, InvalidProfiles, build_engine, parse_profiles
from generation.models import Pool, Replica

if TYPE_CHECKING:
    from generation.worker.service import Service

logger = logging.getLogger(__name__)

LOOK_S: Final = 2.0


class Queues(Protocol):
    """The Celery queues that this worker takes tickets from."""

    def serve(self, pool: str | None) -> None:
        """Take tickets of this pool and of no other; None: of none. May be repeated."""
        ...


class NoQueues:
    """Of a service that no Celery worker drives."""

    def serve(self, pool: str | None) -> None:
        return


class CannotMove(Exception):
    """Why a replica stays where it is, in one line for the admin."""


@dataclass(frozen=True, slots=True)
class Order:
    """Where a replica is wanted, and the engine profile of that pool; None: there is no such."""

    pool: str
    profile: str | None
    is_draining: bool = False


def read_order(replica: str, home: str) -> Order:
    """What its row says; `home` where it says nothing."""
    told = Replica.objects.filter(name=replica).values_list("wanted_pool", "is_draining").first()
    wanted, is_draining = told or (None, False)
    slug = wanted or home
    profile = Pool.objects.filter(slug=slug).values_list("profile", flat=True).first()
    return Order(slug, profile, is_draining)


def read_place(replica: str) -> Order | None:
    """Where its last process has announced it; None where there was none."""
    row = Replica.objects.filter(name=replica).select_related("pool").first()
    return Order(row.pool_id, row.pool.profile) if row else None


def engine_of(order: Order) -> tuple[EngineProfile, Engine]:
    """What serves that pool, from this worker's environment. Raises CannotMove."""
    if order.profile is None:
        raise CannotMove("there is no such pool")
    try:
        profile = parse_profiles(settings.ENGINE_PROFILES).get(order.profile)
        if profile is None:
            raise CannotMove(f"this worker's ENGINE_PROFILES has no profile {order.profile!r}")
        return profile, build_engine(profile)
    except InvalidProfiles as error:
        raise CannotMove(str(error)) from None


class Mover:
    """One side task of the service; all methods belong to its loop.

    `start_guard` makes a profile's engine run, where we are to start it.
    """

    def __init__(
        self,
        service: Service,
        home: str,
        queues: Queues,
        start_guard: Callable[[EngineProfile], None],
    ) -> None:
        self._service = service
        self._context = service.context
        self._home = home
        self._queues = queues
        self._start_guard = start_guard

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except AWAY as error:
                logger.warning(
                    "The replica's orders could not be read: %s",
                    type(error).__name__,
                    extra={"action": "order_unread", "replica": self._context.replica},
                )
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Ask once; move where it is wanted elsewhere."""
        if self._service.is_closing():
            return
        order = await self._order()
        await self._service.watch.drain(order.is_draining)
        if order.pool != self._context.pool:
            await self._try(order)
        else:
            self._service.watch.refused = ""
        if self._service.is_closing():
            return
        # Again: what was said to a broker that was away may not have been heard. One that drains
        # takes no tickets, or those of others would be lost on it.
        self._queues.serve(None if order.is_draining else self._context.pool)

    async def _order(self) -> Order:
        return await in_database(read_order, self._context.replica, self._home)

    async def _try(self, order: Order) -> None:
        watch = self._service.watch
        try:
            profile, engine = engine_of(order)
        except CannotMove as problem:
            watch.refused = f"not moved to {order.pool}: {problem}"
            return
        watch.refused = ""
        if await self._leave(order.pool):
            await self._arrive(order.pool, profile, engine)
        else:
            await engine.aclose()

    async def _leave(self, pool: str) -> bool:
        """Let the answers end, MOVE_GRACE_S at most. False where it is wanted back meanwhile, or
        its worker ends."""
        service, context = self._service, self._context
        logger.info(
            "Replica %s moves from pool %s to %s",
            context.replica,
            context.pool,
            pool,
            extra={"action": "replica_leaves", "replica": context.replica, "pool": context.pool},
        )
        service.watch.leave(f"moving to {pool}: no new answers, the running ones are finished")
        await service.watch.look()
        self._queues.serve(None)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + settings.MOVE_GRACE_S
        while service.is_busy() and loop.time() < deadline_s:
            await service.wait_idle(min(LOOK_S, deadline_s - loop.time()))
            if service.is_busy() and await self._is_wanted_back():
                service.watch.stay()
                return False
        if service.is_closing():
            return False
        await service.interrupt_rest()
        return True

    async def _is_wanted_back(self) -> bool:
        try:
            return (await self._order()).pool == self._context.pool
        except AWAY:
            return False

    async def _arrive(self, pool: str, profile: EngineProfile, engine: Engine) -> None:
        service, context = self._service, self._context
        left, old_engine = context.pool, context.engine
        await service.end_guard()
        context.pool, context.profile, context.engine = pool, profile, engine
        service.watch.arrive(engine, pool, left)
        await service.sweep.leave(left)
        if profile.serve is not None and not service.is_closing():
            self._start_guard(profile)
        await old_engine.aclose()
        await service.watch.look()
        logger.info(
            "Replica %s serves pool %s",
            context.replica,
            pool,
            extra={"action": "replica_moved", "replica": context.replica, "pool": pool},
        )
