"""Whoever was told to wait and asks the same again too early is told so again, without a thread.

A thousand refused clients that try again at once would each take a thread and a database
connection for some milliseconds, and people whose turn it is would stand behind all of them. Kept
in memory, by each process for itself: whoever comes to another one is refused there once more.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from django.http.response import HttpResponseBase

from accounts.errors import TOO_MANY_REQUESTS
from quotas.limits import duration_s, duration_text

KEPT_S: Final = 5.0
"""Then one of those who come asks again, whatever Retry-After says: a plan or a limit may have
changed meanwhile."""

ASK_S: Final = 1.0
"""How long the others are told the same while one asks."""

KEPT: Final = 5_000
"""Refusals at once, of about a kilobyte each; then the oldest goes."""

NAMES: Final = (b"authorization", b"cookie", b"accept")
"""What makes two requests the same, beside method, path and body."""

KEY: Final = b"idempotency-key"
"""A request with one may have been accepted meanwhile, here or elsewhere: only Django can say."""

ONCE_ONLY: Final = frozenset({"too_many_live_runs", "too_many_streams"})
"""Whoever was refused for these can make room themselves, and then need not wait."""

RESET: Final = b"x-ratelimit-reset-"
COUNTING: Final = (RESET, b"retry-after", b"content-length")
"""Headers that are made anew. A response's cookies are not among its headers."""

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was answered, and until when (s, the clock's) it stands; from `ask_at_s` on one may ask
    whether it still does. `resets_s`: the limits' headers
    that count down."""

    body: Mapping[str, Any]
    headers: Headers
    resets_s: Mapping[bytes, int]
    said_at_s: float
    retry_at_s: float
    ask_at_s: float


class Refusals:
    """The newest refusals of this process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, Refusal] = OrderedDict()

    def again(self, request: bytes) -> tuple[int, Headers, bytes] | None:
        """Status, headers and body for a request (`request_digest`) that was refused and should
        still wait; None where Django must be asked."""
        refusal, now_s = self._kept.get(request), self._clock()
        if refusal is None:
            return None
        if now_s >= refusal.retry_at_s:
            del self._kept[request]
            return None
        if now_s >= refusal.ask_at_s:
            # One of them asks for all: else they would all come to Django in the same moment.
            self._kept[request] = replace(refusal, ask_at_s=now_s + ASK_S)
            return None
        left_s = max(1, math.ceil(refusal.retry_at_s - now_s))
        error = {**refusal.body["error"], "retry_after_s": left_s}
        body = json.dumps({"error": error}).encode()
        told = [(b"retry-after", b"%d" % left_s), (b"content-length", b"%d" % len(body))]
        passed_s = int(now_s - refusal.said_at_s)
        told += [
            (name, duration_text(max(0, reset_s - passed_s)).encode())
            for name, reset_s in refusal.resets_s.items()
        ]
        return TOO_MANY_REQUESTS, [*refusal.headers, *told], body

    def note(self, request: bytes, response: HttpResponseBase) -> None:
        """Keep the response where it is a refusal that says when to try again; where it is none,
        what was kept is over."""
        refusal = self._refusal(response)
        if refusal is None:
            self._kept.pop(request, None)
        else:
            self._kept[request] = refusal
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _refusal(self, response: HttpResponseBase) -> Refusal | None:
        retry_after = response.headers.get("Retry-After", "")
        if response.status_code != TOO_MANY_REQUESTS or not retry_after.isdecimal():
            return None
        body = json.loads(getattr(response, "content", b"{}"))
        if body.get("error", {}).get("code") in {None, *ONCE_ONLY}:
            return None
        now_s, headers = self._clock(), _lower(response.headers.items())
        kept = [pair for pair in headers if not pair[0].startswith(COUNTING)]
        resets_s = {name: duration_s(value) for name, value in headers if name.startswith(RESET)}
        return Refusal(body, kept, resets_s, now_s, now_s + int(retry_after), now_s + KEPT_S)


def _lower(headers: Iterable[tuple[str, str]]) -> Headers:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def request_digest(scope: Mapping[str, Any], body: bytes) -> bytes | None:
    """What is the same for a request that is sent again; None where it is no POST of the API, or
    where it may be the retry of one that was accepted."""
    if scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
        return None
    if any(name == KEY for name, _ in scope["headers"]):
        return None
    digest = hashlib.sha256(scope["path"].encode("utf-8", "surrogateescape"))
    for name, value in sorted(scope["headers"]):
        if name in NAMES:
            # With its length: nobody's header runs into the next one.
            digest.update(b"%s %d %s" % (name, len(value), value))
    digest.update(body)
    return digest.digest()
