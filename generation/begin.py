"""How a run begins, whoever asks for it: what send, regenerate and continue share.

    1 a known idempotency key → that run, before any limit is looked at
    2 admission; a run id, its largest cost reserved under it (refused → 429, nothing written)
    3 one transaction: key, whatever the caller writes, run, active leaf
    4 the log opens under epoch 0; the run is queued; one ticket

Step 4 may fail without losing the run: it is saved, and the sweep queues it again. Where step 3
fails the reservation is taken back; where nobody is left to do that, the sweep does.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone
from redis.exceptions import RedisError

from accounts import sql
from accounts.errors import KeyReused, NotFound, RateLimited
from accounts.hints import hint
from accounts.ids import external_id
from accounts.models import User
from conversations import services
from conversations.models import Conversation
from generation import queue_counts, runs
from generation.admission import admit
from generation.catalogue import Offer, offer_later
from generation.launch import launch
from generation.models import Run
from generation.reserving import Hold, hold, is_held, let_go
from generation.wish import Wish
from quotas.plans import Terms

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

    def twin(self) -> str:
        """What only a repetition of this request shares: key and body. Empty without a key."""
        if self.key is None:
            return ""
        return hashlib.sha256(self.key.encode() + b"\n" + self.digest()).hexdigest()[:32]


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


def begin(once: Once, wish: Wish, place: Callable[[], Place]) -> Run:
    """A queued run at `place()`, which is called inside the transaction; a faster twin's run.

    Raises what admission refuses, AtLimit, KeyReused, NotFound and what `place` raises; then
    nothing is written.
    """
    pool, plan = wish.choice.pool.slug, wish.offer.terms.plan
    try:
        wish, held = _reserve(once, wish)
    except RateLimited as refusal:
        # A retry is never refused: its twin may have been saved since the key was looked up, and
        # settled, too.
        if known := known_run(once):
            return known
        queue_counts.refused(pool, plan, refusal.code)
        refusal.model = refusal.model or wish.wanted.slug
        raise
    try:
        run = _save(once, wish, held, place)
    except _TwinWasFaster as failure:
        let_go(once.user, held, failure)
        return _twin_run(once)
    except Exception as failure:
        let_go(once.user, held, failure)
        raise
    _launch(run, wish.offer.terms)
    queue_counts.admitted(run.pool_id, plan, wish.step)
    return run


def _reserve(once: Once, wish: Wish) -> tuple[Wish, Hold]:
    """Admission, then the quota; and admission again where that has chosen another model.

    Raises what either refuses; then nothing is held.
    """
    wish = _admit(once, wish)
    held = hold(once.user, once.twin(), wish)
    if held.notice is None:
        return wish, held
    try:
        wish = _admit(once, replace(wish, choice=held.choice, most=None))
    except Exception as failure:
        let_go(once.user, held, failure)
        raise
    # That another model answers is told by the quota.
    rest = [notice for notice in wish.notices if notice["code"] != "other_model"]
    return replace(wish, notices=(*rest, held.notice)), held


def _admit(once: Once, wish: Wish) -> Wish:
    """`admit`; what a twin was admitted for is not refused, whatever the queues say by now."""
    try:
        return admit(once.user, wish)
    except RateLimited:
        if not is_held(once.user, once.twin()):
            raise
        return replace(wish, choice=replace(wish.choice, pools=wish.choice.pools[:1]))


# --- idempotency ----------------------------------------------------------------------------------


def known_run(once: Once) -> Run | None:
    """The run that a known key stands for. Raises KeyReused for a key of another request."""
    return run_of_key(once, known_later(once)())


def look_up(once: Once) -> tuple[Run | None, Offer]:
    """`known_run`, and what the user may choose. One round trip; raises the same."""
    with sql.pipeline():
        known, offered = known_later(once), offer_later(once.user)
        found, offer = known(), offered()
    return run_of_key(once, found), offer


Known = tuple[bytes, uuid.UUID] | None
"""Digest of the body and run of a key."""


def known_later(once: Once) -> Callable[[], Known]:
    """What the key stands for, for `run_of_key`; in a pipeline (accounts.sql)."""
    if once.key is None:
        return lambda: None
    values = {"user": once.user.id, "key": once.key, "since": timezone.now() - KEY_KEPT}
    asked = sql.later(_KNOWN, values)
    return lambda: next(iter(asked()), None)


def run_of_key(once: Once, known: Known) -> Run | None:
    """The run of a known key. Raises KeyReused, NotFound."""
    if known is None:
        return None
    body_digest, run_id = known
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
def _save(once: Once, wish: Wish, held: Hold, place: Callable[[], Place]) -> Run:
    _take_key(once, held.run_id)
    where = place()
    model, terms = wish.choice.model, wish.offer.terms
    room, notices = wish.room_of(model), list(wish.notices)
    asked = wish.asked or wish.wanted.slug
    run = Run(
        id=held.run_id,
        owner=once.user,
        conversation=where.conversation,
        parent_id=where.parent_id,
        continues_id=where.continues_id,
        opening_seq=(1 if where.continues_id is None else 2) + len(notices),
        notices=notices,
        model_asked=asked,
        model_used=model.slug,
        pool=wish.choice.pool,
        plan=terms.plan,
        answer_tokens=room.answer_tokens,
        context_tokens=room.context_tokens,
        reserved_tokens=held.tokens,
        ttft_deadline_ms=terms.ttft_deadline_ms,
    )
    run.standing = held.standing
    sql.insert(run)
    services.touch_and_show(where.conversation.id, where.parent_id)
    hint(run.owner_id, "conversation_changed", conversation=run.conversation_id)
    hint(run.owner_id, "run_started", conversation=run.conversation_id, run=run.id)
    held.require_fresh()
    return run


# --- after the commit -----------------------------------------------------------------------------


def _launch(run: Run, terms: Terms) -> None:
    try:
        launch(run, terms)
    except RedisError:
        # The run is saved and the sweep will queue it; an error now would lose a 2xx.
        log.warning("%s is saved but not queued", run, extra={"action": "launch_failed"})
