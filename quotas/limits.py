"""What is left of a limit, and when it is back: windows, buckets, and how headers tell it. Pure.

Times are in ms, and every figure is a whole number: what Redis counts can be told to the second.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

MINUTE_MS: Final = 60_000
"""A bucket's level is kept in so manieth parts: one of N a minute loses N of them each ms."""

TEMPLATE_TOKENS: Final = 64
"""What a chat template puts around a message and before an answer, with room to spare."""

_DURATION: Final = re.compile(rb"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(\d{1,9})s")

LimitName = Literal["messages", "tokens", "requests"]


@dataclass(frozen=True, slots=True)
class Left:
    """One limit as it stands. `reset_ms`: until all of it is there again, if nothing more comes.

    `next_ms`: until one more message fits into a window.
    """

    limit: int
    used: int
    reset_ms: int
    next_ms: int = 0

    @property
    def remaining(self) -> int:
        """Never below zero: a plan that became smaller, or a cost above its estimate, may be."""
        return max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class Standing:
    """All limits of a user at one moment. What has no limit is not there.

    `messages`: by model, in the plan's rolling window.
    """

    messages: Mapping[str, Left] = field(default_factory=dict)
    tokens: Left | None = None
    requests: Left | None = None


def window_left(
    limit: int, used: int, *, newest_ms: int, window_ms: int, now_ms: int, next_ms: int = 0
) -> Left:
    """`used` messages are in the window; all are out of it when the newest one is."""
    reset_ms = max(0, newest_ms + window_ms - now_ms) if used else 0
    return Left(limit, used, reset_ms, next_ms)


def bucket_left(per_minute: int, level: int) -> Left:
    """`level` is in parts of MINUTE_MS; above the limit where a true cost was more than thought."""
    return Left(per_minute, _ceil(level, MINUTE_MS), _ceil(level, per_minute))


def level_of(charges: Iterable[tuple[int, int]], per_minute: int) -> int:
    """The level that charges leave in an empty bucket: pairs of (age in ms, amount)."""
    level = at_ms = 0
    for age_ms, amount in sorted(charges, reverse=True):
        at_ms = max(at_ms, age_ms)
        level = max(0, level - (at_ms - age_ms) * per_minute) + amount * MINUTE_MS
        at_ms = age_ms
    return max(0, level - at_ms * per_minute)


def largest_cost(
    *, context_tokens: int, answer_tokens: int, history_tokens: int | None, text_bytes: int
) -> int:
    """The most tokens that a run can cost: its prompt and its room for the answer.

    `history_tokens` is what the thread before the new text has cost, None where nobody knows. A
    token is at least a byte of text.
    """
    if history_tokens is None:
        return context_tokens
    prompt_tokens = history_tokens + text_bytes + TEMPLATE_TOKENS
    return min(context_tokens, prompt_tokens + answer_tokens)


def age_of_ms(run_id: uuid.UUID, now_ms: int) -> int:
    """How long ago a run's id was allotted: a UUIDv7 begins with the time. Never negative."""
    return max(0, now_ms - (run_id.int >> 80))


# --- as it is told --------------------------------------------------------------------------------


def headers_of(standing: Standing, model: str | None) -> dict[str, str]:
    """The `x-ratelimit-*` headers; none of what has no limit.

    `requests` is the tightest of the messages left to this model and the requests per minute.
    """
    messages = standing.messages.get(model) if model is not None else None
    requests = [left for left in (messages, standing.requests) if left is not None]
    tightest = min(requests, key=lambda left: (left.remaining, -left.reset_ms), default=None)
    return {**_headers("requests", tightest), **_headers("tokens", standing.tokens)}


def _headers(name: str, left: Left | None) -> dict[str, str]:
    if left is None:
        return {}
    return {
        f"x-ratelimit-limit-{name}": str(left.limit),
        f"x-ratelimit-remaining-{name}": str(left.remaining),
        f"x-ratelimit-reset-{name}": duration_text(seconds_of(left.reset_ms)),
    }


def seconds_of(wait_ms: int) -> int:
    """Whole seconds; rather one too many than asking too early."""
    return _ceil(wait_ms, 1_000)


def duration_text(seconds: int) -> str:
    """As Go writes durations, and OpenAI in its headers: "12s", "6m0s", "2h5m0s"."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def duration_s(text: bytes) -> int:
    """What `duration_text` has written, in seconds; 0 for anything else."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return 0
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3_600 + minutes * 60 + seconds


def duration_words(seconds: int) -> str:
    """For people: "12 seconds", "2 hours and 5 minutes"; never less than it takes."""
    if seconds < 60:
        return _counted(seconds, "second")
    minutes = _ceil(seconds, 60)
    if minutes < 60:
        return _counted(minutes, "minute")
    days, left = divmod(timedelta(minutes=minutes), timedelta(days=1))
    hours, minutes = divmod(left // timedelta(minutes=1), 60)
    parts = [
        _counted(count, name)
        for count, name in ((days, "day"), (hours, "hour"), (minutes, "minute"))
        if count
    ]
    return " and ".join(parts[:2])


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _ceil(number: int, by: int) -> int:
    return -(-number // by)
