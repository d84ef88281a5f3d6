"""Who is next: the queue of each pool, and the tickets that wake a worker."""

from __future__ import annotations

from generation.scheduler.calls import Limits
from generation.scheduler.clients import scheduler_async, scheduler_sync
from generation.scheduler.entries import EnqueueResult, PopResult, QueueEntry, Room
from generation.scheduler.queue import Scheduler, SchedulerSync
from generation.scheduler.tickets import publish_ticket, queue_name

__all__ = [
    "EnqueueResult",
    "Limits",
    "PopResult",
    "QueueEntry",
    "Room",
    "Scheduler",
    "SchedulerSync",
    "publish_ticket",
    "queue_name",
    "scheduler_async",
    "scheduler_sync",
]
