from __future__ import annotations

from generation.run_state import ENDED, LIVE, STATUS_OF_FINISH, STATUSES


def test_every_status_is_either_live_or_ended() -> None:
    assert set(STATUSES) == LIVE | ENDED
    assert not LIVE & ENDED


def test_every_finish_belongs_to_an_ended_status() -> None:
    assert set(STATUS_OF_FINISH.values()) == ENDED
