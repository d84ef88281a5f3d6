"""A body without Content-Length is a body."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from tests.phone import PATIENT
from tests.stack import Stack


def chunks(*parts: bytes) -> Iterator[bytes]:
    yield from parts


def test_a_body_in_chunks_is_read_whole(stack: Stack) -> None:
    answer = httpx.post(
        f"{stack.webs[0].url}/v1/conversations",
        content=chunks(b'{"title": ', b'"in chunks"}'),
        headers={**stack.people["ada"].headers, "Content-Type": "application/json"},
        **PATIENT,
    )

    assert answer.status_code == 201
    assert answer.json()["title"] == "in chunks"


def test_a_wrong_field_in_chunks_is_refused(stack: Stack) -> None:
    answer = httpx.post(
        f"{stack.webs[0].url}/v1/conversations",
        content=chunks(b'{"nope"', b": 1}"),
        headers={**stack.people["ada"].headers, "Content-Type": "application/json"},
        **PATIENT,
    )

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "nope"
