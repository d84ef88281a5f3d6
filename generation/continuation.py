"""Continue: a new version that begins with the text of a reply that was cut off."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from accounts.models import User
from conversations import access, selectors
from conversations.models import Conversation
from generation import runs
from generation.begin import Once, Place, begin, look_up
from generation.catalogue import choose_again
from generation.events import encode_data
from generation.exceptions import NotContinuable
from generation.models import Run
from generation.run_state import LIVE, Finish
from generation.token_log.limits import MAX_EVENT_BYTES
from generation.wish import UNKNOWN, History, Wish

CONTINUABLE: Final[frozenset[Finish]] = frozenset(
    {"length", "user_stopped", "unwatched", "interrupted", "error"}
)
"""How a run ended that left an answer unfinished."""


@dataclass(frozen=True, slots=True)
class ContinueRequest:
    """{m} as it stands in the path: the reply to go on with."""

    conversation: str
    message: str
    key: str | None


def continue_reply(user: User, request: ContinueRequest) -> Run:
    """Queue a new version that goes on with the reply; for a known key, the run it stands for.

    The same model writes it, or the default one where that is gone. Raises NotFound, NoPlan,
    RunLive, NotContinuable, KeyReused, AtLimit, or what admission refuses.
    """
    once = Once(user, request.key, (":continue", request.conversation, request.message))
    known, offer = look_up(once)
    if known:
        return known
    conversation = access.access_conversation(user, request.conversation)
    before = _continued_run(user, conversation, access.row_id("m", request.message))
    choice = choose_again(offer, before.model_asked)
    asked, history = before.model_asked, _history(before)
    wish = Wish(asked, choice, offer, history, conversation_id=conversation.id)
    return begin(once, wish, lambda: _place(user, request, before))


def _history(before: Run) -> History:
    """Its prompt, with its answer behind it."""
    if not before.prompt_tokens:
        return UNKNOWN
    return History(before.prompt_tokens + before.output_tokens, before.model_used)


def _continued_run(user: User, conversation: Conversation, message_id: uuid.UUID) -> Run:
    run = runs.run_of_reply(conversation.id, message_id)
    if run is None:
        access.access_message(user, conversation, message_id)
        raise NotContinuable(param="message")
    if run.status in LIVE:
        raise runs.live_error(run, "message")
    if run.finish not in CONTINUABLE:
        raise NotContinuable("This reply is complete. Regenerate it instead.", param="message")
    return run


def _place(user: User, request: ContinueRequest, before: Run) -> Place:
    """An empty reply is continued by a fresh answer."""
    conversation = access.access_conversation(user, request.conversation, for_update=True)
    text = selectors.message_text(conversation.id, before.reply_id)
    if len(encode_data({"text": text})) > MAX_EVENT_BYTES:
        raise NotContinuable("This reply is as long as an answer can be.", param="message")
    return Place(conversation, before.parent_id, before.reply_id if text else None)
