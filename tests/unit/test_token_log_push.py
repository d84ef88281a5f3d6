"""The push framing: what goes in comes out, within the size, and damage is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.events import EVENT_NAMES, MAX_SEQ, Event, encode_data, sse_frame
from generation.token_log.limits import MAX_PUSH_BYTES
from generation.token_log.push import (
    decode_push,
    decode_stop,
    encode_push,
    encode_stop,
    pack_entries,
)

RUN = "g_" + "ab" * 16
OTHER = "g_" + "cd" * 16

runs = st.integers(0, 2**128 - 1).map(lambda number: f"g_{number:032x}")
events = st.builds(
    Event,
    st.integers(1, MAX_SEQ),
    st.sampled_from(EVENT_NAMES),
    st.text(st.characters(codec="utf-8"), max_size=40).map(
        lambda text: encode_data({"text": text})
    ),
)
entries = st.tuples(runs, st.integers(0, MAX_SEQ), st.lists(events, max_size=6))


@given(st.lists(entries, max_size=6))
def test_a_gateway_gets_every_frame_as_it_goes_to_clients(
    given_entries: list[tuple[str, int, list[Event]]],
) -> None:
    pushed = [run for payload in encode_push(given_entries) for run in decode_push(payload)]
    assert [(one.run, one.told_seq) for one in pushed] == [entry[:2] for entry in given_entries]
    for one, (run, _, wanted) in zip(pushed, given_entries, strict=True):
        assert [(e.seq, e.name, e.data) for e in one.events] == [
            (e.seq, e.name, e.data) for e in wanted
        ]
        assert [e.frame for e in one.events] == [sse_frame(run, e) for e in wanted]
        assert one.body == b"".join(e.frame for e in one.events)


def test_nothing_to_say_is_no_payload() -> None:
    assert encode_push([]) == []
    assert pack_entries([]) == []


def test_many_runs_are_split_into_payloads_of_a_bounded_size() -> None:
    data = encode_data({"text": "x" * 10_000})
    wanted = [(f"g_{n:032x}", 1, [Event(1, "delta", data)]) for n in range(100)]
    payloads = encode_push(wanted)
    assert len(payloads) > 1
    assert max(map(len, payloads)) <= MAX_PUSH_BYTES
    assert [one.run for payload in payloads for one in decode_push(payload)] == [
        run for run, _, _ in wanted
    ]


def test_an_event_too_large_to_push_is_told_instead() -> None:
    small, large = Event(1, "delta", b"{}"), Event(2, "snapshot", b"x" * MAX_PUSH_BYTES)
    (payload,) = encode_push([(RUN, 3, [small, large, Event(3, "delta", b"{}")])])
    (pushed,) = decode_push(payload)
    # What follows the large one is left out too: it would reach clients over a gap.
    assert [event.seq for event in pushed.events] == [1]
    assert pushed.told_seq == 3


def _payload() -> bytes:
    return encode_push([(RUN, 7, [Event(7, "delta", b'{"text":"a"}')]), (OTHER, 1, [])])[0]


def test_every_cut_of_a_payload_is_refused_or_ends_between_entries() -> None:
    payload = _payload()
    whole = decode_push(payload)
    assert len(whole) == 2
    for length in range(len(payload)):
        try:
            assert decode_push(payload[:length]) == whole[: 0 if length <= 2 else 1]
        except ValueError:
            continue


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(junk: bytes) -> None:
    with pytest.raises(ValueError, match=r"push payload|run id"):
        decode_push(b"P1" + b"\xff" + junk)
    with pytest.raises(ValueError, match="push payload"):
        decode_push(b"XX" + junk)


def test_a_payload_above_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="push payload"):
        decode_push(b"P1" + b"\x00" * MAX_PUSH_BYTES)


def test_a_stop_names_its_run() -> None:
    assert decode_stop(encode_stop(RUN)) == RUN


@pytest.mark.parametrize(
    "payload", [b"", b"S1", b"S1g_", b"P1" + RUN.encode(), b"S1" + b"\xff" * 34]
)
def test_a_bad_stop_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"stop payload|run id"):
        decode_stop(payload)
