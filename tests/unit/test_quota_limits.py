"""What is left, and until when: the arithmetic alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.ids import new_id
from quotas.limits import (
    MINUTE_MS,
    Left,
    Standing,
    age_of_ms,
    bucket_left,
    duration_text,
    duration_words,
    headers_of,
    largest_cost,
    level_of,
    seconds_of,
    window_left,
)


@pytest.mark.parametrize(
    ("seconds", "text", "words"),
    [
        (0, "0s", "0 seconds"),
        (1, "1s", "1 second"),
        (12, "12s", "12 seconds"),
        (60, "1m0s", "1 minute"),
        (61, "1m1s", "2 minutes"),
        (3599, "59m59s", "1 hour"),
        (3600, "1h0m0s", "1 hour"),
        (7_501, "2h5m1s", "2 hours and 6 minutes"),
        (90_000, "25h0m0s", "1 day and 1 hour"),
        (86_460, "24h1m0s", "1 day and 1 minute"),
    ],
)
def test_durations(seconds: int, text: str, words: str) -> None:
    assert (duration_text(seconds), duration_words(seconds)) == (text, words)


def test_seconds_are_never_too_few() -> None:
    assert [seconds_of(ms) for ms in (0, 1, 1_000, 1_001)] == [0, 1, 1, 2]


def test_a_window() -> None:
    at = {"window_ms": 10_000, "now_ms": 5_000}
    assert window_left(3, 0, newest_ms=0, **at) == Left(3, 0, 0)
    left = window_left(3, 2, newest_ms=4_000, **at)
    assert (left.remaining, left.reset_ms) == (1, 9_000)
    assert window_left(1, 2, newest_ms=4_000, **at).remaining == 0


def test_a_bucket() -> None:
    assert bucket_left(60, 0) == Left(60, 0, 0)
    assert bucket_left(60, 1) == Left(60, 1, 1), "a part of a token is a token"
    over = bucket_left(60, 90 * MINUTE_MS)
    assert (over.used, over.remaining, over.reset_ms) == (90, 0, 90_000)


charges = st.lists(st.tuples(st.integers(0, 120_000), st.integers(0, 500)), max_size=8)


@given(charges, st.integers(1, 1_000))
def test_a_level_is_what_one_bucket_would_hold(ages: list[tuple[int, int]], rate: int) -> None:
    level, at_ms = 0, 200_000
    for age_ms, amount in sorted(ages, reverse=True):
        for _ in range(2):  # drained in two steps, or in one
            step_ms = (at_ms - age_ms + 1) // 2
            level, at_ms = max(0, level - step_ms * rate), at_ms - step_ms
        level, at_ms = max(0, level - (at_ms - age_ms) * rate), age_ms
        level += amount * MINUTE_MS
    assert level_of(ages, rate) == max(0, level - at_ms * rate)


def test_the_largest_cost() -> None:
    room = {"context_tokens": 4_096, "answer_tokens": 1_000}
    assert largest_cost(**room, history_tokens=None, text_bytes=1) == 4_096
    assert largest_cost(**room, history_tokens=100, text_bytes=36) == 100 + 36 + 64 + 1_000
    assert largest_cost(**room, history_tokens=4_000, text_bytes=36) == 4_096


def test_the_age_of_an_id() -> None:
    run_id = new_id()
    assert age_of_ms(run_id, (run_id.int >> 80) + 5) == 5
    assert age_of_ms(run_id, 0) == 0


def test_headers_tell_the_tightest() -> None:
    standing = Standing({"big": Left(10, 9, 9_001)}, Left(100, 40, 24_000), Left(20, 18, 54_000))
    assert headers_of(standing, "big") == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "10s",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "60",
        "x-ratelimit-reset-tokens": "24s",
    }
    assert headers_of(standing, "small")["x-ratelimit-limit-requests"] == "20"
    assert headers_of(Standing(), "big") == {}
