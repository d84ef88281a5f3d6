"""Regenerate: another version of a reply, by the same model or another."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from accounts.models import User
from conversations import access
from conversations.models import Conversation
from generation import runs
from generation.begin import Once, Place, begin, look_up
from generation.catalogue import Choice, Offer, choose, choose_again
from generation.exceptions import InvalidParent
from generation.models import Run
from generation.wish import UNKNOWN, History, Wish


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

    Other answers to the same message may be live. Raises NotFound, NoPlan, UnknownModel,
    InvalidParent, KeyReused, AtLimit, or what admission refuses.
    """
    body = (":regenerate", request.conversation, request.message, request.model)
    once = Once(user, request.key, body)
    known, offer = look_up(once)
    if known:
        return known
    parent_id, before = _target(user, request)
    choice = _choice(offer, request.model, before)
    where = before.conversation_id if before is not None else None
    wish = Wish(request.model, choice, offer, _history(before), conversation_id=where)
    return begin(once, wish, lambda: _place(user, request, parent_id))


def _choice(offer: Offer, wanted: str | None, before: Run | None) -> Choice:
    if wanted is not None or before is None:
        return choose(offer, wanted)
    return choose_again(offer, before.model_asked)


def _history(before: Run | None) -> History:
    """The same prompt again, where an engine has counted it."""
    if before is None or before.continues_id is not None or not before.prompt_tokens:
        return UNKNOWN
    return History(before.prompt_tokens, before.model_used)


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
