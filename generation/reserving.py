"""What a send holds before anything is written: a message, a request, and its largest cost.

Held under the run's id, so that whoever ends the run settles it. At a limit the plan's smaller
model answers, or the send is refused.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from django.db import Error as DatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.api_errors import AWAY
from accounts.errors import Unavailable
from accounts.ids import new_id
from accounts.models import User
from generation.catalogue import Choice, Offer, offer_for
from generation.exceptions import AtLimit
from generation.models import Model, Run
from generation.payloads import smaller_model_notice
from generation.settling import live_of
from generation.wish import Wish
from quotas import reservations
from quotas.counters import Held, Refused, counters
from quotas.limits import Standing, duration_words, headers_of, largest_cost, seconds_of

log = logging.getLogger(__name__)

UNREAD: Final[tuple[type[Exception], ...]] = (*AWAY, RedisError, Unavailable)

HELD_S: Final = 15.0
"""Half of what the sweep waits for (settling.LOST_AFTER_MS)."""


@dataclass(frozen=True, slots=True)
class Hold:
    """May be saved: under this id, for this model, with at most so many tokens."""

    run_id: uuid.UUID
    choice: Choice
    tokens: int
    standing: Standing
    notice: dict[str, object] | None = None
    since_s: float = field(default_factory=time.monotonic)

    def require_fresh(self) -> None:
        """Raises Unavailable where so much time has passed that the sweep may release it before
        the run is committed: then it would be saved without a reservation."""
        if time.monotonic() - self.since_s > HELD_S:
            raise Unavailable(retry_after_s=1)


def hold(user: User, twin: str, wish: Wish) -> Hold:
    """Reserve, all or nothing; `twin` stands for a key and its body, '' for none.

    Raises AtLimit, Unavailable, or Redis' errors; then nothing is held.
    """
    terms, models = wish.offer.terms, _models(wish)
    costs = {slug: _cost(model, wish) for slug, model in models.items()}
    limits = {slug: _messages(wish, slug) for slug in models}
    answer = reservations.reserve(user.id, new_id(), twin, terms, limits, costs, live_of(user.id))
    if isinstance(answer, Refused):
        raise _at_limit(answer, wish)
    choice, notice = wish.choice, None
    if answer.model != choice.model.slug and choice.smaller is not None:
        choice = replace(choice.smaller, instead_of=choice.smaller.instead_of or wish.wanted)
        notice = _notice(answer, wish, choice.model)
    return Hold(answer.run_id, choice, costs[answer.model], answer.standing, notice)


def is_held(user: User, twin: str) -> bool:
    """Whether another send with this key and body holds what it needs; Redis' errors pass through.
    Unknown of a plan that limits nothing: it holds nothing."""
    return bool(twin) and counters().knows(user.id, twin)


def let_go(user: User, held: Hold, failure: Exception) -> None:
    """Take back what a send that failed has held, unless its run was saved: by itself, or by a twin
    that shares it. Nothing is raised; where nobody can say, the sweep looks later."""
    if is_undecided(failure):
        return
    try:
        if not Run.objects.filter(id=held.run_id).exists():
            counters().release(user.id, held.run_id)
    except (DatabaseError, RedisError):
        log.warning("run %s not released yet", held.run_id, extra={"action": "not_released"})


def is_undecided(failure: Exception) -> bool:
    """Whether a transaction that failed so may have been committed all the same: the connection
    broke, and the server said nothing."""
    said = getattr(failure.__cause__, "sqlstate", None)
    return isinstance(failure, AWAY) and not isinstance(failure, RedisError) and said is None


def rate_headers(user: User, model: str | None = None) -> dict[str, str]:
    """How the limits stand, as headers; empty where they cannot be read, for the answer is worth
    more."""
    try:
        offer = offer_for(user)
        found = offer.find(model) or offer.find(None)
        standing = standing_of(user, offer)
    except UNREAD:
        return {}
    return headers_of(standing, found[0].slug if found else None)


def standing_of(user: User, offer: Offer) -> Standing:
    """How the limits stand, for every model of the offer. Raises Unavailable, or Redis' errors."""
    return reservations.look(user.id, offer.terms, offer.messages, live_of(user.id))


def _models(wish: Wish) -> dict[str, Model]:
    """Who may answer: the chosen one, and where the plan says so its smaller one."""
    models = {wish.choice.model.slug: wish.choice.model}
    smaller = wish.choice.smaller
    if smaller is not None and wish.offer.terms.smaller is not None:
        models.setdefault(smaller.model.slug, smaller.model)
    return models


def _messages(wish: Wish, slug: str) -> int | None:
    """A fallback that the plan does not have counts as what was asked for."""
    terms = wish.offer.terms
    return terms.messages_of(slug if terms.allows(slug) else wish.wanted.slug)


def _cost(model: Model, wish: Wish) -> int:
    room = wish.room_of(model)
    return largest_cost(
        context_tokens=room.context_tokens,
        answer_tokens=min(room.answer_tokens, room.context_tokens // 2),
        history_tokens=wish.history.tokens_of(model.slug),
        text_bytes=wish.text_bytes,
    )


def _notice(held: Held, wish: Wish, used: Model) -> dict[str, object]:
    left = held.standing.messages.get(wish.choice.model.slug)
    back_ms = left.next_ms if left else 0
    messages = _messages(wish, wish.choice.model.slug) or 0
    return smaller_model_notice(
        used,
        wish.wanted,
        messages=messages,
        back=timezone.now() + timedelta(milliseconds=back_ms),
        back_in=duration_words(seconds_of(back_ms)),
    )


def _at_limit(refused: Refused, wish: Wish) -> AtLimit:
    terms, model = wish.offer.terms, wish.choice.model
    retry_after_s = max(1, seconds_of(refused.wait_ms))
    wait = f"Try again in {duration_words(retry_after_s)}."
    if refused.limit == "messages":
        most = _messages(wish, model.slug) or 0
        count = "your message" if most == 1 else f"your {most} messages"
        text = f"You have used {count} to {wish.wanted.title} for now. {wait}"
    elif refused.limit == "tokens":
        text = f"Your plan allows {terms.tokens_per_minute} tokens a minute. {wait}"
    else:
        text = f"Your plan allows {terms.requests_per_minute} requests a minute. {wait}"
    return AtLimit(
        text,
        refused.limit,
        standing=refused.standing,
        model=model.slug,
        retry_after_s=retry_after_s,
    )
