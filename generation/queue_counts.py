"""Counts what became of requests and runs, per pool, for the admin's page and for Prometheus.

Counts are figures to look at: the ledger in PostgreSQL says what was used and paid. So whoever
counts is never held up for long, and nothing fails for it; after a failure nobody counts for a
moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from redis.exceptions import RedisError

from generation.scheduler import scheduler_sync

log = logging.getLogger(__name__)

NANO: Final = 1_000_000_000
"""Costs are counted in whole billionths of the currency: Redis counts to 9 * 10^18."""

PAUSE_S: Final = 2.0


class _Pause:
    until_s = 0.0  # monotonic; read and written whole, by any thread


def admitted(pool: str, plan: str, step: str) -> None:
    """One more run was admitted there, by this step of the ladder."""
    _count(pool, {f"admitted.{plan}.{step}": 1})


def refused(pool: str, plan: str, reason: str) -> None:
    """One more request was refused there."""
    _count(pool, {f"refused.{plan}.{reason}": 1})


@dataclass(frozen=True, slots=True)
class EndedRun:
    """What a run has used, once its end is committed; `cost` None: no price was known."""

    pool: str
    plan: str
    model: str
    finish: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: Decimal | None


def ended(run: EndedRun) -> None:
    """One more run has ended there."""
    of = f"{run.plan}.{run.model}"
    nano = 0 if run.cost is None else int((run.cost * NANO).to_integral_value())
    _count(
        run.pool,
        {
            f"ended.{of}.{run.finish}": 1,
            f"prompt.{of}": run.prompt_tokens,
            f"cached.{of}": run.cached_tokens,
            f"output.{of}": run.output_tokens,
            f"cost_nano.{of}": nano,
        },
    )


def _count(pool: str, more: Mapping[str, int]) -> None:
    if time.monotonic() < _Pause.until_s:
        return
    try:
        scheduler_sync().count(pool, more)
    except (RedisError, OSError, ValueError) as error:
        _Pause.until_s = time.monotonic() + PAUSE_S
        log.warning("not counted: %s", type(error).__name__, extra={"action": "not_counted"})
