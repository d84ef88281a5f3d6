"""The owner's buffer: coalescing, resending, and that no seq ever names two things."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from generation.events import EPOCH_SPAN, JUMP_NAMES, Event, encode_data
from generation.token_log.buffer import RunBuffer
from generation.token_log.errors import AnswerTooLong, LogClosed, LogFull
from generation.token_log.follow import assemble, event_text
from generation.token_log.limits import (
    DELTA_CHARS,
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    MAX_EVENT_BYTES,
)


def _buffer(text: str = "") -> RunBuffer:
    return RunBuffer(epoch=1, last_seq=1, text=text)


def _names(buffer: RunBuffer) -> list[tuple[int, str]]:
    return [(event.seq, event.name) for event in buffer.next_events()]


def _fill(buffer: RunBuffer, piece: str) -> None:
    while True:
        buffer.add_text(piece)


def test_text_between_two_batches_becomes_one_delta() -> None:
    buffer = _buffer()
    for piece in ("Hel", "lo", " 👩‍", "👩‍👧"):
        buffer.add_text(piece)
    (event,) = buffer.next_events()
    assert (event.seq, event.name, event_text(event)) == (2, "delta", "Hello 👩‍👩‍👧")


def test_events_keep_their_place_between_pieces_of_text() -> None:
    buffer = _buffer()
    buffer.add_text("a")
    buffer.add_event("notice", b"{}")
    buffer.add_text("b")
    assert _names(buffer) == [(2, "delta"), (3, "notice"), (4, "delta")]


def test_a_batch_stays_the_same_until_it_is_confirmed() -> None:
    buffer = _buffer()
    buffer.add_text("a")
    first = buffer.next_events()
    buffer.add_text("b")
    assert buffer.next_events() == first
    assert buffer.flushed == 0
    buffer.confirm(2)
    assert buffer.flushed == 1
    (second,) = buffer.next_events()
    assert (second.seq, event_text(second)) == (3, "b")
    buffer.confirm(3)
    assert buffer.idle
    assert buffer.flushed == buffer.given == 2


def test_long_text_is_cut_into_bounded_batches() -> None:
    buffer = _buffer()
    text = "\x01" * (2 * DELTA_CHARS + 5)  # six bytes of JSON each
    buffer.add_text(text)
    events = buffer.next_events()
    assert [len(event_text(event)) for event in events] == [DELTA_CHARS, DELTA_CHARS, 5]
    assert "".join(event_text(event) for event in events) == text


def test_a_batch_holds_a_bounded_number_of_events_and_bytes() -> None:
    buffer = _buffer()
    for _ in range(MAX_BATCH_EVENTS + 1):
        buffer.add_event("notice", b"{}")
    assert len(buffer.next_events()) == MAX_BATCH_EVENTS
    buffer.confirm(MAX_BATCH_EVENTS + 1)
    assert not buffer.idle
    assert buffer.flushed == 0
    assert len(buffer.next_events()) == 1

    buffer = _buffer()
    for _ in range(4):
        buffer.add_event("notice", b"x" * MAX_EVENT_BYTES)
    assert sum(len(event.data) for event in buffer.next_events()) == MAX_BATCH_BYTES


def test_empty_text_is_nothing() -> None:
    buffer = _buffer()
    buffer.add_text("")
    assert buffer.idle
    assert buffer.next_events() == ()


@pytest.mark.parametrize("character", ["a", "\x01", "é", "👩", '"', "\u2028"])
def test_the_longest_answer_still_fits_a_snapshot(character: str) -> None:
    buffer = _buffer()
    piece = character * 1_000
    with pytest.raises(AnswerTooLong):
        _fill(buffer, piece)
    # What was refused was not taken, and one event can carry all that was.
    assert len(buffer.whole_text) % 1_000 == 0
    snapshot = buffer.begin_again()
    assert len(snapshot.data) <= MAX_EVENT_BYTES
    assert len(snapshot.data) + len(encode_data({"text": piece})) > MAX_EVENT_BYTES
    assert event_text(snapshot) == buffer.whole_text


def test_a_lone_surrogate_is_refused_and_nothing_is_taken() -> None:
    buffer = _buffer()
    with pytest.raises(ValueError, match="surrogate"):
        buffer.add_text("a\ud800")
    assert buffer.idle
    assert buffer.whole_text == ""


@pytest.mark.parametrize("name", ["start", "delta", "snapshot", "done", "bogus"])
def test_an_owner_cannot_write_other_events(name: str) -> None:
    with pytest.raises(ValueError, match="owner"):
        _buffer().add_event(name, b"{}")


def test_an_event_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        _buffer().add_event("notice", b"x" * (MAX_EVENT_BYTES + 1))


def test_an_epoch_keeps_seqs_for_its_end() -> None:
    buffer = RunBuffer(epoch=2, last_seq=2 * EPOCH_SPAN - 1_001)
    buffer.add_text("a")
    buffer.confirm(buffer.next_events()[-1].seq)
    with pytest.raises(LogFull):
        buffer.add_text("b")
    with pytest.raises(LogFull):
        buffer.add_event("notice", b"{}")
    buffer.add_event("error", b"{}")
    assert buffer.seal() <= 2 * EPOCH_SPAN


def test_after_a_loss_unconfirmed_text_is_in_the_snapshot_and_events_follow_it() -> None:
    buffer = _buffer()
    buffer.add_text("a")
    buffer.add_event("notice", b'{"code":"n"}')
    buffer.next_events()
    buffer.add_text("b")
    buffer.add_event("error", b"{}")
    snapshot = buffer.begin_again()
    assert (snapshot.seq, event_text(snapshot)) == (4, "ab")
    buffer.add_text("c")
    buffer.opened(4)
    assert _names(buffer) == [(5, "notice"), (6, "error"), (7, "delta")]
    buffer.confirm(7)
    assert buffer.flushed == buffer.given


def test_a_second_try_to_begin_again_takes_another_seq() -> None:
    buffer = _buffer("so far")
    first, second = buffer.begin_again(), buffer.begin_again()
    assert (first.seq, second.seq) == (2, 3)


def test_a_wanted_snapshot_replaces_pending_text_once() -> None:
    buffer = _buffer("a")
    buffer.add_text("b")
    buffer.add_event("notice", b"{}")
    buffer.want_snapshot()
    events = buffer.next_events()
    assert [event.name for event in events] == ["snapshot", "notice"]
    assert event_text(events[0]) == "ab"
    buffer.confirm(3)
    assert buffer.idle


def test_an_answer_that_begins_anew_drops_its_text() -> None:
    buffer = _buffer("the old beginning")
    buffer.add_text(" and more")
    buffer.add_event("notice", b"{}")
    buffer.begin_anew()
    buffer.add_text("New")
    assert buffer.whole_text == "New"
    events = buffer.next_events()
    assert [(event.seq, event.name) for event in events] == [(2, "snapshot"), (3, "notice")]
    assert event_text(events[0]) == "New"
    buffer.confirm(3)
    buffer.add_text("er")
    assert _names(buffer) == [(4, "delta")]
    buffer.seal()
    with pytest.raises(LogClosed):
        buffer.begin_anew()


def test_what_was_taken_back_is_never_sent_again() -> None:
    buffer = _buffer()
    buffer.add_text("bad")
    buffer.next_events()
    buffer.add_text("worse")
    buffer.add_event("retract", b'{"text":"sorry"}')
    assert _names(buffer) == [(3, "retract")]
    assert buffer.whole_text == ""
    with pytest.raises(LogClosed):
        buffer.add_text("more")
    # And after a loss the log begins with the retract, not with text.
    assert buffer.begin_again() == Event(4, "retract", b'{"text":"sorry"}')
    assert buffer.next_events() == ()
    buffer.want_snapshot()
    assert _names(buffer) == [(5, "retract")]


def test_done_has_the_seq_that_sealing_told() -> None:
    buffer = _buffer()
    buffer.add_text("a")
    assert buffer.seal() == 3
    with pytest.raises(LogClosed):
        buffer.add_text("b")
    with pytest.raises(LogClosed):
        buffer.add_event("notice", b"{}")
    buffer.want_snapshot()
    buffer.add_done(b"{}")
    assert _names(buffer) == [(2, "delta"), (3, "done")]
    with pytest.raises(LogClosed):
        buffer.add_done(b"{}")


def test_done_needs_a_seal_and_a_seal_can_be_taken_back() -> None:
    buffer = _buffer()
    with pytest.raises(LogClosed):
        buffer.add_done(b"{}")
    buffer.seal()
    buffer.unseal()
    buffer.add_event("error", b"{}")
    assert buffer.seal() == 3


class OwnerAndLog(RuleBasedStateMachine):
    """An owner against a model of append.lua, with lost replies, lost requests and lost logs."""

    @initialize(taken_over=st.booleans())
    def start(self, taken_over: bool) -> None:
        text = "before " if taken_over else ""
        self.buffer = RunBuffer(epoch=1, last_seq=1, text=text)
        self.written = text
        self.notices = 0
        self.log: list[Event] = [Event(1, "start", b"{}")]
        self.meaning: dict[int, Event] = {1: self.log[0]}
        if taken_over:
            self.lose_the_log()

    @rule(text=st.text(st.characters(codec="utf-8"), max_size=5))
    def write(self, text: str) -> None:
        self.buffer.add_text(text)
        self.written += text

    @rule()
    def notice(self) -> None:
        self.notices += 1
        self.buffer.add_event("notice", encode_data({"n": self.notices}))

    @rule()
    def begin_anew(self) -> None:
        self.buffer.begin_anew()
        self.written = ""

    @rule()
    def ask_for_a_snapshot(self) -> None:
        self.buffer.want_snapshot()

    @rule(request_arrives=st.booleans(), reply_arrives=st.booleans())
    def append(self, request_arrives: bool, reply_arrives: bool) -> None:
        events = self.buffer.next_events()
        if not request_arrives:
            return
        last = self.log[-1].seq
        assert last >= self.buffer.confirmed_seq
        self._arrive([event for event in events if event.seq > last])
        if reply_arrives:
            self.buffer.confirm(events[-1].seq if events else self.buffer.confirmed_seq)

    @rule(tries=st.integers(1, 2))
    def lose_the_log(self, tries: int = 1) -> None:
        self.log = []
        for _ in range(tries):
            first = self.buffer.begin_again()
            self._arrive([first])
        self.buffer.opened(first.seq)

    @precondition(lambda self: len(self.log) > 1)
    @rule()
    def finish(self) -> None:
        self.append(request_arrives=True, reply_arrives=True)
        while not self.buffer.idle:
            self.append(request_arrives=True, reply_arrives=True)
        found = assemble(self.log)
        assert found.whole or self.log[0].name == "start"
        assert found.text == self.written
        assert self.buffer.flushed == self.buffer.given

    @invariant()
    def nothing_is_missing_in_the_log(self) -> None:
        seqs = [event.seq for event in self.log]
        assert seqs == sorted(set(seqs))
        for before, event in zip(self.log, self.log[1:], strict=False):
            assert event.seq == before.seq + 1 or event.name in JUMP_NAMES

    def _arrive(self, events: list[Event]) -> None:
        for event in events:
            assert self.meaning.setdefault(event.seq, event) == event
        self.log += events


OwnerAndLog.TestCase.settings = settings(max_examples=60, deadline=None)
TestOwnerAndLog = OwnerAndLog.TestCase
