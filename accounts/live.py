"""Whether what let somebody in still does: asked for as long as a stream or a socket is open.

Signing out, ending a session, a new password, disabling a user, revoking an API token: each ends
something in PostgreSQL, and nowhere else. So nobody has to be told; whoever keeps something open
asks again, for all of it at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal
from uuid import UUID

from django.contrib.sessions.models import Session
from django.db import connection, transaction

from accounts.authentication import Credential
from accounts.models import ApiToken, User


@dataclass(frozen=True, slots=True)
class LiveCredential:
    """What let somebody in, small enough to be kept for as long as they stay.

    `key` is the session's key, or the API token's id in hex; `password` is a digest of what was
    stored as the user's password then: a new one ends all sessions. An API token outlives it.
    """

    user_id: UUID
    kind: Literal["api_token", "session"]
    key: str = field(repr=False)
    password: str = field(default="", repr=False)


def live_credential(credential: Credential) -> LiveCredential:
    """Of a credential that has just been accepted."""
    user = credential.user
    if credential.kind == "api_token":
        return LiveCredential(user.id, "api_token", credential.ref)
    digest = hashlib.sha256(user.password.encode()).hexdigest()
    return LiveCredential(user.id, "session", credential.session_key, digest)


QUERY_MS: Final = 1_500
"""Each query. It must not stand behind a lock for longer than anybody waits for its answer."""

# Only what has ended comes back: thousands are asked about every few seconds.
_ENDED_SESSIONS = f"""
SELECT asked.place
FROM unnest(%s::text[], %s::uuid[], %s::text[]) WITH ORDINALITY
    AS asked (session_key, user_id, password, place)
LEFT JOIN {Session._meta.db_table} session
    ON session.session_key = asked.session_key AND session.expire_date > statement_timestamp()
LEFT JOIN {User._meta.db_table} person
    ON person.id = asked.user_id AND person.is_active
    AND encode(sha256(convert_to(person.password, 'UTF8')), 'hex') = asked.password
WHERE session.session_key IS NULL OR person.id IS NULL
"""  # noqa: S608 — names of tables of our own

_ENDED_TOKENS = f"""
SELECT asked.place
FROM unnest(%s::uuid[], %s::uuid[]) WITH ORDINALITY AS asked (token_id, user_id, place)
LEFT JOIN {ApiToken._meta.db_table} token
    ON token.id = asked.token_id AND token.user_id = asked.user_id AND token.revoked IS NULL
    AND (token.expires IS NULL OR token.expires > statement_timestamp())
LEFT JOIN {User._meta.db_table} person ON person.id = asked.user_id AND person.is_active
WHERE token.id IS NULL OR person.id IS NULL
"""  # noqa: S608 — names of tables of our own


def ended(asked: Iterable[LiveCredential]) -> set[LiveCredential]:
    """Those that would not be let in any more. At most two queries, whatever the number.

    PostgreSQL's errors pass through, also that a query took longer than QUERY_MS.
    """
    wanted = list(asked)
    if not wanted:
        return set()
    sessions = [one for one in wanted if one.kind == "session"]
    tokens = [one for one in wanted if one.kind == "api_token"]
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {QUERY_MS:d}")
        return {
            *_places(_ENDED_SESSIONS, sessions, ["key", "user_id", "password"]),
            *_places(_ENDED_TOKENS, tokens, ["key", "user_id"]),
        }


def _places(
    query: str, asked: Sequence[LiveCredential], columns: Sequence[str]
) -> list[LiveCredential]:
    if not asked:
        return []
    with connection.cursor() as cursor:
        cursor.execute(query, [_array(getattr(one, name) for one in asked) for name in columns])
        return [asked[place - 1] for (place,) in cursor.fetchall()]


def _array(values: Iterable[str | UUID]) -> str:
    """An array literal of keys, digests and ids, which hold neither quotes nor backslashes: the
    driver would look at each of them on its own, and take longer than the query.
    """
    texts = (one.hex if isinstance(one, UUID) else one for one in values)
    return "{" + ",".join(f'"{text}"' for text in texts) + "}"
