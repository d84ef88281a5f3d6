"""What lives in the worker's event loop: the context, the slots at work, the side tasks."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from channels.layers import get_channel_layer
from django.conf import settings

from generation.engines import EngineProfile, build_engine
from generation.scheduler import scheduler_async
from generation.token_log import TokenLog, async_client
from generation.token_log.flusher import Flusher
from generation.worker.borrowing import BorrowingWatch
from generation.worker.control import on_control
from generation.worker.engine_process import EngineGuard
from generation.worker.move import Mover, NoQueues, Queues
from generation.worker.reap import reap_forever
from generation.worker.replica import ReplicaWatch
from generation.worker.sweep import TicketSweep
from generation.worker_context import HANDOVER, WorkerContext

logger = logging.getLogger(__name__)

HEALTH_WAIT_S: Final = 2.0
"""How long a ticket waits for a sick engine. Not longer: it was taken from the pool's others, whose
sweeps publish another for the same run, and this replica's own sweep does when it is well."""

HANDOVER_S: Final = 5.0
"""How long cancelled orchestrations may take to flush and give back their leases."""

HANDOVER_POLL_S: Final = 0.05

REPEAT_S: Final = 1.0
"""How long a cancelled task may go on before it is cancelled again."""

WorkOne = Callable[[WorkerContext], Awaitable[bool]]


class Service:
    """One replica's orchestrations. All methods belong to the loop, but for `stop_claiming`."""

    def __init__(self, context: WorkerContext, work_one: WorkOne) -> None:
        self.context = context
        self._work_one = work_one
        self._closing = False
        self._at_work: set[asyncio.Task[bool]] = set()
        self._told_s: dict[asyncio.Task[bool], float] = {}  # when cancelled with HANDOVER
        self._side_tasks: list[asyncio.Task[None]] = []
        self._guard: tuple[EngineGuard, asyncio.Task[None]] | None = None
        self.watch = ReplicaWatch(context)
        context.suspect = self.watch.suspect
        context.may_claim = self.may_claim
        self.sweep = TicketSweep(context, self)

    # --- slots ------------------------------------------------------------------------------------

    async def work(self, slot: Slot) -> bool:
        """One ticket: claim a run and own it to its end. False where there was nothing to do.

        An orchestration gets a task of its own, so that a cancellation means this run alone.
        """
        if not await self._wait_for_health():
            return False
        task = asyncio.ensure_future(self._work_one(self.context))
        self._at_work.add(task)
        task.add_done_callback(self._slot_freed)
        slot.begin(task)
        await asyncio.wait([task])
        return False if task.cancelled() else task.result()

    async def _wait_for_health(self) -> bool:
        if not self.watch.healthy.is_set() and not self._closing:
            try:
                async with asyncio.timeout(HEALTH_WAIT_S):
                    await self.watch.healthy.wait()
            except TimeoutError:
                return False
        return not self._closing

    def _slot_freed(self, task: asyncio.Task[bool]) -> None:
        self._at_work.discard(task)
        self._told_s.pop(task, None)
        self.sweep.slot_freed()

    def may_claim(self) -> bool:
        """Whether a run may be begun here: not while the engine is sick or the worker ends."""
        return not self._closing and self.watch.healthy.is_set()

    def count_idle(self) -> int:
        """Slots that could begin a run now; none while the engine is sick or the worker ends."""
        return max(0, self.context.slots - len(self._at_work)) if self.may_claim() else 0

    def count_idle_burst(self) -> int:
        """Places beyond the slots that could begin a paid run now."""
        slots, at_work = self.context.slots, len(self._at_work)
        beyond = slots + self.context.paid_burst - max(slots, at_work)
        return max(0, beyond) if self.may_claim() else 0

    def is_full(self) -> bool:
        """Whether every slot is at work."""
        return len(self._at_work) >= self.context.slots

    # --- moving to another pool -------------------------------------------------------------------

    def is_busy(self) -> bool:
        return bool(self._at_work)

    def is_closing(self) -> bool:
        """Whether the worker is about to end."""
        return self._closing

    async def wait_idle(self, timeout_s: float) -> None:
        """Until no run is at work here, at most so long."""
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=timeout_s)

    async def interrupt_rest(self) -> None:
        """Give back what is still at work; the service goes on."""
        if self._at_work:
            await self._hand_over(set(self._at_work))
            self.context.handover.clear()

    def start_guard(self, profile: EngineProfile) -> asyncio.Task[None]:
        """Make the profile's engine run, and keep it running."""
        guard = EngineGuard(profile)
        task = self.start_side_task("engine guard", guard.run())
        self._guard = (guard, task)
        return task

    async def end_guard(self) -> None:
        """Stop the engine that this worker has started or attached to, and look after it no more.

        One that others start (a profile without `serve`), or that another worker needs, goes on.
        """
        await self._end_guarding()
        if self._guard is not None:
            (guard, _), self._guard = self._guard, None
            await asyncio.to_thread(guard.stop)

    async def _end_guarding(self) -> None:
        """Start the engine no more, whatever becomes of it."""
        if self._guard is None:
            return
        _, task = self._guard
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=REPEAT_S)
        if task in self._side_tasks:
            self._side_tasks.remove(task)

    def leave_engine(self) -> None:
        """Need it no more; it goes on."""
        if self._guard is not None:
            self._guard[0].leave()

    # --- beginning and end ------------------------------------------------------------------------

    def start_side_task(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._side_tasks.append(task)
        return task

    def stop_claiming(self) -> None:
        """No run is claimed from now on. From any thread, and from a signal handler."""
        self._closing = True

    async def drain(self, grace_s: float) -> None:
        """Let running orchestrations finish for `grace_s`, then give the others back."""
        self.stop_claiming()
        # Whoever ends the workers and then the engine means it: an engine that ends while answers
        # are awaited here is not started again by us.
        await self._end_guarding()
        if self._at_work:
            logger.info("Draining %d runs", len(self._at_work), extra={"action": "drain"})
            await asyncio.wait(self._at_work, timeout=grace_s)
        if self._at_work:
            await self._hand_over(set(self._at_work))

    async def _hand_over(self, tasks: set[asyncio.Task[bool]]) -> None:
        self.context.handover.set()
        for task in tasks:
            self.hand_over(task)
        _, late = await asyncio.wait(tasks, timeout=HANDOVER_S)
        logger.info("Gave %d runs back", len(tasks), extra={"action": "handover"})
        if late:
            # Their leases expire by themselves; a reaper gives them to others some seconds later.
            logger.error(
                "%d runs did not let go in time", len(late), extra={"action": "handover_late"}
            )

    def hand_over(self, task: asyncio.Task[bool]) -> None:
        """Cancel an orchestration with HANDOVER, as soon as it may be cancelled.

        One that claims or finishes right now is let be: a claim without an owner, or an end without
        its `done`, would be left for the reaper. It finishes by itself, or enters `running` next.
        """
        if task.done():
            return
        loop = task.get_loop()
        # Once, or it would cut the handover itself; but Python 3.11's `wait_for`, which redis-py
        # uses, can swallow a cancellation: one that still runs a second later has not heard it.
        if task.cancelling():
            self._told_s.setdefault(task, loop.time())
        is_news = loop.time() - self._told_s.get(task, float("-inf")) >= REPEAT_S
        if is_news and task in self.context.running.values():
            self._told_s[task] = loop.time()
            task.cancel(HANDOVER)
        loop.call_later(HANDOVER_POLL_S, self.hand_over, task)

    async def sign_off(self) -> None:
        """Tell everybody that the replica is there no more."""
        await self.sweep.leave(self.context.pool)
        await self.watch.sign_off("stopped")

    async def end_side_tasks(self) -> None:
        rest = set(self._side_tasks)
        while rest:
            for task in rest:
                task.cancel()
            # Again, if one goes on: see hand_over.
            _, rest = await asyncio.wait(rest, timeout=REPEAT_S)


class Slot:
    """The orchestration behind one ticket, for the thread that waits for it."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._loop = loop
        self._task: asyncio.Task[bool] | None = None
        self._given_up = False

    def begin(self, task: asyncio.Task[bool]) -> None:
        self._task = task
        if self._given_up:
            self._service.hand_over(task)

    def hand_over(self) -> None:
        """Make it flush and give its run to another worker. From any thread; twice is once."""
        self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._given_up = True
        if self._task is not None:
            self._service.hand_over(self._task)


class Running:
    """A service with everything it needs, opened and closed as a whole in its loop."""

    def __init__(self, service: Service, stack: AsyncExitStack) -> None:
        self.service = service
        self._stack = stack

    @classmethod
    async def open(
        cls,
        *,
        pool: str,
        replica: str,
        profile: EngineProfile,
        slots: int,
        work_one: WorkOne,
        on_failure: Callable[[], None],
        paid_burst: int = 0,
        home: str = "",
        queues: Queues | None = None,
    ) -> Running:
        """Build the context, subscribe, and start the side tasks.

        `home` is the pool of the worker's environment, where another is given as `pool`.
        `on_failure` is called in the loop where a side task ends by itself: without its flusher or
        its ears a worker must not go on.
        """
        async with AsyncExitStack() as stack:
            context = _context(stack, pool=pool, replica=replica, profile=profile)
            context.slots, context.paid_burst = slots, paid_burst
            service = Service(context, work_one)
            place = (home or pool, queues or NoQueues())
            await _start(stack, service, on_failure, place)
            return cls(service, stack.pop_all())

    async def close(self, grace_s: float) -> None:
        await self.service.drain(grace_s)
        await self._stack.aclose()


def _context(
    stack: AsyncExitStack, *, pool: str, replica: str, profile: EngineProfile
) -> WorkerContext:
    redis = async_client(settings.REDIS_URL)
    stack.push_async_callback(redis.aclose)
    log = TokenLog(redis)
    context = WorkerContext(
        redis=redis,
        log=log,
        flusher=Flusher(log, get_channel_layer("tokens").publish_many),
        scheduler=scheduler_async(redis),
        engine=build_engine(profile),
        profile=profile,
        pool=pool,
        replica=replica,
        channel=f"worker:{uuid.uuid4().hex}",
    )

    async def close_engine() -> None:
        await context.engine.aclose()  # the one it has by then

    stack.push_async_callback(close_engine)
    return context


async def _start(
    stack: AsyncExitStack,
    service: Service,
    on_failure: Callable[[], None],
    place: tuple[str, Queues],
) -> None:
    context = service.context
    layer = get_channel_layer("tokens")
    stack.push_async_callback(layer.flush)
    subscriber = await layer.subscribe_raw(context.channel, partial(on_control, context))
    stack.push_async_callback(subscriber.aclose)
    stack.callback(service.leave_engine)
    stack.push_async_callback(service.sign_off)
    stack.push_async_callback(service.end_side_tasks)
    failing = partial(_watch_over, on_failure)

    def start_guard(profile: EngineProfile) -> None:
        service.start_guard(profile).add_done_callback(failing)

    home, queues = place
    side_tasks = {
        "flusher": context.flusher.run_forever(),
        "replica watch": service.watch.run(),
        "ticket sweep": service.sweep.run(),
        "reaper": reap_forever(),
        "borrowing watch": BorrowingWatch(context, service, service.sweep).run(),
        "mover": Mover(service, home, queues, start_guard).run(),
    }
    if context.profile.serve is not None:
        start_guard(context.profile)
    for name, work in side_tasks.items():
        service.start_side_task(name, work).add_done_callback(failing)


def _watch_over(on_failure: Callable[[], None], task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    logger.critical(
        "The %s ended by itself; the worker ends too",
        task.get_name(),
        exc_info=task.exception(),
        extra={"action": "side_task_died"},
    )
    on_failure()
