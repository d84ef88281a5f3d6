"""The decision before a run is queued: the ladder of gentler steps before anyone is refused. Pure.

    1 at home, within the plan's deadline to the first text
    2 in another region that has room, its round trip added
    3 at home, with a shorter answer and a smaller context
    4 by the smaller model
    5 a longer wait, told as such; a plan that pays is never refused for the wait
    6 refused, with the seconds after which it is worth a try

A conversation that another region has answered stays there while that is warm, before step 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Literal

SHORTER_SHARE: Final = 0.5
"""What step 3 leaves of the answer's room and of the context."""

SHORTEST_ANSWER_TOKENS: Final = 256
SMALLEST_CONTEXT_TOKENS: Final = 1_024
"""Step 3 goes no lower: below, an answer is of no use to anybody."""

SHORTER_UP_TO: Final = 2.0
"""In deadlines: shorter answers help a queue that is about so long. They halve what all who come
wait for; a longer queue needs another model."""

PATIENCE: Final = 4.0
"""In deadlines: how long people who do not pay may be made to wait (20 s with a deadline of 5 s).
Longer, and they have gone before the answer begins."""

RETRY_AT_MOST_S: Final = 120

CHORES_RESUME_MS: Final = 500
"""Chores wait while anybody would wait for longer, and go on below half of it."""


class Step(IntEnum):
    """Which rung was taken; a higher one is worse for whoever asked."""

    HOME = 1
    OTHER_REGION = 2
    SHORTER = 3
    SMALLER = 4
    WAIT = 5
    REFUSED = 6


@dataclass(frozen=True, slots=True)
class Outlook:
    """A pool as one user's next run would find it.

    `wait_ms`: until its first text could begin; `trip_ms` is added for who is not at home there.
    `has_room`: it would start at once. `is_full`: its queue takes no more. `is_closed`: nobody
    begins anything there now (it is paused, or has no replica), and nobody knows for how long.
    """

    pool: str
    region: str
    wait_ms: float
    trip_ms: int = 0
    has_room: bool = False
    is_full: bool = False
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for, by the terms of the plan; `warm`: the pool that answered last.

    `region`: the user's home; empty: wherever the first pool is. `least_context_tokens`: what the
    new text needs by itself; the context is never cut below.
    """

    is_paid: bool
    deadline_ms: int
    answer_tokens: int
    context_tokens: int
    least_context_tokens: int = 0
    region: str = ""
    warm: str | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """Where the run is queued, and with what. `pool` is one of the smaller model at step SMALLER,
    and may be at step WAIT (`is_smaller`)."""

    step: Step
    pool: str
    answer_tokens: int
    context_tokens: int
    wait_ms: float
    is_smaller: bool = False
    is_shorter: bool = False
    is_away: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is written; `retry_after_s` is at least 1. `why`: every queue takes no more, or the
    wait would be too long."""

    why: Literal["full", "busy"]
    retry_after_s: int
    wait_ms: float
    step: Step = Step.REFUSED


def decide(
    wish: Wish, asked: Sequence[Outlook], smaller: Sequence[Outlook] = (), *, spread: float = 0.0
) -> Admitted | Refused:
    """The gentlest step that serves this wish.

    `asked`, `smaller`: the pools of the model and of the plan's smaller one, the first one first;
    those in regions that the user's organisation does not allow are left out by the caller.
    `spread` (0 to 1, random) moves the time to try again, so that those refused together do not
    come back together.
    """
    wish, asked, smaller = _from_home(wish, asked, smaller)
    home = [one for one in asked if one.region == wish.region and not one.is_closed]
    away = [one for one in asked if one.region != wish.region and not one.is_closed]
    small = [one for one in smaller if not one.is_closed]
    return (
        _warm(wish, [*home, *away])
        # Where nothing serves at home, the other regions are where everybody goes.
        or _in_time(wish, home or away)
        or _borrowed(wish, away)
        or _shorter(wish, home or away)
        or _by_smaller(wish, small)
        or _waiting(wish, [*home, *away], small)
        or _parked(wish, asked, is_served=bool(home or away))
        or _refused(wish, [*asked, *smaller], spread)
    )


def _from_home(
    wish: Wish, asked: Sequence[Outlook], smaller: Sequence[Outlook]
) -> tuple[Wish, list[Outlook], list[Outlook]]:
    """Seen from the user's home, or the first pool's region: there is no trip to what is there."""
    region = wish.region or next((one.region for one in [*asked, *smaller]), "")

    def seen(one: Outlook) -> Outlook:
        return replace(one, trip_ms=0) if one.region == region else one

    return replace(wish, region=region), [*map(seen, asked)], [*map(seen, smaller)]


def _best(pools: Iterable[Outlook]) -> Outlook | None:
    """The quickest that takes one more; of equal ones the first."""
    return min((one for one in pools if not one.is_full), key=_total_ms, default=None)


def _total_ms(one: Outlook) -> float:
    return one.wait_ms + one.trip_ms


def _admit(wish: Wish, step: Step, one: Outlook, *, is_smaller: bool = False) -> Admitted:
    return Admitted(
        step,
        one.pool,
        wish.answer_tokens,
        wish.context_tokens,
        _total_ms(one),
        is_smaller=is_smaller,
        is_away=one.region != wish.region,
    )


def _warm(wish: Wish, pools: Sequence[Outlook]) -> Admitted | None:
    warm = _best(one for one in pools if one.pool == wish.warm)
    if warm is None or _total_ms(warm) > wish.deadline_ms:
        return None
    return _admit(wish, Step.HOME, warm)


def _in_time(wish: Wish, pools: Sequence[Outlook]) -> Admitted | None:
    best = _best(pools)
    if best is None or _total_ms(best) > wish.deadline_ms:
        return None
    return _admit(wish, Step.HOME, best)


def _borrowed(wish: Wish, away: Sequence[Outlook]) -> Admitted | None:
    best = _best(one for one in away if one.has_room)
    if best is None or _total_ms(best) > wish.deadline_ms:
        return None
    return _admit(wish, Step.OTHER_REGION, best)


def _shorter(wish: Wish, pools: Sequence[Outlook]) -> Admitted | None:
    best = _best(pools)
    if best is None or _total_ms(best) > SHORTER_UP_TO * wish.deadline_ms:
        return None
    return _cut(wish, Step.SHORTER, best)


def _cut(wish: Wish, step: Step, one: Outlook, *, is_smaller: bool = False) -> Admitted:
    """With less room; what is below the least already stays as it is."""
    answer = _share(wish.answer_tokens, SHORTEST_ANSWER_TOKENS)
    least = max(SMALLEST_CONTEXT_TOKENS, wish.least_context_tokens, answer + 1)
    context = _share(wish.context_tokens, least)
    is_shorter = answer < wish.answer_tokens or context < wish.context_tokens
    whole = _admit(wish, step, one, is_smaller=is_smaller)
    return replace(whole, answer_tokens=answer, context_tokens=context, is_shorter=is_shorter)


def _share(tokens: int, least: int) -> int:
    return min(tokens, max(least, int(tokens * SHORTER_SHARE)))


def _by_smaller(wish: Wish, smaller: Sequence[Outlook]) -> Admitted | None:
    best = _best(smaller)
    if best is None or _total_ms(best) > wish.deadline_ms:
        return None
    return _admit(wish, Step.SMALLER, best, is_smaller=True)


def _waiting(wish: Wish, asked: Sequence[Outlook], smaller: Sequence[Outlook]) -> Admitted | None:
    """Everything is late: the least late, with less room. The asked model where it is no later."""
    own, other = _best(asked), _best(smaller)
    one = _best(candidate for candidate in (own, other) if candidate is not None)
    if one is None or (not wish.is_paid and _total_ms(one) > PATIENCE * wish.deadline_ms):
        return None
    return _cut(wish, Step.WAIT, one, is_smaller=one is not own)


def _parked(wish: Wish, asked: Sequence[Outlook], *, is_served: bool) -> Admitted | None:
    """Nobody serves the model just now, nor a smaller one in time: it waits where somebody will."""
    one = None if is_served else _best(asked)
    return None if one is None else _admit(wish, Step.WAIT, one)


def _refused(wish: Wish, pools: Sequence[Outlook], spread: float) -> Refused:
    best = _best(one for one in pools if not one.is_closed)
    if best is None:
        # Nobody can say when a full queue has a place; its wait is the best guess.
        wait_ms = min((_total_ms(one) for one in pools), default=0.0)
        return Refused("full", _seconds(wish.deadline_ms + wait_ms / 10, spread), wait_ms)
    over_ms = _total_ms(best) - PATIENCE * wish.deadline_ms
    return Refused("busy", _seconds(max(wish.deadline_ms, over_ms), spread), _total_ms(best))


def _seconds(ms: float, spread: float) -> int:
    """Up to twice as long, by `spread`."""
    return max(1, min(RETRY_AT_MOST_S, math.ceil(ms * (1 + spread) / 1_000)))


def chores_pause(longest_wait_ms: float, *, paused: bool) -> bool:
    """Whether chores stand back, given what a person would wait now. With hysteresis: a pool at the
    edge would else begin a chore between any two people."""
    return longest_wait_ms > (CHORES_RESUME_MS / 2 if paused else CHORES_RESUME_MS)
