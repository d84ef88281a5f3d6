"""The send: a user's message becomes a queued run.

    1 a known idempotency key → that run, before any limit is looked at
    2 admission (refused → 429, nothing written)
    3 one transaction: key, user message, run, active leaf
    4 the log opens under epoch 0 with `start`; the run is queued; one ticket

Step 4 may fail without losing the send: the run is saved, and the sweep queues it again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import connection, transaction
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.errors import KeyReused, NotFound
from accounts.ids import new_id
from accounts.models import User
from conversations import access, services
from conversations.content import TextPart
from conversations.models import Conversation
from generation import runs
from generation.admission import admit
from generation.catalogue import Choice, choose
from generation.exceptions import InvalidParent, RunLive
from generation.launch import launch
from generation.models import IdempotencyKey, Run

log = logging.getLogger(__name__)

KEY_KEPT: Final = timedelta(hours=24)


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

    def digest(self) -> bytes:
        """SHA-256 over all that makes this send what it is, for the twin check."""
        parent = self.parent_id if isinstance(self.parent_id, uuid.UUID | None) else "leaf"
        body = [self.conversation, str(parent), list(self.parts), self.model]
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()


class _TwinWasFaster(Exception):
    """Another send with the same key has committed."""


def send(user: User, request: SendRequest) -> Run:
    """Save the message and queue its run; for a known key, the run that it stands for.

    Raises NotFound, UnknownModel, InvalidParent, RunLive, KeyReused, or what admission refuses.
    """
    if known := _known_run(user, request):
        return known
    choice = choose(user, request.model)
    admit(user, choice.pool)
    try:
        run = _save(user, request, choice)
    except _TwinWasFaster:
        return _twin_run(user, request)
    _launch(run)
    return run


# --- idempotency ----------------------------------------------------------------------------------


def _known_run(user: User, request: SendRequest) -> Run | None:
    if request.key is None:
        return None
    known = IdempotencyKey.objects.filter(user=user, key=request.key).select_related("run").first()
    if known is None or known.created < timezone.now() - KEY_KEPT:
        return None
    if bytes(known.body_digest) != request.digest():
        raise KeyReused(param="Idempotency-Key")
    return runs.access_run(user, known.run.external_id)


def _twin_run(user: User, request: SendRequest) -> Run:
    run = _known_run(user, request)
    if run is None:
        raise NotFound  # the twin's conversation was purged in between
    return run


def _take_key(user: User, request: SendRequest, run_id: uuid.UUID) -> None:
    """Insert the key; raises _TwinWasFaster where it exists, once its transaction has committed."""
    if request.key is None:
        return
    now = timezone.now()
    with connection.cursor() as cursor:
        # An expired key is taken over; a fresh one wins. Two twins meet here: the second waits for
        # the first to commit, then moves no row.
        cursor.execute(
            """
            INSERT INTO generation_idempotencykey AS known
                (user_id, key, body_digest, run_id, created)
            VALUES (%s, %s, %s, %s, %s)
            ON CONFLICT (user_id, key) DO UPDATE
                SET body_digest = excluded.body_digest, run_id = excluded.run_id,
                    created = excluded.created
                WHERE known.created < %s
            """,
            [user.id, request.key, request.digest(), run_id, now, now - KEY_KEPT],
        )
        if cursor.rowcount != 1:
            raise _TwinWasFaster


# --- the transaction ------------------------------------------------------------------------------


@transaction.atomic
def _save(user: User, request: SendRequest, choice: Choice) -> Run:
    run_id = new_id()
    _take_key(user, request, run_id)
    conversation = _conversation(user, request)
    parent_id = _parent_id(user, conversation, request)
    message = services.add_user_message(conversation, parent_id, request.parts)
    run = Run.objects.create(
        id=run_id,
        owner=user,
        conversation=conversation,
        parent=message,
        model_asked=request.model or choice.model.slug,
        model_used=choice.model.slug,
        pool=choice.pool,
        answer_tokens=choice.model.answer_tokens,
    )
    services.set_active_leaf(conversation.id, message.id)
    services.touch(conversation.id)
    return run


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
    _refuse_live(conversation, wanted)
    try:
        parent = access.access_message(user, conversation, wanted)
    except NotFound:
        raise InvalidParent(param="parent_id") from None
    if parent.role != "assistant":
        raise InvalidParent(param="parent_id")
    return parent.id


def _refuse_live(conversation: Conversation, parent_id: uuid.UUID) -> None:
    for run in runs.live_runs_of(conversation.id):
        if parent_id in (run.reply_id, run.parent_id):
            raise RunLive(
                f"The answer {run.external_id} is still being written there. Wait for its end, "
                "or stop it.",
                param="parent_id",
            )


# --- after the commit -----------------------------------------------------------------------------


def _launch(run: Run) -> None:
    try:
        launch(run)
    except RedisError:
        # The send is saved and the sweep will queue it; an error now would lose a 2xx.
        log.warning("%s is saved but not queued", run, extra={"action": "launch_failed"})
