"""The stop, as a person asks for it."""

from __future__ import annotations

from accounts.models import User
from generation import runs
from generation.models import Run
from generation.stopping import stop_run


def request_stop(user: User, run: object) -> Run:
    """Stop the run (see `stop_run`); the run as it is then. Raises NotFound."""
    row = runs.access_run(user, run)
    stop_run(row)
    return Run.objects.select_related("conversation").get(id=row.id)
