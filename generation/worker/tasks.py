"""The Celery task that a ticket is."""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError

from celery import shared_task

from generation.scheduler.tickets import TASK
from generation.worker import current
from generation.worker.pool import on_terminate
from generation.worker.service import Slot

logger = logging.getLogger(__name__)


@shared_task(name=TASK, ignore_result=True, acks_late=False)
def run_ticket(pool: str) -> bool:
    """Claim one run of `pool` and wait for its end; True where there was one to claim.

    The thread only waits. A run has no time limit of Celery's: its orchestration watches the
    engine and the clock, and threads could not be killed anyway.
    """
    gpu = current.gpu()
    if gpu is None or gpu.service.context.pool != pool:
        logger.warning(
            "A ticket for pool %s came to a worker that does not serve it",
            pool[:64],
            extra={"action": "ticket_misplaced"},
        )
        return False
    slot = Slot(gpu.service, gpu.thread.loop)
    future = gpu.thread.submit(gpu.service.work(slot))
    on_terminate(slot.hand_over)
    try:
        return future.result()
    except CancelledError:
        # The loop ended first; whatever was claimed has lost its lease and goes to another worker.
        return False
