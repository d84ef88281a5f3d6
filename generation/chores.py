"""What the product does when nobody waits for it."""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from conversations import services

log = logging.getLogger(__name__)

PURGE_BATCH: Final = 200
PURGE_BATCHES: Final = 50
"""At most 10,000 conversations an hour; what is left waits for the next hour."""


def purge() -> int:
    """Write the tombstones of conversations deleted over PURGE_AFTER_DAYS ago, and of expired
    temporary ones; returns how many. Each in a transaction of its own; twice at once does no harm.
    """
    before = timezone.now() - timedelta(days=settings.PURGE_AFTER_DAYS)
    purged = 0
    for _ in range(PURGE_BATCHES):
        ids = list(services.purgeable(before).values_list("id", flat=True)[:PURGE_BATCH])
        purged += sum(purge_one(one, before) for one in ids)
        if len(ids) < PURGE_BATCH:
            break
    log.info("Purged %d conversations", purged, extra={"action": "purged"})
    return purged


@transaction.atomic
def purge_one(conversation_id: uuid.UUID, deleted_before: datetime) -> bool:
    """False where it was restored or purged meanwhile. A run that ends later leaves no text."""
    return services.purge(conversation_id, deleted_before)
