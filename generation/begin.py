"""How a run begins, whoever asks for it: what send, regenerate and continue share.

    1 a known idempotency key → that run, before any limit is looked at
    2 admission (refused → 429, nothing written)
    3 one transaction: key, whatever the caller writes, run, active leaf
    4 the log opens under epoch 0; the run is queued; one ticket

Step 4 may fail without losing the run: it is saved, and the sweep queues it again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone
from redis.exceptions import RedisError

from accounts import sql
from accounts.errors import KeyReused, NotFound
from accounts.hints import hint
from accounts.ids import external_id, new_id
from accounts.models import User
from conversations import services
from conversations.models import Conversation
from generation import runs
from generation.admission import admit
from generation.catalogue import Choice
from generation.launch import launch
from generation.models import Run
from generation.payloads import other_model_notice

log = logging.getLogger(__name__)

KEY_KEPT: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Once:
    """One request of one user. `body` is all that makes it what it is, for the twin check."""

    user: User
    key: str | None
    body: tuple[object, ...]

    def digest(self) -> bytes:
        """SHA-256 over the body."""
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).digest()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the answer goes: below `parent_id`, a user's message of a conversation that is locked.

    `continues_id`: the reply whose text the answer begins with.
    """

    conversation: Conversation
    parent_id: uuid.UUID
    continues_id: uuid.UUID | None = None


class _TwinWasFaster(Exception):
    """Another request with the same key has committed."""


def begin(once: Once, asked: str | None, choice: Choice, place: Callable[[], Place]) -> Run:
    """A queued run at `place()`, which is called inside the transaction; a faster twin's run.

    `asked` is the model as the client named it. Raises what admission refuses, KeyReused, NotFound
    and what `place` raises; then nothing is written.
    """
    admit(once.user, choice.pool)
    try:
        run = _save(once, asked, choice, place)
    except _TwinWasFaster:
        return _twin_run(once)
    _launch(run)
    return run


# --- idempotency ----------------------------------------------------------------------------------


def known_run(once: Once) -> Run | None:
    """The run that a known key stands for. Raises KeyReused for a key of another request."""
    if once.key is None:
        return None
    values = {"user": once.user.id, "key": once.key, "since": timezone.now() - KEY_KEPT}
    found = sql.rows(_KNOWN, values)
    if not found:
        return None
    body_digest, run_id = found[0]
    if body_digest != once.digest():
        raise KeyReused(param="Idempotency-Key")
    return runs.access_run(once.user, external_id("g", run_id))


_KNOWN = """
SELECT body_digest, run_id FROM generation_idempotencykey
WHERE user_id = %(user)s AND key = %(key)s AND created >= %(since)s
"""


def _twin_run(once: Once) -> Run:
    run = known_run(once)
    if run is None:
        raise NotFound  # the twin's conversation was purged in between
    return run


def _take_key(once: Once, run_id: uuid.UUID) -> None:
    """Insert the key; raises _TwinWasFaster where it exists, once its transaction has committed."""
    if once.key is None:
        return
    now = timezone.now()
    values = {
        "user": once.user.id,
        "key": once.key,
        "digest": once.digest(),
        "run": run_id,
        "now": now,
        "old": now - KEY_KEPT,
    }
    if not sql.rows(_TAKE_KEY, values):
        raise _TwinWasFaster


# An expired key is taken over; a fresh one wins. Two twins meet here: the second waits for the
# first to commit, then moves no row.
_TAKE_KEY = """
INSERT INTO generation_idempotencykey AS known (user_id, key, body_digest, run_id, created)
VALUES (%(user)s, %(key)s, %(digest)s, %(run)s, %(now)s)
ON CONFLICT (user_id, key) DO UPDATE
    SET body_digest = excluded.body_digest, run_id = excluded.run_id, created = excluded.created
    WHERE known.created < %(old)s
RETURNING 1
"""


# --- the transaction ------------------------------------------------------------------------------


@transaction.atomic
@sql.pipeline()
def _save(once: Once, asked: str | None, choice: Choice, place: Callable[[], Place]) -> Run:
    run_id = new_id()
    _take_key(once, run_id)
    where = place()
    asked = asked or (choice.instead_of or choice.model).slug
    notices = _notices(choice, asked)
    run = Run(
        id=run_id,
        owner=once.user,
        conversation=where.conversation,
        parent_id=where.parent_id,
        continues_id=where.continues_id,
        opening_seq=(1 if where.continues_id is None else 2) + len(notices),
        notices=notices,
        model_asked=asked,
        model_used=choice.model.slug,
        pool=choice.pool,
        answer_tokens=choice.model.answer_tokens,
    )
    sql.insert(run)
    services.touch_and_show(where.conversation.id, where.parent_id)
    hint(run.owner_id, "conversation_changed", conversation=run.conversation_id)
    hint(run.owner_id, "run_started", conversation=run.conversation_id, run=run.id)
    return run


def _notices(choice: Choice, asked: str) -> list[dict[str, object]]:
    if choice.instead_of is None:
        return []
    return [other_model_notice(choice.model, choice.instead_of, asked=asked)]


# --- after the commit -----------------------------------------------------------------------------


def _launch(run: Run) -> None:
    try:
        launch(run)
    except RedisError:
        # The run is saved and the sweep will queue it; an error now would lose a 2xx.
        log.warning("%s is saved but not queued", run, extra={"action": "launch_failed"})
