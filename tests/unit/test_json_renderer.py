"""JSON as the API writes it: as DRF's renderer, but U+2028 and U+2029 stay as they are."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ErrorDetail
from rest_framework.renderers import JSONRenderer

from accounts.renderers import FastJSONRenderer

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2028\u2029\x7f"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


def written(value: Any, media_type: str = "application/json") -> bytes:
    answer: bytes = FastJSONRenderer().render(value, media_type, {})
    return answer


@given(VALUES)
def test_plain_values_are_written_as_before(value: Any) -> None:
    assert written(value) == JSONRenderer().render(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 3, 1, 12, 30, 0, 123456, UTC),
        Decimal("1.50"),
        UUID(int=1),
        gettext_lazy("Yes"),
        ErrorDetail("wrong", code="invalid"),
        (1, 2),
        b"bytes",
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_only_the_encoder_of_drf_knows(value: Any) -> None:
    assert written({"value": value}) == JSONRenderer().render({"value": value})


def test_nothing_is_no_bytes() -> None:
    assert written(None) == b""


def test_an_indent_that_is_asked_for() -> None:
    assert written({"a": 1}, "application/json; indent=2") == b'{\n  "a": 1\n}'


def test_half_of_a_surrogate_pair_is_no_json() -> None:
    """Neither could be written before: what would be sent is no UTF-8."""
    with pytest.raises(TypeError):
        written({"text": "\ud800"})
