"""Conditional requests, by the conversation's revision. Pure.

A write: "only if nothing has changed since I looked" (`If-Match`). A read: "only if something has"
(`If-None-Match`). `ETag: "17"` names a revision. While answers are written the page shows more than
the revision counts: then the tag has a second part, `"17.3f9a6c02d1b4"`, which reads compare and
writes pass over.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from accounts.errors import ApiError, InvalidRequest

MAX_CHARS: Final = 1_000
_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_SHOWN: Final = re.compile(r'\.[0-9a-f]{12}"$')


class PreconditionFailed(ApiError):
    """It has changed since you looked. Read it again, then decide."""

    code = "precondition_failed"
    http_status = 412


def etag_of(revision: int, shown: Sequence[object] = ()) -> str:
    """The value of `ETag` for this revision, and what is `shown` beside what it counts."""
    if not shown:
        return f'"{revision}"'
    text = "\n".join(map(str, shown)).encode()
    return f'"{revision}.{hashlib.blake2b(text, digest_size=6).hexdigest()}"'


def check_match(if_match: str | None, revision: int) -> None:
    """Raises PreconditionFailed where `If-Match` is there and names other revisions only.

    Raises InvalidRequest for what is no list of tags. Weak tags never match (RFC 9110, 13.1.1).
    """
    if if_match is None or if_match.strip() == "*":
        return
    tags = _tags(if_match)
    if not all(_TAG.fullmatch(tag) for tag in tags):
        raise InvalidRequest('If-Match must be "<revision>", as ETag gave it.', param="If-Match")
    if etag_of(revision) not in [_SHOWN.sub('"', tag) for tag in tags]:
        raise PreconditionFailed(param="If-Match")


def is_unchanged(if_none_match: str | None, etag: str) -> bool:
    """Whether `If-None-Match` names this tag, weakly too (RFC 9110, 13.1.2): then 304 will do.

    What is no list of tags names nothing: the reader gets the whole answer.
    """
    if if_none_match is None:
        return False
    tags = [tag.removeprefix("W/") for tag in _tags(if_none_match)]
    return etag in tags or tags == ["*"]


def _tags(value: str) -> list[str]:
    return [tag.strip() for tag in value[:MAX_CHARS].split(",")]
