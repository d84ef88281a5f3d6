"""Conditional writes: "only if nothing has changed since I looked", by the conversation's revision.

`ETag: "17"` names a revision; `If-Match: "17"` asks for it. Pure. The tag is no validator for
caches: what a conversation's page shows changes also with the runs that are live in it.
"""

from __future__ import annotations

import re
from typing import Final

from accounts.errors import ApiError, InvalidRequest

MAX_CHARS: Final = 1_000
_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


class PreconditionFailed(ApiError):
    """It has changed since you looked. Read it again, then decide."""

    code = "precondition_failed"
    http_status = 412


def etag_of(revision: int) -> str:
    """The value of `ETag` for this revision."""
    return f'"{revision}"'


def check_match(if_match: str | None, revision: int) -> None:
    """Raises PreconditionFailed where `If-Match` is there and names other revisions only.

    Raises InvalidRequest for what is no list of tags. Weak tags never match (RFC 9110, 13.1.1).
    """
    if if_match is None or if_match.strip() == "*":
        return
    tags = [tag.strip() for tag in if_match[:MAX_CHARS].split(",")]
    if not all(_TAG.fullmatch(tag) for tag in tags):
        raise InvalidRequest('If-Match must be "<revision>", as ETag gave it.', param="If-Match")
    if etag_of(revision) not in tags:
        raise PreconditionFailed(param="If-Match")
