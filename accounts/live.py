"""Whether what let somebody in still does: asked for as long as a stream or a socket is open.

Signing out, ending a session, a new password, disabling a user, revoking an API token: each ends
something in PostgreSQL, and nowhere else. So nobody has to be told; whoever keeps something open
asks again, for all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, TypeVar
from uuid import UUID

from django.contrib.sessions.models import Session
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from accounts.authentication import Credential
from accounts.models import ApiToken, User

T = TypeVar("T")

BATCH: Final = 1_000
"""Keys in one query."""


@dataclass(frozen=True, slots=True)
class LiveCredential:
    """What let somebody in, small enough to be kept for as long as they stay.

    `key` is the session's key, or the API token's id in hex.
    """

    user_id: UUID
    kind: Literal["api_token", "session"]
    key: str = field(repr=False)
    auth_hash: str = field(default="", repr=False)


def live_credential(credential: Credential) -> LiveCredential:
    """Of a credential that has just been accepted."""
    key = credential.session_key if credential.kind == "session" else credential.ref
    return LiveCredential(credential.user.id, credential.kind, key, credential.auth_hash)


def ended(asked: Iterable[LiveCredential]) -> set[LiveCredential]:
    """Those that would not be let in any more. A few queries, whatever the number.

    PostgreSQL's errors pass through.
    """
    wanted = set(asked)
    sessions = _sessions([one.key for one in wanted if one.kind == "session"])
    tokens = _api_tokens([one.key for one in wanted if one.kind == "api_token"])
    passwords = _passwords(list({one.user_id for one in wanted}))
    return {
        one
        for one in wanted
        if one.key not in (sessions if one.kind == "session" else tokens)
        or not _is_of(one, passwords.get(one.user_id))
    }


def _is_of(one: LiveCredential, password: str | None) -> bool:
    """`password` is the active user's, as it is stored; None where there is no active user."""
    if password is None or one.kind == "api_token":
        return password is not None
    return any(constant_time_compare(one.auth_hash, known) for known in _auth_hashes(password))


@lru_cache(maxsize=8_192)
def _auth_hashes(password: str) -> tuple[str, ...]:
    """What a session of a user with this stored password holds. Kept: an HMAC for each open stream
    every few seconds would be most of what asking costs.
    """
    user = User(password=password)
    return (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())


def _sessions(keys: Sequence[str]) -> set[str]:
    """The keys of sessions that are there and have not expired."""
    live = Session.objects.filter(expire_date__gt=timezone.now())
    return {
        key
        for part in _parts(keys)
        for key in live.filter(session_key__in=part).values_list("session_key", flat=True)
    }


def _api_tokens(keys: Sequence[str]) -> set[str]:
    """The ids, in hex, of API tokens that are neither revoked nor expired."""
    unexpired = Q(expires__isnull=True) | Q(expires__gt=timezone.now())
    live = ApiToken.objects.filter(unexpired, revoked__isnull=True)
    return {
        row_id.hex
        for part in _parts([UUID(hex=key) for key in keys])
        for row_id in live.filter(id__in=part).values_list("id", flat=True)
    }


def _passwords(user_ids: Sequence[UUID]) -> dict[UUID, str]:
    """The stored passwords of those users who are active."""
    active = User.objects.filter(is_active=True)
    return {
        user_id: password
        for part in _parts(user_ids)
        for user_id, password in active.filter(id__in=part).values_list("id", "password")
    }


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), BATCH):
        yield items[at : at + BATCH]
