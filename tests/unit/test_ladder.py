"""The ladder, as a table: what each plan gets in each situation, and what holds in all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.ladder import (
    PATIENCE,
    RETRY_AT_MOST_S,
    SHORTEST_ANSWER_TOKENS,
    Admitted,
    Outlook,
    Refused,
    Step,
    Wish,
    chores_pause,
    decide,
)

FREE = Wish(is_paid=False, deadline_ms=5_000, answer_tokens=1_024, context_tokens=4_096)
PAID = Wish(is_paid=True, deadline_ms=2_500, answer_tokens=4_096, context_tokens=16_384)
AT_HOME = replace(FREE, region="eu")


def pool(
    name: str, wait_ms: float, region: str = "eu", trip_ms: int = 0, *, full: bool = False
) -> Outlook:
    return Outlook(name, region, wait_ms, trip_ms, has_room=wait_ms == 0, is_full=full)


def short(wait_ms: float, trip_ms: int = 80) -> Outlook:
    return pool("us", wait_ms, "us", trip_ms)


SMALL = "small"


def closed(name: str) -> Outlook:
    return Outlook(name, "eu", 0, is_closed=True)


def small(wait_ms: float, *, full: bool = False) -> Outlook:
    return pool(SMALL, wait_ms, full=full)


@pytest.mark.parametrize(
    ("wish", "asked", "smaller", "step", "where"),
    [
        # Somewhere within the deadline: as asked.
        (FREE, [pool("eu", 0)], [], Step.HOME, "eu"),
        (FREE, [pool("eu", 5_000)], [small(0)], Step.HOME, "eu"),
        (PAID, [pool("eu", 2_500)], [small(0)], Step.HOME, "eu"),
        (FREE, [pool("eu", 4_000), pool("eu2", 1_000)], [], Step.HOME, "eu2"),
        (FREE, [pool("eu", 0, full=True), pool("eu2", 1_000)], [], Step.HOME, "eu2"),
        # Another region only where it would begin at once.
        (AT_HOME, [pool("eu", 6_000), short(0)], [small(0)], Step.OTHER_REGION, "us"),
        (AT_HOME, [pool("eu", 6_000), short(100)], [small(0)], Step.SHORTER, "eu"),
        (AT_HOME, [pool("eu", 6_000), short(0, 6_000)], [small(0)], Step.SHORTER, "eu"),
        (AT_HOME, [pool("eu", 4_000), short(0)], [small(0)], Step.HOME, "eu"),
        (AT_HOME, [pool("eu", 0, full=True), short(0)], [], Step.OTHER_REGION, "us"),
        # The home is the user's, not that of the first pool.
        (AT_HOME, [short(0), pool("eu", 3_000)], [], Step.HOME, "eu"),
        # A little late: shorter. Very late: the smaller model, where that is in time.
        (FREE, [pool("eu", 5_001)], [small(0)], Step.SHORTER, "eu"),
        (FREE, [pool("eu", 10_000)], [small(0)], Step.SHORTER, "eu"),
        (FREE, [pool("eu", 10_001)], [small(0)], Step.SMALLER, SMALL),
        (FREE, [pool("eu", 10_001)], [small(5_000)], Step.SMALLER, SMALL),
        (PAID, [pool("eu", 5_001)], [small(0)], Step.SMALLER, SMALL),
        # Everything is late: the least late, up to the patience of who does not pay.
        (FREE, [pool("eu", 10_001)], [small(5_001)], Step.WAIT, SMALL),
        (FREE, [pool("eu", 20_000)], [], Step.WAIT, "eu"),
        (FREE, [pool("eu", 20_001)], [], Step.REFUSED, None),
        (FREE, [pool("eu", 20_001)], [small(20_001)], Step.REFUSED, None),
        (FREE, [pool("eu", 90_000)], [small(19_000)], Step.WAIT, SMALL),
        (PAID, [pool("eu", 90_000)], [], Step.WAIT, "eu"),
        (PAID, [pool("eu", 90_000)], [small(80_000)], Step.WAIT, SMALL),
        # Full queues refuse everybody.
        (PAID, [pool("eu", 0, full=True)], [], Step.REFUSED, None),
        (PAID, [pool("eu", 0, full=True)], [small(0, full=True)], Step.REFUSED, None),
        (PAID, [pool("eu", 9, full=True)], [small(0)], Step.SMALLER, SMALL),
        # Warm elsewhere: it stays there while that is in time.
        (replace(AT_HOME, warm="us"), [pool("eu", 0), short(4_000)], [], Step.HOME, "us"),
        (replace(AT_HOME, warm="us"), [pool("eu", 0), short(5_000)], [], Step.HOME, "eu"),
        (replace(AT_HOME, warm="gone"), [pool("eu", 0), short(0)], [], Step.HOME, "eu"),
        (FREE, [], [], Step.REFUSED, None),
        # Nothing at home: the other regions are where everybody goes, room or not.
        (AT_HOME, [short(600)], [small(0)], Step.HOME, "us"),
        (AT_HOME, [short(5_000)], [small(0)], Step.SHORTER, "us"),
        (AT_HOME, [closed("eu"), short(600)], [], Step.HOME, "us"),
        # A pool where nobody begins anything: only where nothing else would answer in time.
        (FREE, [closed("eu")], [small(0)], Step.SMALLER, SMALL),
        (FREE, [closed("eu"), pool("eu2", 6_000)], [], Step.SHORTER, "eu2"),
        (FREE, [closed("eu")], [], Step.WAIT, "eu"),
        (PAID, [closed("eu")], [closed(SMALL)], Step.WAIT, "eu"),
        (FREE, [pool("eu", 20_001)], [closed(SMALL)], Step.REFUSED, None),
        (FREE, [pool("eu", 20_001), closed("eu2")], [], Step.REFUSED, None),
        (FREE, [pool("eu", 10_001)], [closed(SMALL)], Step.WAIT, "eu"),
    ],
)
def test_the_ladder(
    wish: Wish, asked: list[Outlook], smaller: list[Outlook], step: Step, where: str | None
) -> None:
    decision = decide(wish, asked, smaller)
    assert decision.step is step
    assert (decision.pool if isinstance(decision, Admitted) else None) == where
    if isinstance(decision, Admitted):
        assert decision.is_smaller == (where == SMALL)
        assert decision.is_away == (where == "us")


def test_the_answer_is_cut_only_where_that_is_told() -> None:
    whole = decide(FREE, [pool("eu", 0)])
    cut = decide(FREE, [pool("eu", 6_000)])
    assert isinstance(whole, Admitted)
    assert isinstance(cut, Admitted)
    assert (whole.answer_tokens, whole.context_tokens, whole.is_shorter) == (1_024, 4_096, False)
    assert (cut.answer_tokens, cut.context_tokens, cut.is_shorter) == (512, 2_048, True)
    least = replace(FREE, answer_tokens=SHORTEST_ANSWER_TOKENS, context_tokens=1_000)
    same = decide(least, [pool("eu", 6_000)])
    assert isinstance(same, Admitted)
    assert (same.answer_tokens, same.context_tokens, same.is_shorter) == (256, 1_000, False)


def test_the_context_is_never_cut_below_what_the_text_needs() -> None:
    long_text = replace(FREE, least_context_tokens=3_500)
    cut = decide(long_text, [pool("eu", 6_000)])
    assert isinstance(cut, Admitted)
    assert (cut.answer_tokens, cut.context_tokens) == (512, 3_500)
    whole = decide(replace(FREE, least_context_tokens=4_096), [pool("eu", 6_000)])
    assert isinstance(whole, Admitted)
    assert (whole.answer_tokens, whole.context_tokens) == (512, 4_096)


def test_those_refused_together_do_not_come_back_together() -> None:
    crowd = [decide(FREE, [pool("eu", 20_000 + 10_000)], spread=part / 10) for part in range(10)]
    seconds = [one.retry_after_s for one in crowd if isinstance(one, Refused)]
    assert len(seconds) == 10
    assert min(seconds) == 10
    assert 18 <= max(seconds) <= 20
    assert len(set(seconds)) == 10


def test_chores_stand_back_and_do_not_flutter() -> None:
    assert not chores_pause(400, paused=False)
    assert chores_pause(501, paused=False)
    assert chores_pause(400, paused=True)
    assert not chores_pause(250, paused=True)


waits = st.floats(0, 200_000)
pools = st.lists(
    st.builds(
        Outlook,
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["eu", "us"]),
        waits,
        st.sampled_from([0, 80, 3_000]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    max_size=4,
)
wishes = st.builds(
    Wish,
    st.booleans(),
    st.integers(100, 20_000),
    st.integers(1, 10_000),
    st.integers(256, 40_000),
    st.integers(0, 40_000),
    st.sampled_from(["", "eu", "us"]),
    st.sampled_from([None, "a", "b"]),
)


@given(wishes, pools, pools, st.floats(0, 1))
def test_what_always_holds(
    wish: Wish, asked: list[Outlook], smaller: list[Outlook], spread: float
) -> None:
    decision = decide(wish, asked, smaller, spread=spread)
    takes = [one for one in [*asked, *smaller] if not one.is_full]
    if isinstance(decision, Refused):
        assert 1 <= decision.retry_after_s <= RETRY_AT_MOST_S
        least = min((one.wait_ms + one.trip_ms for one in takes if not one.is_closed), default=None)
        assert least is None or not wish.is_paid
        assert least is None or least > PATIENCE * wish.deadline_ms
        return
    assert decision.pool in {one.pool for one in takes}
    assert 0 < decision.answer_tokens <= wish.answer_tokens
    assert decision.context_tokens <= wish.context_tokens
    if decision.step < Step.SHORTER:
        assert decision.wait_ms <= wish.deadline_ms
        assert (decision.answer_tokens, decision.is_smaller) == (wish.answer_tokens, False)


@given(wishes, pools, pools)
def test_who_pays_is_never_worse_off(
    wish: Wish, asked: list[Outlook], smaller: list[Outlook]
) -> None:
    free, paid = (replace(wish, is_paid=is_paid) for is_paid in (False, True))
    assert decide(paid, asked, smaller).step <= decide(free, asked, smaller).step
