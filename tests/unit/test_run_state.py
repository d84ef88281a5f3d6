from __future__ import annotations

import itertools

import pytest

from generation.run_state import ENDED, LIVE, STATUS_OF_FINISH, STATUSES, may_go


def test_every_status_is_either_live_or_ended() -> None:
    assert set(STATUSES) == LIVE | ENDED
    assert not LIVE & ENDED


def test_nothing_leaves_an_ended_status() -> None:
    assert not [(old, new) for old, new in itertools.product(ENDED, STATUSES) if may_go(old, new)]


@pytest.mark.parametrize("new", [*sorted(ENDED - {"completed"}), "running"])
def test_a_queued_run_may_start_or_end_without_an_answer(new: str) -> None:
    assert may_go("queued", new)  # type: ignore[arg-type]


def test_a_queued_run_cannot_complete() -> None:
    assert not may_go("queued", "completed")


def test_every_finish_belongs_to_an_ended_status() -> None:
    assert set(STATUS_OF_FINISH.values()) == ENDED
