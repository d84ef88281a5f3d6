"""The send: a user's message becomes a queued run (see `generation.begin` for the steps)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from accounts import sql
from accounts.errors import NotFound
from accounts.models import User
from conversations import access, services
from conversations.content import TextPart
from conversations.models import Conversation, Message
from generation import runs
from generation.begin import Once, Place, begin, known_later, run_of_key
from generation.catalogue import choose, offer_later
from generation.exceptions import InvalidParent
from generation.models import Run
from generation.wish import UNKNOWN, History, Wish, empty_thread


class _LeafType:
    """Stands for "the active leaf" where a client named no parent."""


ACTIVE_LEAF: Final = _LeafType()


@dataclass(frozen=True, slots=True)
class SendRequest:
    """What a client sent. `conversation` None: a new one. `parent_id` None: a new first message."""

    conversation: str | None
    parent_id: uuid.UUID | _LeafType | None
    parts: Sequence[TextPart]
    model: str | None
    key: str | None

    def body(self) -> tuple[object, ...]:
        """All that makes this send what it is, for the twin check."""
        parent = self.parent_id if isinstance(self.parent_id, uuid.UUID | None) else "leaf"
        return (self.conversation, str(parent), list(self.parts), self.model)


def send(user: User, request: SendRequest) -> Run:
    """Save the message and queue its run; for a known key, the run that it stands for.

    Raises NotFound, NoPlan, UnknownModel, InvalidParent, RunLive, KeyReused, AtLimit, or what
    admission refuses.
    """
    once = Once(user, request.key, request.body())
    with sql.pipeline():
        known, offered = known_later(once), offer_later(user)
        thread = _history_later(user, request)
        found, offer, history = known(), offered(), thread()
    if run := run_of_key(once, found):
        return run
    choice = choose(offer, request.model)
    text_bytes = sum(len(part["text"].encode()) for part in request.parts)
    conversation = request.conversation and access.row_id("c", request.conversation)
    wish = Wish(request.model, choice, offer, history, text_bytes, conversation or None)
    return begin(once, wish, lambda: _place(user, request))


# The run whose reply is answered: what the engine has read and written up to there.
_THREAD = """
SELECT coalesce(%(parent)s::uuid, shown.active_leaf_id) IS NULL, run.model_used, run.prompt_tokens,
    run.output_tokens
FROM conversations_conversation shown
LEFT JOIN generation_run run ON run.reply_id = coalesce(%(parent)s::uuid, shown.active_leaf_id)
    AND run.conversation_id = shown.id
WHERE shown.id = %(conversation)s AND shown.owner_id = %(user)s
"""


def _history_later(user: User, request: SendRequest) -> Callable[[], History]:
    """What is before the new text, in a pipeline (accounts.sql); an estimate, for another device
    may be faster."""
    if request.conversation is None or request.parent_id is None:
        return empty_thread
    parent = request.parent_id if isinstance(request.parent_id, uuid.UUID) else None
    conversation = access.row_id("c", request.conversation)
    asked = sql.later(_THREAD, {"conversation": conversation, "parent": parent, "user": user.id})

    def history() -> History:
        is_empty, model, prompt, output = next(iter(asked()), (False, None, None, None))
        if is_empty:
            return empty_thread()
        return History(prompt + output, model) if prompt else UNKNOWN

    return history


def _place(user: User, request: SendRequest) -> Place:
    if request.conversation is None:
        conversation, parent_id = services.create_conversation(user), None
        if isinstance(request.parent_id, uuid.UUID):
            raise InvalidParent(param="parent_id")
    else:
        conversation, parent_id = _parent(user, request, request.conversation)
    message = services.add_user_message(conversation, parent_id, request.parts)
    return Place(conversation, message.id)


def _parent(
    user: User, request: SendRequest, conversation_id: str
) -> tuple[Conversation, uuid.UUID | None]:
    """The conversation, locked, and the message below which it goes on; in one round trip.

    Two devices that send at once stand one after the other at the lock. What comes behind it in the
    pipeline begins when the lock is ours, and sees what the first one has written.
    """
    at = request.parent_id if isinstance(request.parent_id, uuid.UUID) else None
    row_id = access.row_id("c", conversation_id)
    entered = access.conversation_later(user, row_id, for_update=True)
    live, found = runs.live_runs_later(row_id), access.message_later(user, row_id, at)
    conversation = entered()
    wanted = conversation.active_leaf_id if request.parent_id is ACTIVE_LEAF else at
    return conversation, _parent_id(wanted, live, found)


def _parent_id(
    wanted: uuid.UUID | None, live: Callable[[], list[Run]], found: Callable[[], Message]
) -> uuid.UUID | None:
    if wanted is None:
        return None
    runs.refuse_live(live(), wanted, "parent_id")
    try:
        parent = found()
    except NotFound:
        raise InvalidParent(param="parent_id") from None
    if parent.role != "assistant":
        raise InvalidParent(param="parent_id")
    return parent.id
