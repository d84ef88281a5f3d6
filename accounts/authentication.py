"""Who is asking: an API token (`Authorization: Bearer t_…`) or the session cookie.

Two ways in: DRF's authenticators for the JSON API, and `credential_of_request` for ASGI code
that has only headers (streams, WebSocket). Both accept the same credentials and refuse disabled
users.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError
from importlib import import_module
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import ValidationError
from django.http import parse_cookie
from django.utils.crypto import constant_time_compare
from rest_framework.authentication import (
    BaseAuthentication,
    CSRFCheck,
    SessionAuthentication,
)
from rest_framework.request import Request

from accounts import passwords, scopes, tokens
from accounts.errors import Forbidden, InsufficientScope, NotSignedIn
from accounts.models import ApiToken, User

REALM = 'Bearer realm="api"'
"""WWW-Authenticate of every 401."""

_SESSION_KEY_SHAPE = re.compile(r"[0-9a-z]{8,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Credential:
    """Who is asking and by what. `ref` names the session or API token without being a secret.

    Of a session also its key: `accounts.live` asks about it for as long as something stays open.
    """

    user: User
    kind: Literal["api_token", "session"]
    ref: str
    scopes: tuple[str, ...] = scopes.ALL
    session_key: str = field(default="", repr=False)


class ApiTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer t_…`. A wrong API token is refused even beside a good cookie."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        secret = bearer_secret(request.META.get("HTTP_AUTHORIZATION", ""))
        if secret is None:
            return None
        token = tokens.find(secret)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return REALM


class CookieAuthentication(SessionAuthentication):
    """The session cookie; what changes something must carry the CSRF token too.

    Raises PasswordChangeRequired while the person's password is a one-time password.
    """

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        # A quoted cookie may hold NUL, which the database refuses with an error of its own.
        if _session_key(request.COOKIES) is None:
            return None
        found = super().authenticate(request)
        if found is not None:
            passwords.refuse_temporary(found[0])
        return found

    def authenticate_header(self, request: Request) -> str:
        return REALM

    def enforce_csrf(self, request: Request) -> None:
        check = CSRFCheck(lambda _request: None)  # type: ignore[arg-type]
        check.process_request(request)
        if check.process_view(request, None, (), {}):  # type: ignore[arg-type]
            raise Forbidden(
                "The X-CSRFToken header is missing or out of date. Load the page again.",
                code="csrf_failed",
            )


Headers = Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]


def credential_of_request(headers: Headers, *, scope: str = scopes.READ) -> Credential | None:
    """The credential in ASGI headers (`scope["headers"]`, names in lower case), or None.

    Raises NotSignedIn, with what to do, for an API token that is not accepted, InsufficientScope
    for one that may not do what needs `scope`, and PasswordChangeRequired for a session while the
    password is a one-time password. Sync, at most two queries: from async code call it through
    `accounts.aio.in_database`. It never writes to the session. There is no CSRF check: check Origin
    before letting a cookie change anything.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = _joined(pairs)
    secret = bearer_secret(found.get(b"authorization", b"").decode("latin-1"))
    if secret is not None:
        return credential_of_secret(secret, scope=scope)
    return _credential_of_cookie(found.get(b"cookie", b"").decode("latin-1"))


def credential_of_secret(secret: str, *, scope: str = scopes.READ) -> Credential:
    """The credential of an API token's secret (a WebSocket's first frame).

    Raises NotSignedIn, and InsufficientScope where it may not do what needs `scope`.
    """
    token = tokens.find(secret)
    if not scopes.allows(token, scope):
        raise InsufficientScope(f"This API token may not do this: it needs {scope}.")
    return Credential(token.user, "api_token", token.id.hex, tuple(token.scopes))


def credential_of_view(request: Request) -> Credential:
    """The credential that let this API request in. No query; for views that need a signed-in user.

    Raises NotSignedIn where there is none.
    """
    user, token = request.user, request.auth
    if not isinstance(user, User):
        raise NotSignedIn
    if isinstance(token, ApiToken):
        return Credential(user, "api_token", token.id.hex, tuple(token.scopes))
    return _session_credential(user, request._request.session)


def carries_session_cookie(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser has sent a session along by itself, good or not, and nothing else counts.

    An API token in the header goes before it, as in `credential_of_request`.
    """
    found = _joined(headers)
    if bearer_secret(found.get(b"authorization", b"").decode("latin-1")) is not None:
        return False
    try:
        cookies = parse_cookie(found.get(b"cookie", b"").decode("latin-1"))
    except CookieError:
        return True
    return settings.SESSION_COOKIE_NAME in cookies


def session_ref(session_key: str) -> str:
    """`Credential.ref` of a session: a digest, for the key itself would let its reader in."""
    return hashlib.sha256(session_key.encode()).hexdigest()


def bearer_secret(authorization: str) -> str | None:
    """What stands after `Bearer`; "" if nothing does; None for another scheme or no header."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else None


def _joined(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers by name; HTTP/2 may send cookies one by one."""
    found: dict[bytes, bytes] = {}
    for name, value in pairs:
        found[name] = found[name] + b"; " + value if name in found else value
    return found


def _session_key(cookies: Mapping[str, str]) -> str | None:
    key = cookies.get(settings.SESSION_COOKIE_NAME, "")
    return key if _SESSION_KEY_SHAPE.fullmatch(key) else None


def _credential_of_cookie(header: str) -> Credential | None:
    try:
        key = _session_key(parse_cookie(header))
    except CookieError:
        return None
    if key is None:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = _user_of_session(session)
    if user is None:
        return None
    return _session_credential(passwords.refuse_temporary(user), session)


def _session_credential(user: User, session: SessionBase) -> Credential:
    key = session.session_key or ""
    return Credential(user, "session", session_ref(key), session_key=key)


def _user_of_session(session: SessionBase) -> User | None:
    """As `django.contrib.auth.get_user`, but without its writes.

    That one moves a session signed with a fallback key to a new session key; there is no reply here
    that could carry the new cookie, so the person would be signed out.
    """
    if session.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return None  # signed in by nothing we accept, or not signed in at all
    try:
        user = User.objects.filter(pk=session[SESSION_KEY], is_active=True).first()
    except (KeyError, ValidationError):
        return None
    given = session.get(HASH_SESSION_KEY, "")
    return user if user and given and _hash_is_of(user, given) else None


def _hash_is_of(user: User, given: str) -> bool:
    accepted = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return any(constant_time_compare(given, one) for one in accepted)
