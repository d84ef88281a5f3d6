"""Steps of a sweep that must not stop each other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from psycopg.errors import LockNotAvailable

from accounts.api_errors import AWAY

log = logging.getLogger(__name__)

T = TypeVar("T")


def guarded(step: Callable[[T], int | None], of: T) -> int:
    """How many things `step` did; what goes wrong with this one is logged, not passed on.

    But for Redis' and PostgreSQL's absence: then nothing can be done at all.
    """
    try:
        return step(of) or 0
    except AWAY as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        # Somebody who stands still holds this one; the others must not wait for that.
        log.warning("%s is held by another", of, extra={"action": "sweep_step_put_off"})
        return 0
    except Exception:
        log.exception("the sweep failed at %s", of, extra={"action": "sweep_step_failed"})
        return 0
