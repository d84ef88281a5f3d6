"""How often one may try to sign in or sign up, so that passwords cannot be guessed.

Counted in Redis by django-ratelimit. While Redis is away nobody is refused: people must be able to
sign in then, and a slow password hash still stands in the way of guessing.
"""

from __future__ import annotations

import ipaddress
import logging
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest
from django_ratelimit.core import get_usage
from redis.exceptions import RedisError

from accounts.errors import RateLimited, Unavailable

logger = logging.getLogger(__name__)

MAX_ACCOUNT_CHARACTERS = 255
"""One more than the longest address; what is longer signs in nowhere, and may not cost time."""

Key = Callable[[HttpRequest, str], str]
"""(request, account as typed) → what is counted."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `rate` (django-ratelimit's notation) tries for each value of `key`."""

    name: str
    rate: str
    key: Key


def client_address(request: HttpRequest) -> str:
    """The client's address, as an IPv6 network of /64 where it is IPv6 (one household, one client).

    X-Forwarded-For can be written by anyone: only its last TRUSTED_PROXY_COUNT entries come from
    proxies of ours, so the one that many from the right is the client's.
    """
    return _network(_forwarded(request) or request.META.get("REMOTE_ADDR", ""))


def exact_address(request: HttpRequest) -> str:
    """The client's address, to be shown to its person; `::` where it is not known."""
    text = _forwarded(request) or request.META.get("REMOTE_ADDR", "")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return "::"


def by_address(request: HttpRequest, account: str) -> str:
    """Where the try comes from, whatever account it names."""
    return client_address(request)


def by_account(request: HttpRequest, account: str) -> str:
    """The account as the sign-in form and the query for the user read it: one account, one count.

    The form applies NFKC (full-width letters become plain ones), the query ignores case.
    """
    bounded = account.strip()[:MAX_ACCOUNT_CHARACTERS]
    return unicodedata.normalize("NFKC", bounded).strip().lower()


def by_both(request: HttpRequest, account: str) -> str:
    """Tries at one account from one address."""
    return f"{by_address(request, account)} {by_account(request, account)}"


# A whole office may share one address. One address may not lock others out of an account: it meets
# its own limit (10 in 5 minutes is 120 an hour) before the account's.
SIGN_IN = (
    Limit("sign_in.address", "100/5m", by_address),
    Limit("sign_in.address_account", "10/5m", by_both),
    Limit("sign_in.account", "250/h", by_account),
)
SIGN_UP = (
    Limit("sign_up.address", "30/h", by_address),
    Limit("sign_up.account", "10/h", by_account),
)
CHANGE_PASSWORD = (Limit("change_password.account", "10/5m", by_account),)
# Each is a mail to somebody who perhaps never asked for it.
RESET_PASSWORD = (
    Limit("reset_password.address", "30/h", by_address),
    Limit("reset_password.account", "5/h", by_account),
)
CONFIRM_ADDRESS = (Limit("confirm_address.account", "5/h", by_account),)
CHANGE_ADDRESS = (Limit("change_address.account", "10/h", by_account),)
RESET_LINK = (Limit("reset_link.address", "60/h", by_address),)
# Six digits, three of which are right at a time: guessed one time in 3,000 in a day of trying, by
# somebody who has the password already.
SECOND_FACTOR = (
    Limit("second_factor.account", "10/5m", by_account),
    Limit("second_factor.account_day", "100/d", by_account),
)
REAUTHENTICATE = (Limit("reauthenticate.account", "10/5m", by_account),)
PASSKEY = (Limit("passkey.address", "60/5m", by_address),)
# Each begins a session, of nobody yet.
PASSKEY_CHALLENGE = (Limit("passkey_challenge.address", "60/5m", by_address),)
OIDC = (Limit("oidc.address", "60/5m", by_address),)
# Each leaves a row behind, also when it is revoked at once.
MAKE_TOKEN = (Limit("make_token.account", "100/h", by_account),)


def count(
    request: HttpRequest, limits: Iterable[Limit], account: str, *, needs_redis: bool = False
) -> None:
    """Count one try; raise RateLimited if it was one too many.

    It is counted before the password is looked at: of many tries at once none slips through.
    `needs_redis`: for what nothing else protects from guessing; raises Unavailable without it.
    """
    try:
        for limit in limits:
            _count(request, limit, account)
    except (RedisError, OSError) as error:
        if needs_redis:
            raise Unavailable from error
        logger.warning(
            "rate limits are off, the cache is away: %s",
            type(error).__name__,
            extra={"action": "rate_limit_skipped"},
        )


def _count(request: HttpRequest, limit: Limit, account: str) -> None:
    value = limit.key(request, account)
    usage = get_usage(
        request, group=limit.name, key=lambda *_: value, rate=limit.rate, increment=True
    )
    # A limit of 0 is the library's way to say that it could not count.
    if usage and usage["limit"] and usage["should_limit"]:
        raise RateLimited(
            "Too many tries in a short time. Wait a moment and try again.",
            retry_after_s=max(1, usage["time_left"]),
        )


def _forwarded(request: HttpRequest) -> str | None:
    trusted: int = getattr(settings, "TRUSTED_PROXY_COUNT", 0)
    hops = [hop.strip() for hop in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    return hops[-trusted] if 0 < trusted <= len(hops) else None


def _network(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network(f"{address}/64", strict=False).network_address)
