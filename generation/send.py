"""The send: a user's message becomes a queued run (see `generation.begin` for the steps)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from accounts.errors import NotFound
from accounts.models import User
from conversations import access, services
from conversations.content import TextPart
from conversations.models import Conversation
from generation import runs
from generation.begin import Once, Place, begin, known_run
from generation.catalogue import choose
from generation.exceptions import InvalidParent
from generation.models import Run


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

    Raises NotFound, UnknownModel, InvalidParent, RunLive, KeyReused, or what admission refuses.
    """
    once = Once(user, request.key, request.body())
    if known := known_run(once):
        return known
    choice = choose(user, request.model)
    return begin(once, request.model, choice, lambda: _place(user, request))


def _place(user: User, request: SendRequest) -> Place:
    conversation = _conversation(user, request)
    parent_id = _parent_id(user, conversation, request)
    message = services.add_user_message(conversation, parent_id, request.parts)
    return Place(conversation, message.id)


def _conversation(user: User, request: SendRequest) -> Conversation:
    """The conversation, locked: two devices that send at once stand one after the other."""
    if request.conversation is None:
        return services.create_conversation(user)
    return access.access_conversation(user, request.conversation, for_update=True)


def _parent_id(user: User, conversation: Conversation, request: SendRequest) -> uuid.UUID | None:
    wanted = request.parent_id
    if isinstance(wanted, _LeafType):
        wanted = conversation.active_leaf_id
    if wanted is None:
        return None
    runs.refuse_live(conversation.id, wanted, "parent_id")
    try:
        parent = access.access_message(user, conversation, wanted)
    except NotFound:
        raise InvalidParent(param="parent_id") from None
    if parent.role != "assistant":
        raise InvalidParent(param="parent_id")
    return parent.id
