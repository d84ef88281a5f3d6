"""Steps of a sweep that must not stop each other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from accounts.api_errors import AWAY

log = logging.getLogger(__name__)

T = TypeVar("T")


def guarded(step: Callable[[T], int | None], of: T) -> int:
    """How many things `step` did; what goes wrong with this one is logged, not passed on.

    But for Redis' and PostgreSQL's absence: then nothing can be done at all.
    """
    try:
        return step(of) or 0
    except AWAY:
        raise
    except Exception:
        log.exception("the sweep failed at %s", of, extra={"action": "sweep_step_failed"})
        return 0
