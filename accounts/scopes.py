"""What an API token may do: read, or read and write. A person's own session may do both.

allows(credential, WRITE)      # a Credential, an API token, or None for a session in DRF
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

READ = "read"
WRITE = "write"
ALL = (READ, WRITE)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class HasScopes(Protocol):
    """`accounts.authentication.Credential` and `accounts.models.ApiToken`."""

    @property
    def scopes(self) -> Iterable[str]: ...


def allows(holder: HasScopes | None, scope: str) -> bool:
    """Whether the holder may do what needs `scope`; write includes read.

    None is a session, whose `request.auth` is None in DRF: it may do all that its person may.
    """
    if holder is None:
        return True
    held = set(holder.scopes)
    return scope in held or (scope == READ and WRITE in held)


def needed_for(method: str | None) -> str:
    """The scope that a request of this HTTP method needs."""
    return READ if method in SAFE_METHODS else WRITE
