"""Regenerate: another version of a reply, by the same model or another."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from accounts.models import User
from conversations import access
from conversations.models import Conversation
from generation import runs
from generation.begin import Once, Place, begin, known_run
from generation.catalogue import Choice, choose, choose_again
from generation.exceptions import InvalidParent
from generation.models import Run


@dataclass(frozen=True, slots=True)
class RegenerateRequest:
    """{m} as it stands in the path: a user's message, or a reply of it, live or stored.

    `model` None: the one that wrote that reply, or the newest reply to that message.
    """

    conversation: str
    message: str
    model: str | None
    key: str | None


def regenerate(user: User, request: RegenerateRequest) -> Run:
    """Queue a new version of the reply; for a known key, the run that it stands for.

    Other answers to the same message may be live. Raises NotFound, UnknownModel, InvalidParent,
    KeyReused, or what admission refuses.
    """
    body = (":regenerate", request.conversation, request.message, request.model)
    once = Once(user, request.key, body)
    if known := known_run(once):
        return known
    parent_id, before = _target(user, request)
    choice = _choice(user, request.model, before)
    return begin(once, request.model, choice, lambda: _place(user, request, parent_id))


def _choice(user: User, wanted: str | None, before: Run | None) -> Choice:
    if wanted is not None or before is None:
        return choose(user, wanted)
    return choose_again(user, before.model_asked)


def _target(user: User, request: RegenerateRequest) -> tuple[uuid.UUID, Run | None]:
    """The user's message to answer, and the run whose model is wanted again."""
    conversation = access.access_conversation(user, request.conversation)
    message_id = access.row_id("m", request.message)
    if run := runs.run_of_reply(conversation.id, message_id):
        return run.parent_id, run
    return _user_message(user, conversation, message_id)


def _user_message(
    user: User, conversation: Conversation, message_id: uuid.UUID
) -> tuple[uuid.UUID, Run | None]:
    message = access.access_message(user, conversation, message_id)
    if message.role != "user":
        # A reply that no run wrote (an import): its parent is the message it answers.
        if message.parent_id is None:
            raise InvalidParent("There is no message that this one answers.")
        message = access.access_message(user, conversation, message.parent_id)
    if message.role != "user":
        raise InvalidParent("Only an answer to a user's message can be written again.")
    return message.id, Run.objects.filter(parent_id=message.id).order_by("-id").first()


def _place(user: User, request: RegenerateRequest, parent_id: uuid.UUID) -> Place:
    """Looked at again, now locked: a delete that was faster leaves nothing to answer."""
    conversation = access.access_conversation(user, request.conversation, for_update=True)
    return Place(conversation, access.access_message(user, conversation, parent_id).id)
