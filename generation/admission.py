"""The decision before a run is queued: admit, or refuse with `Retry-After`."""

from __future__ import annotations

from typing import Final

from django.conf import settings

from accounts.errors import Unavailable
from accounts.ids import external_id
from accounts.models import User
from generation.exceptions import QueueFull, TooManyLiveRuns
from generation.models import Pool
from generation.runs import count_live
from generation.scheduler import Room, scheduler_sync

REBUILD_RETRY_S: Final = 2
"""A queue that Redis has lost is rebuilt within about a second."""


def admit(user: User, pool: Pool) -> None:
    """Raise QueueFull, TooManyLiveRuns or Unavailable, with the seconds to wait.

    Nothing is written. Redis is asked first: while it is away nothing can be queued (503).
    """
    room = scheduler_sync().room(pool.slug, external_id("u", user.id))
    if room is Room.NOT_BUILT:
        raise Unavailable(retry_after_s=REBUILD_RETRY_S)
    if room is Room.POOL_FULL:
        raise QueueFull(retry_after_s=10)
    most = settings.MAX_LIVE_RUNS_PER_USER
    if room is Room.USER_FULL or count_live(user, most) >= most:
        raise TooManyLiveRuns(retry_after_s=5)
