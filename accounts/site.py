"""Where people reach this service, for links that leave it: in mails and at identity providers.

Never from a request's Host header: with a name that ALLOWED_HOSTS lets through, whoever asks for
somebody's mail would choose where its secret link leads.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings

DEFAULT_HOST = "localhost"


def site_url() -> str:
    """`https://chat.example.org`, without a slash at the end: SITE_URL, or the first real name."""
    if settings.SITE_URL:
        return str(settings.SITE_URL)
    scheme = "https" if settings.SESSION_COOKIE_SECURE else "http"
    return f"{scheme}://{first_host()}"


def first_host() -> str:
    """The first of ALLOWED_HOSTS that is a name and no pattern."""
    names = [host for host in settings.ALLOWED_HOSTS if host and host[0] not in "*."]
    return names[0] if names else DEFAULT_HOST


def absolute(path: str) -> str:
    """The address of a path of ours, for people who are elsewhere."""
    return f"{site_url()}{path}"


def host() -> str:
    """The name alone in SITE_URL; "" where that is not set."""
    return urlsplit(str(settings.SITE_URL)).hostname or ""
