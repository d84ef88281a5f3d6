"""Celery tasks of the `chores` queue, all of them safe to run twice.

They run in threads, which Celery cannot kill: what bounds them is the time-outs of Redis and
PostgreSQL and the batch sizes below.
"""

from __future__ import annotations

import logging
from typing import Final

from celery import shared_task
from django.utils import timezone

from generation import chores, reaper
from generation.begin import KEY_KEPT
from generation.models import IdempotencyKey

logger = logging.getLogger(__name__)

KEYS_BATCH: Final = 1_000
KEYS_BATCHES: Final = 200
"""At most 200,000 keys an hour; what is left waits for the next hour."""


@shared_task(name="generation.sweep", ignore_result=True, time_limit=60)
def sweep() -> None:
    """Find what the fast path lost: lost queues, queued runs in no queue, runs without an owner."""
    reaper.sweep()


@shared_task(name="generation.purge", ignore_result=True, time_limit=3600)
def purge() -> int:
    """Write the tombstones of what was deleted long enough ago; returns how many."""
    return chores.purge()


@shared_task(name="generation.forget_idempotency_keys", ignore_result=True, time_limit=600)
def forget_idempotency_keys() -> int:
    """Delete keys older than 24 h; returns how many."""
    before = timezone.now() - KEY_KEPT
    forgotten = 0
    for _ in range(KEYS_BATCHES):
        old = IdempotencyKey.objects.filter(created__lt=before)
        ids = list(old.order_by("created").values_list("id", flat=True)[:KEYS_BATCH])
        # Asked again: a send may have taken over an old key since it was listed.
        forgotten += old.filter(id__in=ids).delete()[0]
        if len(ids) < KEYS_BATCH:
            break
    logger.info("Forgot %d keys", forgotten, extra={"action": "keys_forgotten"})
    return forgotten
