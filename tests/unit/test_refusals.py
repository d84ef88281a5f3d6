"""Refused requests that come again too early."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import JsonResponse

from chatproject.refusals import (
    KEPT,
    KEPT_S,
    LATELY,
    LATELY_S,
    Refusals,
    asker_digest,
    request_digest,
)
from quotas.limits import duration_s, duration_text

SEND = "/v1/conversations/new/messages"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def asked(
    who: str = "ada", body: bytes = b"Hi", path: str = SEND, method: str = "POST", key: str = ""
) -> bytes | None:
    headers = [(b"authorization", who.encode()), (b"host", b"a")]
    if key:
        headers.append((b"idempotency-key", key.encode()))
    return request_digest({"method": method, "path": path, "headers": headers}, body)


def refused(retry_after: str = "4", code: str = "busy", status: int = 429) -> JsonResponse:
    error = {"code": code, "message": "Wait.", "param": None, "retry_after_s": 4}
    reset = duration_text(int(retry_after) + 65) if retry_after.isdecimal() else "1m5s"
    limits = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": reset}
    headers = {"Retry-After": retry_after, **limits, "X-Odd": "kept"}
    response = JsonResponse({"error": error}, status=status, headers=headers)
    response.set_cookie("sessionid", "secret")
    return response


def told(answer: tuple[int, list[tuple[bytes, bytes]], bytes] | None) -> tuple[int, int]:
    """Status and seconds, the same in header and body."""
    assert answer is not None
    status, headers, body = answer
    found = dict(headers)
    seconds = json.loads(body)["error"]["retry_after_s"]
    assert found[b"retry-after"] == b"%d" % seconds
    assert found[b"content-length"] == b"%d" % len(body)
    assert found[b"x-odd"] == b"kept"
    assert b"set-cookie" not in found
    assert found[b"x-ratelimit-remaining-requests"] == b"0"
    assert duration_s(found[b"x-ratelimit-reset-requests"]) == seconds + 65
    assert json.loads(body)["error"]["message"] == "Wait."
    return status, seconds


def test_the_same_request_is_told_the_same_until_its_time() -> None:
    clock, request = Clock(), asked()
    refusals = Refusals(clock)
    assert request is not None
    assert refusals.again(request) is None
    refusals.note(request, refused(), refusals.now_s())
    assert told(refusals.again(request)) == (429, 4)
    clock.now_s += 2.5
    assert told(refusals.again(request)) == (429, 2)
    clock.now_s += 1.5
    assert refusals.again(request) is None


def test_what_may_have_changed_is_asked_again_soon() -> None:
    clock, request = Clock(), asked()
    refusals = Refusals(clock)
    assert request is not None
    refusals.note(request, refused(retry_after="3600"), refusals.now_s())
    clock.now_s += KEPT_S - 0.1
    assert told(refusals.again(request)) == (429, 3_596)
    clock.now_s += 0.2
    assert refusals.again(request) is None, "one asks"
    assert told(refusals.again(request)) == (429, 3_595), "for all"
    refusals.note(request, refused(retry_after="3590"), refusals.now_s())
    clock.now_s += KEPT_S - 0.1
    assert told(refusals.again(request)) == (429, 3_586)
    clock.now_s += 0.2
    assert refusals.again(request) is None
    refusals.note(request, JsonResponse({}, status=202), refusals.now_s())
    assert refusals.again(request) is None, "it was accepted"


@pytest.mark.parametrize(
    "other",
    [
        asked(who="bob"),
        asked(body=b"Hi!"),
        asked(path=SEND + "x"),
        asked(who=""),
    ],
)
def test_another_request_is_another(other: bytes) -> None:
    refusals, request = Refusals(Clock()), asked()
    assert request is not None
    refusals.note(request, refused(), refusals.now_s())
    assert refusals.again(other) is None
    assert refusals.again(request) is not None


def test_a_request_with_a_key_may_be_a_retry_of_what_was_accepted() -> None:
    assert asked(key="1") is None


def test_who_was_refused_counts_as_such_until_they_are_not() -> None:
    clock = Clock()
    refusals = Refusals(clock)
    assert not refusals.was_refused(b"ada")
    refusals.note_asker(b"ada", refused(retry_after="4"), refusals.now_s())
    clock.now_s += 4 + LATELY_S - 0.1
    assert refusals.was_refused(b"ada")
    assert not refusals.was_refused(b"bob")
    clock.now_s += 0.2
    assert not refusals.was_refused(b"ada"), "that is long ago"
    refusals.note_asker(b"ada", JsonResponse({}, status=429), refusals.now_s())
    assert refusals.was_refused(b"ada"), "without a time, too"
    refusals.note_asker(b"ada", JsonResponse({}, status=202), refusals.now_s())
    assert not refusals.was_refused(b"ada")


def test_a_twin_that_is_accepted_later_says_nothing_of_the_refusal() -> None:
    clock, request = Clock(), asked()
    refusals = Refusals(clock)
    assert request is not None
    asked_at_s = refusals.now_s()
    clock.now_s += 0.01
    refusals.note(request, refused(), refusals.now_s())
    refusals.note_asker(b"ada", refused(), refusals.now_s())
    clock.now_s += 0.01
    refusals.note(request, JsonResponse({}, status=202), asked_at_s)
    refusals.note_asker(b"ada", JsonResponse({}, status=202), asked_at_s)
    assert refusals.again(request) is not None
    assert refusals.was_refused(b"ada")


def test_so_many_people_are_remembered() -> None:
    refusals = Refusals(Clock())
    for number in range(LATELY + 1):
        refusals.note_asker(b"%d" % number, refused(), refusals.now_s())
    assert not refusals.was_refused(b"0")
    assert refusals.was_refused(b"1")


def test_people_are_told_apart_by_their_credentials() -> None:
    def who(method: str = "POST", path: str = SEND, **headers: bytes) -> bytes | None:
        named = [(name.encode(), value) for name, value in headers.items()]
        return asker_digest({"method": method, "path": path, "headers": named})

    ada = who(authorization=b"ada")
    assert ada == who(authorization=b"ada", path="/v1/conversations/c/messages", accept=b"x")
    assert len({ada, who(authorization=b"bob"), who(cookie=b"ada"), who()}) == 4
    assert who(method="GET") is None
    assert who(path="/admin/") is None


def test_only_posts_of_the_api() -> None:
    assert asked(method="GET") is None
    assert asked(path="/admin/login/") is None
    assert asked(body=b"") is not None


@pytest.mark.parametrize(
    "response",
    [
        refused(status=403),
        refused(retry_after="soon"),
        refused(code="too_many_live_runs"),
        refused(code="too_many_streams"),
        JsonResponse({}, status=429, headers={"Retry-After": "3"}),
    ],
)
def test_what_is_no_refusal_to_wait_for_is_not_kept(response: Any) -> None:
    refusals, request = Refusals(Clock()), asked()
    assert request is not None
    refusals.note(request, response, refusals.now_s())
    assert refusals.again(request) is None


def test_so_many_are_kept() -> None:
    refusals = Refusals(Clock())
    for number in range(KEPT + 1):
        refusals.note(b"%d" % number, refused(), refusals.now_s())
    assert refusals.again(b"0") is None
    assert refusals.again(b"1") is not None
    assert refusals.again(b"%d" % KEPT) is not None
