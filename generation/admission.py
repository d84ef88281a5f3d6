"""The decision before a run is queued: who answers, with what room; or a refusal.

What the queues say goes to the ladder (generation.ladder), which decides; here its steps become
pools, rooms and notices.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from accounts.errors import ApiError, Unavailable
from accounts.ids import external_id
from accounts.models import User
from generation import ladder, scheduler
from generation.catalogue import Choice
from generation.exceptions import Busy, QueueFull, TooManyLiveRuns
from generation.models import Pool
from generation.payloads import (
    busy_model_notice,
    other_model_notice,
    other_region_notice,
    shorter_answer_notice,
)
from generation.regions import warm_pool
from generation.scheduler import Asker, scheduler_sync
from generation.wish import Room, Wish

REBUILD_RETRY_S: Final = 2
"""A queue that Redis has lost is rebuilt within about a second."""

LIVE_RETRY_S: Final = 5
"""One of a hundred own runs ends about so soon."""

Seen = Mapping[str, scheduler.Outlook]


def admit(user: User, wish: Wish) -> Wish:
    """The wish as it may be fulfilled: with its pool first, its room, and what is told of both.

    Nothing is written. Redis is asked first: while it is away nothing can be queued (503). Raises
    QueueFull, TooManyLiveRuns, Busy or Unavailable, with the seconds to wait.
    """
    seen = _look(user, wish)
    choice = wish.choice
    smaller = choice.smaller.pools if choice.smaller is not None else ()
    terms, own = wish.offer.terms, wish.room_of(choice.model)
    asked = ladder.Wish(
        is_paid=terms.is_paid,
        deadline_ms=terms.ttft_deadline_ms,
        answer_tokens=own.answer_tokens,
        context_tokens=own.context_tokens,
        least_context_tokens=wish.least_context_of(choice.model),
        region=choice.home,
        warm=_warm(user, wish),
    )
    decision = ladder.decide(
        asked,
        _outlooks(choice.pools, seen),
        _outlooks(smaller, seen),
        spread=random.random(),  # noqa: S311 — no secret
    )
    if isinstance(decision, ladder.Refused):
        raise _refusal(decision, seen)
    return _admitted(wish, decision)


def _look(user: User, wish: Wish) -> Seen:
    """What each pool that may answer is like for this user; one round trip."""
    terms, choice = wish.offer.terms, wish.choice
    pools = [*choice.pools, *(choice.smaller.pools if choice.smaller is not None else ())]
    names = list(dict.fromkeys(pool.slug for pool in pools))
    asker = Asker(external_id("u", user.id), terms.plan, terms.weight, terms.is_paid)
    found = zip(names, scheduler_sync().outlook(names, asker), strict=True)
    seen = {name: outlook for name, outlook in found if outlook.built}
    if not any(pool.slug in seen for pool in choice.pools):
        raise Unavailable(retry_after_s=REBUILD_RETRY_S)
    return seen


def _outlooks(pools: Sequence[Pool], seen: Seen) -> list[ladder.Outlook]:
    """Pools whose queue is being rebuilt are left out: another one may serve meanwhile."""
    return [_outlook(pool, seen[pool.slug]) for pool in pools if pool.slug in seen]


def _outlook(pool: Pool, found: scheduler.Outlook) -> ladder.Outlook:
    return ladder.Outlook(
        pool.slug,
        pool.region,
        # None where nothing was measured yet: the first answers of a pool must not be refused.
        wait_ms=found.predicted_wait_ms or 0,
        trip_ms=pool.round_trip_ms,
        has_room=found.predicted_wait_ms == 0,
        is_full=found.room is not scheduler.Room.FREE,
        is_closed=found.is_paused or found.slots == 0,
    )


def _warm(user: User, wish: Wish) -> str | None:
    """Asked only where there is another region to be warm in."""
    choice = wish.choice
    away = any(pool.region != choice.home for pool in choice.pools)
    if wish.conversation_id is None or not away:
        return None
    return warm_pool(user.id, wish.conversation_id, choice.home)


def _refusal(decision: ladder.Refused, seen: Seen) -> ApiError:
    rooms = {found.room for found in seen.values()}
    if scheduler.Room.USER_FULL in rooms and scheduler.Room.FREE not in rooms:
        return TooManyLiveRuns(retry_after_s=LIVE_RETRY_S)
    if decision.why == "full":
        return QueueFull(retry_after_s=decision.retry_after_s)
    return Busy(retry_after_s=decision.retry_after_s)


# --- what was decided -----------------------------------------------------------------------------


def _admitted(wish: Wish, decision: ladder.Admitted) -> Wish:
    choice = _narrowed(wish, decision)
    most = Room(decision.context_tokens, decision.answer_tokens) if decision.is_shorter else None
    notices = tuple(_notices(wish, choice, decision))
    return replace(wish, choice=choice, most=most, notices=notices, step=decision.step.name.lower())


def _narrowed(wish: Wish, decision: ladder.Admitted) -> Choice:
    """The model and the one pool that answer."""
    asked = wish.choice
    if decision.is_smaller and asked.smaller is not None:
        chosen = replace(asked.smaller, instead_of=wish.wanted)
    else:
        chosen = asked
    pools = tuple(pool for pool in chosen.pools if pool.slug == decision.pool)
    return replace(chosen, pools=pools)


def _notices(wish: Wish, choice: Choice, decision: ladder.Admitted) -> list[Mapping[str, object]]:
    """One for each step that somebody should know of; which model answers last, for a page shows
    the last one."""
    told: list[Mapping[str, object]] = []
    if decision.is_away:
        told.append(other_region_notice(choice.pool.region))
    if decision.is_shorter:
        room = min(decision.answer_tokens, wish.room_of(choice.model).answer_tokens)
        told.append(shorter_answer_notice(room))
    if decision.is_smaller:
        told.append(busy_model_notice(choice.model, wish.wanted))
    elif choice.instead_of is not None:
        asked = wish.asked or wish.wanted.slug
        told.append(other_model_notice(choice.model, choice.instead_of, asked=asked))
    return told
