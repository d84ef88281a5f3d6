"""Sessions in the database, as Django keeps them, for keys that can be Django's.

A cookie may hold any character, NUL too, at which PostgreSQL raises an error: every page would
answer 500 to such a cookie instead of asking its owner to sign in.
"""

from __future__ import annotations

from django.contrib.sessions.backends.db import SessionStore as DatabaseSessionStore


class SessionStore(DatabaseSessionStore):
    """`SESSION_ENGINE = "accounts.sessions"`."""

    def _validate_session_key(self, key: str | None) -> bool:
        shaped = key is not None and key.isascii() and key.isalnum()
        return shaped and bool(super()._validate_session_key(key))  # type: ignore[misc]
