"""Writing the usage ledger."""

from __future__ import annotations

import uuid
from decimal import Decimal

from quotas.models import UsageEntry


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
    UsageEntry.objects.create(
        user_id=user_id,
        run_id=run_id,
        model=model,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        output_tokens=output_tokens,
        cost=cost,
    )
