"""The rules of a reader: drop what it has, never step over a gap, look into the log instead."""

from __future__ import annotations

import pytest

from generation.events import Event, encode_data
from generation.token_log.follow import Assembled, Follower, Step, assemble, event_text


def _text(seq: int, text: str, name: str = "delta") -> Event:
    return Event(seq, name, encode_data({"text": text}))


START = Event(1, "start", b"{}")


@pytest.mark.parametrize(
    ("seq", "name", "step"),
    [
        (4, "delta", Step.DROP),
        (5, "done", Step.DROP),
        (6, "delta", Step.PASS),
        (6, "done", Step.PASS),
        (7, "delta", Step.READ),
        (7, "notice", Step.READ),
        (9, "snapshot", Step.PASS),
        (9, "retract", Step.PASS),
        # The deltas before it may only have been lost on the way: the log still has them.
        (9, "done", Step.READ),
    ],
)
def test_a_pushed_event(seq: int, name: str, step: Step) -> None:
    follower = Follower(5)
    assert follower.pushed(seq, name) is step
    assert follower.cursor == (seq if step is Step.PASS else 5)


def test_what_the_log_holds_is_passed_on_whatever_its_seq() -> None:
    follower = Follower(5)
    assert not follower.read(5, "delta")
    assert follower.read(1_000_001, "snapshot")
    assert follower.read(1_000_005, "delta")
    assert follower.cursor == 1_000_005


def test_a_told_seq_ahead_of_the_cursor_means_reading_until_the_end() -> None:
    follower = Follower(5)
    assert follower.lags(6)
    assert not follower.lags(5)
    assert follower.read(6, "done")
    assert follower.ended
    assert not follower.lags(7)


def test_the_text_is_put_together() -> None:
    events = [START, _text(2, "Hel"), Event(3, "notice", b"{}"), _text(4, "lo")]
    assert assemble(events) == Assembled("Hello", 4, whole=True)
    assert event_text(events[1]) == "Hel"


def test_a_snapshot_replaces_and_heals_what_was_missing() -> None:
    events = [_text(5, "lost before it"), _text(9, "all", "snapshot"), _text(10, " of it")]
    assert assemble(events) == Assembled("all of it", 10, whole=True)


@pytest.mark.parametrize("events", [[_text(2, "b")], [START, _text(3, "b")]])
def test_a_hole_is_told(events: list[Event]) -> None:
    assert not assemble(events).whole


def test_going_on_after_a_cursor_drops_what_was_held() -> None:
    events = [_text(2, "a"), _text(3, "b"), Event(4, "done", b"{}")]
    assert assemble(events, text="a", after=2) == Assembled("ab", 4, whole=True, ended=True)


def test_a_retract_empties_the_text() -> None:
    events = [START, _text(2, "bad"), Event(3, "retract", b"{}"), Event(4, "done", b"{}")]
    assert assemble(events) == Assembled("", 4, whole=True, retracted=True, ended=True)
