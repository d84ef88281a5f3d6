"""API tokens: a secret that is shown once, of which only a digest is kept.

token, secret = tokens.create(user, "laptop")
token = tokens.find(secret)          # raises NotSignedIn, and says what to do
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from accounts.errors import NotSignedIn
from accounts.models import ApiToken, User

PREFIX = "t_"
SECRET_BYTES = 32
"""256 bits from the system: no salt and no slow hash are needed, nobody guesses such a secret."""
LAST_USED_EVERY = timedelta(minutes=1)
"""A program may call many times a second; a write for each call would cost more than the call."""


def create(user: User, name: str, expires: datetime | None = None) -> tuple[ApiToken, str]:
    """A new API token of `user` and its secret, which nothing can show again."""
    secret = new_secret()
    token = ApiToken.objects.create(user=user, name=name, digest=digest(secret), expires=expires)
    return token, secret


def new_secret() -> str:
    """`t_` and 43 characters."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest(secret: str) -> bytes:
    """SHA-256 of the secret, 32 bytes: what is stored and looked up."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def find(secret: str, now: datetime | None = None) -> ApiToken:
    """The API token with this secret, its user loaded. Raises NotSignedIn; costs one query.

    Every text takes the same road (digest, then look-up by index), so timing tells nothing. Only
    who holds a true secret is told that it has expired or was revoked.
    """
    now = now or timezone.now()
    token = ApiToken.objects.select_related("user").filter(digest=digest(secret)).first()
    if token is None:
        raise NotSignedIn(
            "This API token is not known. Check that it was copied whole: it begins with t_.",
            code="invalid_api_token",
        )
    _refuse_if_over(token, now)
    _note_use(token, now)
    return token


def revoke(token: ApiToken) -> bool:
    """End the API token at once. False where it was revoked before."""
    live = ApiToken.objects.filter(id=token.id, revoked__isnull=True)
    return live.update(revoked=timezone.now()) == 1


def _refuse_if_over(token: ApiToken, now: datetime) -> None:
    if token.revoked is not None:
        raise NotSignedIn("This API token was revoked. Make a new one.", code="api_token_revoked")
    if token.expires is not None and token.expires <= now:
        raise NotSignedIn("This API token has expired. Make a new one.", code="api_token_expired")
    if not token.user.is_active:
        raise NotSignedIn(
            "This account is disabled. Ask an administrator.", code="account_disabled"
        )


def _note_use(token: ApiToken, now: datetime) -> None:
    due = now - LAST_USED_EVERY
    if token.last_used is not None and token.last_used > due:
        return
    # Guarded: of many calls at once one writes, the others' rows do not queue behind it.
    stale = Q(last_used__isnull=True) | Q(last_used__lte=due)
    ApiToken.objects.filter(stale, id=token.id).update(last_used=now)
