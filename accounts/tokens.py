"""API tokens: a secret that is shown once, of which only a digest is kept.

token, secret = tokens.create(user, "laptop", scopes=["read"])
token = tokens.find(secret)               # raises NotSignedIn, and says what to do
token, secret = tokens.rotate(token)      # another row with another secret; the old one ends
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Least
from django.utils import timezone

from accounts import sql
from accounts.errors import Conflict, NotFound, NotSignedIn, TooManyTokens
from accounts.ids import InvalidId, parse_id
from accounts.models import ApiToken, User
from accounts.scopes import ALL

PREFIX = "t_"
SECRET_BYTES = 32
"""256 bits from the system: no salt and no slow hash are needed, nobody guesses such a secret."""
LAST_USED_EVERY = timedelta(minutes=1)
"""A program may call many times a second; a write for each call would cost more than the call."""
MAX_LIVE = 50
"""Of one person. Enough for a token per machine; few enough that a list of them can be read."""
MAX_DAYS = 3650
MAX_NAME_CHARACTERS = 100


def create(
    user: User, name: str, expires: datetime | None = None, scopes: Iterable[str] = ALL
) -> tuple[ApiToken, str]:
    """A new API token of `user` and its secret, which nothing can show again.

    Raises TooManyTokens where the person has MAX_LIVE that could still be used.
    """
    with transaction.atomic():
        _lock(user)
        if live(user).count() >= MAX_LIVE:
            raise TooManyTokens
        return _insert(user, name, expires, scopes)


def live(user: User, now: datetime | None = None) -> QuerySet[ApiToken]:
    """The API tokens of `user` that can be used now, the newest first."""
    now = now or timezone.now()
    ends = Q(expires__isnull=True) | Q(expires__gt=now)
    return ApiToken.objects.filter(ends, user=user, revoked__isnull=True).order_by("-id")


def access(user: User, text: str) -> ApiToken:
    """The one door: the API token of `user` with this external id.

    Raises NotFound for what is not there and for what is somebody else's.
    """
    try:
        found = ApiToken.objects.filter(id=parse_id("t", text), user=user).first()
    except InvalidId:
        found = None
    if found is None:
        raise NotFound
    return found


def rotate(token: ApiToken, overlap: timedelta = timedelta(0)) -> tuple[ApiToken, str]:
    """A new API token in place of this one, and its secret.

    It has the same name and scopes and may live as long again. The old one ends after `overlap`,
    at once where that is 0: then it is revoked, and its open streams close as any revoked token's.
    Raises Conflict for one that has ended or was rotated before (by whoever was quicker), and
    TooManyTokens where both together would be more than MAX_LIVE.
    """
    now = timezone.now()
    with transaction.atomic():
        _lock(token.user)
        old = live(token.user, now).filter(id=token.id, replaced_by__isnull=True).first()
        if old is None:
            raise Conflict("This API token has ended or was replaced already.")
        if overlap > timedelta(0) and live(token.user, now).count() >= MAX_LIVE:
            raise TooManyTokens
        expires = now + (old.expires - old.created) if old.expires else None
        new, secret = _insert(old.user, old.name, expires, old.scopes)
        _end(old, new, now, overlap)
    return new, secret


def revoke(token: ApiToken) -> bool:
    """End the API token at once. False where it was revoked before."""
    unrevoked = ApiToken.objects.filter(id=token.id, revoked__isnull=True)
    return unrevoked.update(revoked=timezone.now()) == 1


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
    token = _with_digest(digest(secret))
    if token is None:
        raise NotSignedIn(
            "This API token is not known. Check that it was copied whole: it begins with t_.",
            code="invalid_api_token",
        )
    _refuse_if_over(token, now)
    _note_use(token, now)
    return token


def _with_digest(wanted: bytes) -> ApiToken | None:
    statement = (
        f"SELECT {sql.columns(ApiToken, 'token')}, {sql.columns(User, 'person')}"  # noqa: S608 — columns of our own
        " FROM accounts_apitoken token JOIN accounts_user person ON person.id = token.user_id"
        " WHERE token.digest = %(digest)s"
    )
    found = sql.rows(statement, {"digest": wanted})
    if not found:
        return None
    own = sql.width(ApiToken)
    token = sql.instance(ApiToken, found[0][:own])
    token.user = sql.instance(User, found[0][own:])
    return token


def _lock(user: User) -> None:
    """Of many at once, one counts and inserts; rows that only point at the user do not wait."""
    User.objects.select_for_update(no_key=True).only("id").get(id=user.id)


def _insert(
    user: User, name: str, expires: datetime | None, scopes: Iterable[str]
) -> tuple[ApiToken, str]:
    secret = new_secret()
    token = ApiToken.objects.create(
        user=user, name=name, digest=digest(secret), expires=expires, scopes=sorted(set(scopes))
    )
    return token, secret


def _end(old: ApiToken, new: ApiToken, now: datetime, overlap: timedelta) -> None:
    row = ApiToken.objects.filter(id=old.id)
    if overlap <= timedelta(0):
        row.update(replaced_by=new, revoked=now)
        return
    # LEAST passes over NULL: an API token without an end gets one, an earlier end stays.
    row.update(replaced_by=new, expires=Least("expires", now + overlap))


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
