"""Switch: show another version, and what stands below it."""

from __future__ import annotations

import uuid

from django.db import transaction

from accounts.errors import NotFound
from accounts.hints import hint
from accounts.models import User
from conversations import access, selectors, services
from conversations.conditional import check_match
from conversations.models import Conversation
from generation import runs


@transaction.atomic
def switch(user: User, conversation: str, message: str, if_match: str | None) -> Conversation:
    """Make the newest leaf below the message the active one; the conversation as it is then.

    Under the conversation's lock, which every finish takes too: a reply that is stored meanwhile
    is seen here, or its finish sees this leaf. Raises NotFound, RunLive for a reply that is still
    written, PreconditionFailed.
    """
    row = access.access_conversation(user, conversation, for_update=True)
    check_match(if_match, row.revision)
    leaf = _newest_leaf(user, row, access.row_id("m", message))
    if leaf != row.active_leaf_id:
        services.set_active_leaf(row.id, leaf)
        hint(user.id, "conversation_changed", conversation=row.id)
    row.refresh_from_db(fields=["active_leaf_id", "revision"])
    return row


def _newest_leaf(user: User, row: Conversation, message_id: uuid.UUID) -> uuid.UUID:
    try:
        chosen = access.access_message(user, row, message_id)
    except NotFound:
        run = runs.live_run_of_own(user, message_id)
        if run is None or run.conversation_id != row.id:
            raise
        raise runs.live_error(run, "message") from None
    return selectors.newest_leaf(row.id, chosen.id)
