"""Whoever was told to wait stands behind those who were not, and mostly takes no thread at all.

A thousand refused clients that try again at once would each take a thread and a database
connection for some milliseconds, and people whose turn it is would stand behind all of them. So
what was refused is refused again from memory while its time has not come; and what must be asked
again, because its time has come, or it has an idempotency key, waits until nobody of its kind is
asking. Kept by each process for itself: whoever comes to another one is refused there once more.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

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

LATELY_S: Final = 120.0
"""Somebody who was refused counts as such for so long after the time that they were told to wait:
people and programs come late, too."""

LATELY: Final = 20_000
"""Refused people at once, of about 200 bytes each; then the one refused first is forgotten."""

CREDENTIALS: Final = (b"authorization", b"cookie")
NAMES: Final = (*CREDENTIALS, b"accept")
"""What makes two requests the same, beside method, path and body."""

KEY: Final = b"idempotency-key"
"""A request with one may have been accepted meanwhile, here or elsewhere: only Django can say."""

ONCE_ONLY: Final = frozenset({"too_many_live_runs", "too_many_streams"})
"""Whoever was refused for these can make room themselves, and then need not wait."""

RESET: Final = b"x-ratelimit-reset-"
COUNTING: Final = (RESET, b"retry-after", b"content-length")
"""Headers that are made anew. A response's cookies are not among its headers."""

Headers = list[tuple[bytes, bytes]]


class Known(NamedTuple):
    """An answer that Django gave before, with the time that is left."""

    status: int
    headers: Headers
    body: bytes


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


class Behind(NamedTuple):
    """Since when somebody goes behind the others, and how long (s, the clock's)."""

    since_s: float
    until_s: float


class Refusals:
    """The newest refusals of this process: what was refused, and who."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, Refusal] = OrderedDict()
        self._lately: OrderedDict[bytes, Behind] = OrderedDict()

    def now_s(self) -> float:
        """For `asked_at_s`."""
        return self._clock()

    def was_refused(self, who: bytes) -> bool:
        """Whether the newest that Django said to them (`asker_digest`) was a refusal, of late."""
        behind = self._lately.get(who)
        return behind is not None and self._clock() < behind.until_s

    def note_asker(self, who: bytes, response: HttpResponseBase, asked_at_s: float) -> None:
        """Whoever is refused goes behind the others, until what they ask later is not."""
        behind, now_s = self._lately.get(who), self._clock()
        if response.status_code == TOO_MANY_REQUESTS:
            self._lately.pop(who, None)  # the newest stand last
            retry_after = response.headers.get("Retry-After", "")
            wait_s = int(retry_after) if retry_after.isdecimal() else 0
            self._lately[who] = Behind(now_s, now_s + wait_s + LATELY_S)
            if len(self._lately) > LATELY:
                self._lately.popitem(last=False)
        elif behind is not None and behind.since_s <= asked_at_s:
            del self._lately[who]

    def again(self, request: bytes) -> Known | None:
        """What is said to a request (`request_digest`) that was refused and should still wait; None
        where Django must be asked."""
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
        return Known(TOO_MANY_REQUESTS, [*refusal.headers, *told], body)

    def note(self, request: bytes, response: HttpResponseBase, asked_at_s: float) -> None:
        """Keep the response where it is a refusal that says when to try again; where it is none,
        what was refused before it was asked is over. (Of two twins the second may be refused while
        the first is still being accepted.)"""
        refusal, kept = self._refusal(response), self._kept.get(request)
        if refusal is None:
            if kept is not None and kept.said_at_s <= asked_at_s:
                del self._kept[request]
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


def asker_digest(scope: Mapping[str, Any]) -> bytes | None:
    """What is the same for all that somebody sends; None where it is no POST of the API."""
    if scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
        return None
    return _digest(b"", scope, CREDENTIALS).digest()


def request_digest(scope: Mapping[str, Any], body: bytes) -> bytes | None:
    """What is the same for a request that is sent again; None where it is no POST of the API, or
    where it may be the retry of one that was accepted."""
    if scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
        return None
    if any(name == KEY for name, _ in scope["headers"]):
        return None
    digest = _digest(scope["path"].encode("utf-8", "surrogateescape"), scope, NAMES)
    digest.update(body)
    return digest.digest()


def _digest(start: bytes, scope: Mapping[str, Any], names: Iterable[bytes]) -> hashlib._Hash:
    digest = hashlib.sha256(start)
    for name, value in sorted(scope["headers"]):
        if name in names:
            # With its length: nobody's header runs into the next one.
            digest.update(b"%s %d %s" % (name, len(value), value))
    return digest
