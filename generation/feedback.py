"""Feedback: what a person thinks of a reply."""

from __future__ import annotations

from django.db import transaction

from accounts.models import User
from conversations import access, services
from generation import runs


@transaction.atomic
def give_feedback(user: User, message: str, rating: str | None, reason: str) -> None:
    """Put this in place of what the user thought of the reply before; None: forget it.

    Raises RunLive for a reply that is still written; NotFound, for all that is no reply too.
    """
    message_id = access.row_id("m", message)
    # First: a reply that ends between the two look-ups is then stored already.
    if run := runs.live_run_of_own(user, message_id):
        raise runs.live_error(run, "message")
    # Before the message is locked: a purge takes the two locks in this order too.
    services.change_conversation_of(user, message_id)
    reply = access.access_reply(user, message_id)
    if rating is None:
        services.clear_feedback(reply, user)
    else:
        services.set_feedback(reply, user, rating, reason)
