"""Delete a conversation, and undo it."""

from __future__ import annotations

from django.db import transaction

from accounts.models import User
from conversations import access, services
from conversations.conditional import check_match
from conversations.models import Conversation
from generation import runs
from generation.stopping import stop_run


def delete(user: User, conversation: str, if_match: str | None) -> None:
    """Gone everywhere at once; its live runs are stopped and end as any stop does, so that
    `restore` brings their text back. Raises NotFound, PreconditionFailed.
    """
    with transaction.atomic():
        row = access.access_conversation(user, conversation, for_update=True)
        check_match(if_match, row.revision)
        services.delete(row)
    # After the commit: a send that had the lock first has left its run, and none comes any more.
    # In one transaction a finish (run, then conversation) and this could wait for each other. What
    # a crash leaves here is stopped by the reaper (`stop_deleted`).
    for run in runs.live_runs_of(row.id):
        stop_run(run)


@transaction.atomic
def restore(user: User, conversation: str) -> Conversation:
    """Undo a delete, until the purge. One that is not deleted stays as it is. Raises NotFound."""
    row = access.access_deleted_conversation(user, conversation)
    services.restore(row)
    return row
