"""Writing the usage ledger."""

from __future__ import annotations

import uuid
from decimal import Decimal

from django.db import connection
from django.utils import timezone

from accounts.ids import new_id

# By hand: it stands in the transaction in which every answer ends.
_RECORD = """
INSERT INTO quotas_usageentry
    (id, user_id, run_id, model, prompt_tokens, cached_tokens, output_tokens, cost, created)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def record(
    *,
    user_id: uuid.UUID,
    run_id: uuid.UUID,
    model: str,
    prompt_tokens: int,
    cached_tokens: int,
    output_tokens: int,
    cost: Decimal | None,
) -> None:
    """Add the one entry of this run. Call it inside the transaction that ends the run.

    Raises IntegrityError if the run has an entry already: a run is charged once.
    """
    used = (prompt_tokens, cached_tokens, output_tokens, cost)
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, [new_id(), user_id, run_id, model, *used, timezone.now()])
