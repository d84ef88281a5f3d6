"""A run's status, why it ended, and which transitions there are. Pure.

queued → running → completed | stopped | failed | blocked; a queued run may also go straight to
stopped, failed or blocked.
"""

from __future__ import annotations

from typing import Literal

Status = Literal["queued", "running", "completed", "stopped", "failed", "blocked"]
Finish = Literal[
    "stop", "length", "user_stopped", "unwatched", "moderation", "interrupted", "error"
]

LIVE: frozenset[Status] = frozenset({"queued", "running"})
ENDED: frozenset[Status] = frozenset({"completed", "stopped", "failed", "blocked"})
STATUSES: tuple[Status, ...] = ("queued", "running", "completed", "stopped", "failed", "blocked")

EPOCHS_MAX = 20
"""Owners that a run may have, whatever became of them: then it ends with the text it has."""

FAILURES_MAX = 5
"""How often in a row an engine may fail it before another word is written. What takes an engine
down is most likely what it reads first; the answers beside it have got further."""

STATUS_OF_FINISH: dict[Finish, Status] = {
    "stop": "completed",
    "length": "completed",
    "user_stopped": "stopped",
    "unwatched": "stopped",
    "moderation": "blocked",
    "interrupted": "failed",
    "error": "failed",
}
