"""Bytes of a streamed completion to pieces."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.engines.answer import AnswerReader, error_for, read_finish, read_usage
from generation.engines.errors import (
    EngineCutOff,
    EngineError,
    EngineRejected,
    EngineUnavailable,
)
from generation.engines.protocol import Piece, Usage
from tests.upstream import DONE, delta, finish, frame, usage

HARD_TEXTS = [
    "👨‍👩‍👧‍👦 नमस्ते שלום, مرحبا",
    "before\n\ndata: [DONE]\n\ndata: x\r\nafter",
    "a\u2028b\u2029c\x85d",
    ": comment\nevent: error\n",
]

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    st.sampled_from(HARD_TEXTS),
)


def read(chunks: list[bytes]) -> tuple[list[Piece], Piece]:
    answer = AnswerReader()
    pieces = [piece for chunk in chunks for piece in answer.feed(chunk)]
    return pieces, answer.end(prompt_tokens=99)


@settings(deadline=None)
@given(
    st.lists(texts, max_size=8),
    st.booleans(),
    st.lists(st.integers(0, 100_000), max_size=40),
    st.booleans(),
)
def test_the_text_is_byte_exact_whatever_the_cuts(
    parts: list[str], ascii_only: bool, places: list[int], crlf: bool
) -> None:
    wire = b"".join(delta(part, ascii_only=ascii_only) for part in parts) + finish() + DONE
    if crlf:
        wire = wire.replace(b"\n", b"\r\n")
    edges = [0, *sorted(place % (len(wire) + 1) for place in places), len(wire)]
    pieces, last = read([wire[a:b] for a, b in itertools.pairwise(edges)])
    assert "".join(piece.text for piece in pieces) + last.text == "".join(parts)
    assert all(piece.text and piece.finish is None for piece in pieces)
    assert last.finish == "stop"


def test_usage_is_taken_from_the_server() -> None:
    pieces, last = read([delta("a"), delta("b"), finish(), usage(10, 8, 5), DONE])
    assert last == Piece("", 3, "stop", Usage(10, 8, 5))
    assert sum(piece.tokens for piece in [*pieces, last]) == 5


def test_without_usage_the_pieces_are_counted() -> None:
    _, last = read([delta("a"), delta("b"), finish("length"), DONE])
    assert last == Piece("", 0, "length", Usage(99, 0, 2))


def test_running_usage_counts_pieces_of_several_tokens() -> None:
    chunk = {
        "choices": [{"index": 0, "delta": {"content": "abc"}}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 3},
    }
    pieces, last = read([frame(chunk), finish(), DONE])
    assert [pieces[0].tokens, last.tokens] == [3, 0]


def test_usage_may_come_with_choices_as_some_gateways_do() -> None:
    chunk = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 1},
    }
    assert read([delta("a"), frame(chunk)])[1].usage == Usage(4, 0, 1)


def test_reasoning_roles_null_content_and_other_choices_are_passed_over() -> None:
    deltas = [
        {"role": "assistant", "content": None},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"tool_calls": [{"function": {"name": "x"}}]},
        {"content": ""},
        {"content": ["x"]},
    ]
    noise = [frame({"choices": [{"index": 0, "delta": d}]}) for d in deltas]
    other = frame({"choices": [{"index": 1, "delta": {"content": "other"}}]})
    pieces, _ = read([*noise, other, frame({}), frame({"choices": None}), delta("a"), finish()])
    assert [piece.text for piece in pieces] == ["a"]


def test_an_emoji_cut_between_its_halves_is_whole() -> None:
    chunks = [delta("\ud83d", ascii_only=True), delta("\ude00", ascii_only=True), finish(), DONE]
    pieces, last = read(chunks)
    assert [piece.text for piece in pieces] == ["😀"]
    assert last.usage is not None
    assert last.usage.output_tokens == 2


def test_f34_nul_and_lone_halves_are_made_safe() -> None:
    chunks = [delta("a\x00b"), delta("\ud83d", ascii_only=True), finish(), DONE]
    pieces, last = read(chunks)
    assert pieces[0].text + last.text == "a\ufffdb\ufffd"


@pytest.mark.parametrize(
    "chunks",
    [[], [delta("a")], [delta("a"), DONE], [delta("a"), finish()[:-4]], [usage(1, 0, 0), DONE]],
    ids=["nothing", "no finish", "done without finish", "finish cut", "usage only"],
)
def test_an_end_without_a_finish_is_a_cut(chunks: list[bytes]) -> None:
    with pytest.raises(EngineCutOff):
        read(chunks)


def test_a_missing_done_after_the_finish_is_no_cut() -> None:
    assert read([delta("a"), finish()])[1].finish == "stop"


def test_nothing_is_read_after_done() -> None:
    pieces, _ = read([delta("a"), finish(), DONE, delta("b"), b"data: no json\n\n"])
    assert [piece.text for piece in pieces] == ["a"]


def test_text_after_the_finish_is_not_part_of_the_answer() -> None:
    pieces, _ = read([delta("a"), finish(), delta("b"), DONE])
    assert [piece.text for piece in pieces] == ["a"]


@pytest.mark.parametrize(
    "wire",
    [b"data: {\n\n", b"data: 7\n\n", b"data: " + b"[" * 100_000 + b"\n\n"],
    ids=["cut", "no object", "deep"],
)
def test_what_is_not_a_json_object_is_an_error(wire: bytes) -> None:
    with pytest.raises(EngineError, match=r"JSON|object"):
        read([wire])


def test_a_line_without_end_is_an_error() -> None:
    with pytest.raises(EngineError, match="too long"):
        read([b"data: " + b"x" * 2**20 + b"x"])


@pytest.mark.parametrize(
    ("payload", "kind", "retryable"),
    [
        ({"error": {"message": "boom", "code": 500}}, EngineError, True),
        ({"error": {"message": "boom"}}, EngineError, True),
        ({"error": "boom"}, EngineError, True),
        ({"error": {"code": 503, "type": "unavailable_error"}}, EngineUnavailable, True),
        ({"error": {"code": "429"}}, EngineUnavailable, True),
        ({"error": {"code": 400, "type": "bad"}}, EngineRejected, False),
        ({"object": "error", "message": "x", "code": 400}, EngineRejected, False),
        (
            {"error": {"code": 400, "type": "exceed_context_size_error"}},
            EngineRejected,
            False,
        ),
    ],
)
def test_an_error_frame_never_ends_as_a_stop(
    payload: object, kind: type[EngineError], retryable: bool
) -> None:
    with pytest.raises(EngineError) as caught:
        read([delta("a"), frame(payload), finish(), DONE])
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, EngineRejected),
        (401, EngineRejected),
        (404, EngineRejected),
        (307, EngineRejected),
        (408, EngineUnavailable),
        (429, EngineUnavailable),
        (500, EngineError),
        (502, EngineUnavailable),
        (503, EngineUnavailable),
    ],
)
@pytest.mark.parametrize("payload", [None, [], "x", {"error": None}, {"error": {"message": 7}}])
def test_a_status_is_understood_whatever_the_body(
    status: int, kind: type[EngineError], payload: object
) -> None:
    error = error_for(status, payload)
    assert type(error) is kind
    assert str(status) in error.message


@settings(deadline=None)
@given(st.text(min_size=1), st.text(min_size=1))
def test_nothing_that_looks_like_text_or_a_key_is_echoed(message: str, code: str) -> None:
    secret = "sk-" + "4f9a81c27" * 4
    for word in (secret, f"x {message}", "a1b2c3d4e5f6a7b8"):
        error = error_for(400, {"error": {"message": f"{message} {secret}", "code": word}})
        assert error.message in (
            "The engine refuses the request: HTTP 400.",
            "The prompt is longer than the engine's context.",
        )
    assert len(error_for(400, {"error": {"type": code}}).message) < 150


def test_a_short_word_of_the_upstream_helps_the_administrator() -> None:
    error = error_for(400, {"error": {"type": "invalid_request_error"}})
    assert error.message == "The engine refuses the request: HTTP 400 (invalid_request_error)."


def test_usage_that_is_nonsense_becomes_zero() -> None:
    nonsense = {"prompt_tokens": -5, "completion_tokens": "7", "prompt_tokens_details": 3}
    assert read_usage(nonsense) == Usage(0, 0, 0)
    assert read_usage({"prompt_tokens": True, "completion_tokens": 10**30}) == Usage(
        0, 0, 2**31 - 1
    )


def test_cached_tokens_are_never_more_than_the_prompt() -> None:
    told = {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}
    assert read_usage(told) == Usage(5, 5, 0)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("eos", "stop"),
        (7, "stop"),
    ],
)
def test_finish_reasons_become_two_words(reason: object, word: str) -> None:
    assert read_finish(reason) == word


def test_an_aborted_answer_is_a_cut_and_no_stop() -> None:
    with pytest.raises(EngineCutOff):
        read([delta("a"), finish("abort"), DONE])
    with pytest.raises(EngineError):
        read([delta("a"), finish("error"), DONE])


def test_the_frames_of_these_tests_are_json() -> None:
    assert json.loads(delta("a").removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "a"
