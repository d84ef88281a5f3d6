"""Who is next: the queue of each pool, and the tickets that wake a worker."""

from __future__ import annotations

from generation.scheduler.calls import Limits
from generation.scheduler.clients import observer, scheduler_async, scheduler_sync
from generation.scheduler.entries import (
    Asker,
    AtWork,
    Beat,
    EnqueueResult,
    Loan,
    Outlook,
    Place,
    PopResult,
    QueueEntry,
    Record,
    Room,
)
from generation.scheduler.figures import Counts, PoolFigures
from generation.scheduler.observer import Observer
from generation.scheduler.queue import Scheduler, SchedulerSync
from generation.scheduler.tickets import drop_tickets, publish_ticket, queue_name

__all__ = [
    "Asker",
    "AtWork",
    "Beat",
    "Counts",
    "EnqueueResult",
    "Limits",
    "Loan",
    "Observer",
    "Outlook",
    "Place",
    "PoolFigures",
    "PopResult",
    "QueueEntry",
    "Record",
    "Room",
    "Scheduler",
    "SchedulerSync",
    "drop_tickets",
    "observer",
    "publish_ticket",
    "queue_name",
    "scheduler_async",
    "scheduler_sync",
]
