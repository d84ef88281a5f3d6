"""The event parser: any cuts, any text, byte-exact."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.engines.sse import LineTooLong, SseEvent, SseParser

# Every character at which str.splitlines() would cut, and a few that only look like a line end.
LINE_LIKE = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"

character = st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])
part = st.one_of(
    st.text(character),
    st.sampled_from([*LINE_LIKE, "👨‍👩‍👧‍👦", "नमस्ते", "שלום", "data: x", ":"]),
)
line_text = st.lists(part, max_size=4).map("".join)


def parse(chunks: list[bytes]) -> list[SseEvent]:
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + list(parser.end())


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@settings(deadline=None)
@given(
    st.lists(st.lists(line_text, min_size=1, max_size=3), max_size=5),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_events_are_the_same_whatever_the_cuts(
    events: list[list[str]], line_end: bytes, places: list[int]
) -> None:
    wire = b"".join(
        b"".join(b"data: " + line.encode() + line_end for line in lines) + line_end
        for lines in events
    )
    assert parse(cut(wire, places)) == [SseEvent("", "\n".join(lines)) for lines in events]


def test_every_single_cut_of_an_emoji_family_keeps_it_whole() -> None:
    wire = "data: 👨‍👩‍👧‍👦\n\n".encode()
    for place in range(len(wire) + 1):
        assert parse([wire[:place], wire[place:]]) == [SseEvent("", "👨‍👩‍👧‍👦")]


def test_comments_unknown_fields_and_empty_events_are_passed_over() -> None:
    wire = b": ping\n\nretry: 5\nid: 7\n\nevent: lost\n\ndata:x\n\n"
    assert parse([wire]) == [SseEvent("", "x")]


def test_only_one_space_after_the_colon_belongs_to_the_format() -> None:
    assert parse([b"data:  x \n\n"]) == [SseEvent("", " x ")]


def test_an_event_name_counts_for_its_own_event_only() -> None:
    wire = b"event: error\ndata: a\n\ndata: b\n\n"
    assert parse([wire]) == [SseEvent("error", "a"), SseEvent("", "b")]


def test_the_old_error_line_of_llamacpp_is_an_error_event() -> None:
    assert parse([b'error: {"code":500}\n\n']) == [SseEvent("error", '{"code":500}')]


def test_a_missing_blank_line_at_the_end_loses_nothing() -> None:
    assert parse([b"data: x\n"]) == [SseEvent("", "x")]


def test_a_line_cut_by_the_end_of_the_stream_is_dropped() -> None:
    assert parse([b"data: whole\n\ndata: cu"]) == [SseEvent("", "whole")]


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    assert parse([b"data: a\xffb\n\n"]) == [SseEvent("", "a\ufffdb")]


@pytest.mark.parametrize(
    "wire",
    [b"data: " + b"x" * 200, b"data: " + b"x" * 200 + b"\n", b"data: xxxxx\n" * 30],
    ids=["no line end", "one line", "many lines of one event"],
)
def test_an_endless_line_is_refused_before_it_fills_the_memory(wire: bytes) -> None:
    parser = SseParser(line_bytes_max=100)

    def feed_all() -> None:
        for at in range(0, len(wire), 7):
            list(parser.feed(wire[at : at + 7]))

    with pytest.raises(LineTooLong):
        feed_all()
