"""The pure form of events: bytes in, the same text out, whatever is in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.events import (
    EPOCH_SPAN,
    EVENT_NAMES,
    MAX_SEQ,
    Event,
    check_event,
    check_run,
    comment_frame,
    encode_data,
    frame_prefix,
    frame_without_id,
    parse_cursor,
    retry_frame,
    sse_frame,
    takeover_seq,
)

RUN = "g_" + "0123456789abcdef" * 2

texts = st.text(st.characters(codec="utf-8"))


def test_data_is_compact_and_keeps_letters_readable() -> None:
    assert encode_data({"text": "Grüße 👩‍👩‍👧", "n": 1}) == '{"text":"Grüße 👩‍👩‍👧","n":1}'.encode()


@given(texts)
def test_any_text_comes_back_byte_for_byte(text: str) -> None:
    assert json.loads(encode_data({"text": text})) == {"text": text}


@given(texts)
def test_a_frame_is_four_lines_for_every_way_to_split_lines(text: str) -> None:
    frame = sse_frame(RUN, Event(7, "delta", encode_data({"text": text})))
    # str.splitlines is the most eager splitter a client can have (it also cuts at U+2028, U+0085).
    assert len(frame.decode().splitlines()) == 4
    assert frame.endswith(b"\n\n")


@pytest.mark.parametrize("text", ["a\ndata: forged", "a\r\nb", "\r", "\x00", "\u2028\u2029\x85"])
def test_line_breaks_in_text_cannot_forge_a_line(text: str) -> None:
    data = encode_data({"text": text})
    assert b"\n" not in data
    assert b"\r" not in data
    assert json.loads(data)["text"] == text


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ude00\ud83d"])
def test_lone_surrogates_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="surrogate") as caught:
        encode_data({"text": "private " + text})
    assert "private" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"bytes"])
def test_what_json_does_not_know_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="plain JSON"):
        encode_data({"value": value})


def test_the_frame_carries_id_event_and_data() -> None:
    frame = sse_frame(RUN, Event(7, "delta", b'{"text":"a"}'))
    assert frame == f'id: {RUN}:7\nevent: delta\ndata: {{"text":"a"}}\n\n'.encode()
    assert frame.startswith(frame_prefix(RUN, 7, "delta"))


def test_a_frame_without_id_leaves_the_cursor_alone() -> None:
    assert frame_without_id("notice", b"{}") == b"event: notice\ndata: {}\n\n"


@pytest.mark.parametrize("data", [b"a\nb", b"a\rb", b"\n"])
def test_a_frame_refuses_data_of_two_lines(data: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        sse_frame(RUN, Event(1, "delta", data))
    with pytest.raises(ValueError, match="one line"):
        frame_without_id("delta", data)


def test_a_frame_refuses_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="name"):
        frame_without_id("bogus", b"{}")


def test_heartbeat_and_retry() -> None:
    assert comment_frame() == b":\n\n"
    assert retry_frame(2000) == b"retry: 2000\n\n"
    with pytest.raises(ValueError, match="retry"):
        retry_frame(-1)


@given(st.integers(0, MAX_SEQ))
def test_every_seq_survives_the_cursor(seq: int) -> None:
    assert parse_cursor(f"{RUN}:{seq}") == (RUN, seq)


@pytest.mark.parametrize(
    "text",
    [
        "",
        RUN,
        RUN + ":",
        RUN + ":-1",
        RUN + ":+1",
        RUN + ":01",
        RUN + ":1 ",
        " " + RUN + ":1",
        RUN + ":1\n",
        RUN + ":1.0",
        RUN + ":1000000000000000",
        RUN + ":\u0661",  # a digit, but not an ASCII one
        RUN.upper() + ":1",
        "m_" + "0" * 32 + ":1",
        "g_" + "0" * 31 + ":1",
        "g_" + "0" * 33 + ":1",
        RUN + ":" + "9" * 100_000,
    ],
)
def test_a_bad_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        parse_cursor(text)


@pytest.mark.parametrize("run", ["", "g_", "g_" + "0" * 31, RUN + "}", "c_" + "0" * 32, RUN + "\n"])
def test_a_bad_run_id_is_refused(run: str) -> None:
    with pytest.raises(ValueError, match="run id"):
        check_run(run)


@pytest.mark.parametrize(
    "event",
    [
        Event(0, "delta", b"{}"),
        Event(MAX_SEQ + 1, "delta", b"{}"),
        Event(1, "bogus", b"{}"),
        Event(1, "delta", b"\n"),
    ],
)
def test_an_impossible_event_is_refused(event: Event) -> None:
    with pytest.raises(ValueError, match=r"seq|name|line"):
        check_event(event)


def test_each_name_can_stand_in_a_log() -> None:
    for name in EVENT_NAMES:
        assert check_event(Event(1, name, b"{}")).name == name
    assert check_run(RUN) == RUN


def test_a_takeover_begins_a_span_of_its_own() -> None:
    assert takeover_seq(2) == EPOCH_SPAN + 1
    assert takeover_seq(3) == 2 * EPOCH_SPAN + 1
    with pytest.raises(ValueError, match="takes over"):
        takeover_seq(1)
