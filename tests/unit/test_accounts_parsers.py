"""Strict JSON: every body is an object we can store, or a refusal that says why."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.conf import settings
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.request import Request

from accounts.errors import BodyTooLarge, InvalidRequest
from accounts.parsers import (
    MAX_DEPTH,
    MAX_VALUES,
    BoundedJSONParser,
    accepts_event_stream,
    has_lone_surrogate,
    parse_object,
)

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | keys,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(keys, values, max_size=5), st.booleans())
def test_any_object_comes_through_unchanged(body: dict[str, Any], ascii_only: bool) -> None:
    assert parse_object(json.dumps(body, ensure_ascii=ascii_only).encode()) == body


def outcome(raw: bytes) -> str:
    try:
        return "object" if isinstance(parse_object(raw), dict) else "something else"
    except InvalidRequest as error:
        return error.code


@given(
    st.binary(max_size=200)
    | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_bytes_are_an_object_or_refused(raw: bytes) -> None:
    assert outcome(raw) in {"object", "invalid_json"}


@given(st.text('{}[]":,0e', max_size=60))
def test_broken_json_is_refused_in_our_words(text: str) -> None:
    assert outcome(text.encode()) in {"object", "invalid_json"}


def nested(depth: int) -> bytes:
    """An object with `depth` levels in all."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_depth_is_bounded_exactly() -> None:
    assert parse_object(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 900, MAX_VALUES - 2):
        with pytest.raises(InvalidRequest, match="nested"):
            parse_object(nested(depth))


@pytest.mark.parametrize("value", [b"[]", b"{}", b"1", b'""', b'{"a":[]}'])
def test_the_number_of_values_is_bounded(value: bytes) -> None:
    with pytest.raises(InvalidRequest, match="more than 20000 values"):
        parse_object(b'{"a":[' + b",".join([value] * MAX_VALUES) + b"]}")


def test_nothing_is_built_of_a_body_with_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(InvalidRequest, match="values"):
        parse_object(b'{"a":[' + b"[]," * 340_000 + b"[]]}")


def test_a_body_just_within_the_bound_is_read() -> None:
    numbers = list(range(MAX_VALUES - 2))
    assert parse_object(json.dumps({"a": numbers}).encode()) == {"a": numbers}


def test_what_stands_in_a_text_is_no_value() -> None:
    text = 'a,[{"\\' * MAX_VALUES
    assert parse_object(json.dumps({"text": text}).encode()) == {"text": text}


@pytest.mark.parametrize("raw", [b'"' + b'\\"' * 300_000, b'{"a":"' + b"\\" * 600_001])
def test_a_text_that_never_ends_is_refused_and_costs_one_look(raw: bytes) -> None:
    # Going back over it from every quote would take hours, which the run's own limit would end.
    assert outcome(raw) == "invalid_json"


def test_a_key_twice_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_object(b'{"a": 1, "b": {"c": 1, "c": 2}}')
    assert caught.value.param == "c"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": -1e400}',
        b'{"a": ' + b"1" * 4301 + b"}",
        b"\xef\xbb\xbf{}",
        b'{"a": "\xed\xa0\x80"}',
        b"{}x",
        b'{"\\udc00": 1}',
        b'{"a": "\x00"}',
    ],
)
def test_what_other_parsers_let_pass_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_object(raw)


class CountingStream(io.BytesIO):
    asked_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert size >= 0
        self.asked_bytes += size
        return super().read(size)


def test_no_more_than_the_limit_and_one_byte_is_read() -> None:
    stream = CountingStream(b"x" * (settings.MAX_BODY_BYTES * 3))
    with pytest.raises(BodyTooLarge):
        BoundedJSONParser().parse(stream)
    assert stream.asked_bytes == settings.MAX_BODY_BYTES + 1


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("text/event-stream", True),
        ("application/json;q=0.5, text/event-stream", True),
        ("text/event-stream; q=0.1", True),
        ("text/event-stream;q=0", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json", False),
        ("", False),
        (None, False),
        (";;;,,,/", False),
    ],
)
def test_an_event_stream_must_be_asked_for(accept: str | None, wanted: bool) -> None:
    headers = {} if accept is None else {"Accept": accept}
    request = Request(RequestFactory().get("/", headers=headers))
    assert accepts_event_stream(request) is wanted


def test_lone_surrogates_are_found() -> None:
    assert has_lone_surrogate("a\ud83d")
    assert not has_lone_surrogate("\U0001f469\u200d\U0001f52c")
