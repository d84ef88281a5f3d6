"""The bootstep that starts and ends the GPU service with its Celery worker.

It stands in `app.steps["worker"]` by name (chatproject/celery.py) and takes part only in a worker
that consumes `gpu.<GPU_POOL>`; other workers may have the same environment.
"""

from __future__ import annotations

import logging
import re
import socket
from typing import Any, Final

from celery import bootsteps
from celery.signals import worker_shutting_down
from celery.worker import state
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from accounts import collector, keys
from generation.engines import EngineProfile, parse_profiles
from generation.models import Pool
from generation.orchestrator import work_one
from generation.scheduler import queue_name
from generation.worker import current
from generation.worker.engine_process import is_kept
from generation.worker.move import read_order, read_place
from generation.worker.pool import TaskPool
from generation.worker.queues import TicketQueues
from generation.worker.service import Running
from generation.worker.thread import LoopThread

logger = logging.getLogger(__name__)

FAILED: Final = 1


class GpuStep(bootsteps.StartStopStep):
    """Starts after the pool and before the consumer; ends before the pool's threads are awaited."""

    requires = ("celery.worker.components:Pool",)

    def include_if(self, worker: Any) -> bool:
        queues = worker.app.amqp.queues.consume_from
        return bool(settings.GPU_POOL) and queue_name(settings.GPU_POOL) in queues

    def create(self, worker: Any) -> None:
        if not isinstance(worker.pool, TaskPool):
            raise ImproperlyConfigured(
                "A GPU worker needs the cancellable pool: set CELERY_CUSTOM_WORKER_POOL="
                "generation.worker.pool:TaskPool and start it with -P custom."
            )
        if not 0 <= settings.GPU_PAID_BURST < worker.concurrency:
            raise ImproperlyConfigured(
                "GPU_PAID_BURST must leave one slot for all: the worker's concurrency (-c) is its "
                f"slots and its burst, {worker.concurrency} in all."
            )

    def start(self, worker: Any) -> None:
        keys.check_at_start()  # a worker that cannot store an answer must not begin one
        pool, profile = _place()
        queues = TicketQueues(worker, replica_name())
        queues.serve(pool)
        self._thread = LoopThread()
        self._thread.start()
        self._running = self._thread.run(
            Running.open(
                pool=pool,
                home=settings.GPU_POOL,
                queues=queues,
                replica=replica_name(),
                profile=profile,
                slots=worker.concurrency - settings.GPU_PAID_BURST,
                paid_burst=settings.GPU_PAID_BURST,
                work_one=work_one,
                on_failure=_end_worker,
            )
        )
        current.set_gpu(current.Gpu(self._thread, self._running.service))
        # Celery's own stop begins up to a second after the signal.
        worker_shutting_down.connect(self._on_signal)
        collector.settle()
        logger.info(
            "Replica %s serves pool %s",
            replica_name(),
            pool,
            extra={"action": "worker_ready", "threads": worker.concurrency},
        )

    def close(self, worker: Any) -> None:
        if current.gpu() is not None:
            self._running.service.stop_claiming()

    def stop(self, worker: Any) -> None:
        self._end(settings.WORKER_GRACE_S)

    def terminate(self, worker: Any) -> None:
        self._end(0)

    def _end(self, grace_s: float) -> None:
        if current.gpu() is None:
            return
        worker_shutting_down.disconnect(self._on_signal)
        try:
            self._thread.run(self._running.close(grace_s))
        finally:
            current.set_gpu(None)
            self._thread.stop()

    def _on_signal(self, **_: Any) -> None:
        self._running.service.stop_claiming()


def _place() -> tuple[str, EngineProfile]:
    """Where it is wanted; GPU_POOL where nobody said otherwise, or that cannot be done here.

    But where its last process has left an engine running elsewhere, it begins there: the move then
    stops that engine, which nobody else would.
    """
    profiles = parse_profiles(settings.ENGINE_PROFILES)
    order, last = read_order(replica_name(), settings.GPU_POOL), read_place(replica_name())
    if last is not None and last.pool != order.pool:
        left = profiles.get(last.profile or "")
        if left is not None and is_kept(left):
            return last.pool, left
    profile = profiles.get(order.profile or "")
    if profile is not None:
        return order.pool, profile
    return settings.GPU_POOL, _profile_of(settings.GPU_POOL)


def _profile_of(pool: str) -> EngineProfile:
    row = Pool.objects.filter(slug=pool).first()
    if row is None:
        raise ImproperlyConfigured(f"GPU_POOL: there is no pool {pool!r} in the database.")
    profile = parse_profiles(settings.ENGINE_PROFILES).get(row.profile)
    if profile is None:
        raise ImproperlyConfigured(
            f"Pool {pool!r} wants the engine profile {row.profile!r}, which ENGINE_PROFILES lacks."
        )
    return profile


def replica_name() -> str:
    """GPU_REPLICA, or pool and host. Two workers of one pool on one host need the variable."""
    name = settings.GPU_REPLICA or f"{settings.GPU_POOL}-{socket.gethostname()}"
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:100]


def _end_worker() -> None:
    """Ask Celery for a warm shutdown with a failure; whoever supervises starts a new worker."""
    state.should_stop = FAILED  # type: ignore[assignment]  # the stubs know only its start
