"""System checks of keys, mail and identity providers.

What is wrong is explained at the start, not found out by a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.db import OperationalError, ProgrammingError
from psycopg_pool import PoolTimeout

from accounts import keys, oidc, site
from accounts.key_ring import InvalidKeyRing, parse_ring
from accounts.routers import KEYS

HINT = "See docs/sealing.md."


@register()
def master_keys(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """MASTER_KEYS must be readable: without it no text can be sealed or opened."""
    try:
        parse_ring(settings.MASTER_KEYS)
    except InvalidKeyRing as problem:
        hint = f"`manage.py make_master_key ID` prints one. {HINT}"
        return [Error(str(problem), hint=hint, id="accounts.E001")]
    return []


@register()
def keys_database(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The keys must be in a database of their own: a dump of the content may not hold them."""
    if KEYS not in settings.DATABASES:
        return [Error("KEYS_DATABASE_URL is not set.", hint=HINT, id="accounts.E002")]
    names = ("HOST", "PORT", "NAME")
    here, there = (settings.DATABASES[alias] for alias in ("default", KEYS))
    if all(str(here.get(name) or "") == str(there.get(name) or "") for name in names):
        problem = "KEYS_DATABASE_URL names the same database as DATABASE_URL."
        return [Error(problem, hint=HINT, id="accounts.E003")]
    return []


@register()
def identity_providers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """OIDC_PROVIDERS must be readable; until then nobody can sign in that way."""
    try:
        oidc.parse_providers(settings.OIDC_PROVIDERS)
    except oidc.InvalidProviders as problem:
        hint = "See docs/operations.md, Identity providers."
        return [Error(str(problem), hint=hint, id="accounts.E010")]
    return []


@register()
def site_address(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """SITE_URL must be an address and nothing more."""
    parts = urlsplit(settings.SITE_URL)
    if settings.SITE_URL and (
        parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query
    ):
        return [
            Error(
                "SITE_URL must be an address without a path, as https://chat.example.org.",
                id="accounts.E011",
            )
        ]
    return []


@register(deploy=True)
def mail_server(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """In production people need mails to sign up and to choose a new password."""
    found: list[CheckMessage] = []
    if not settings.EMAIL_HOST:
        text = "EMAIL_HOST is not set: nobody can confirm an address or reset a password."
        found.append(CheckWarning(text, hint="See docs/operations.md, Mail.", id="accounts.W010"))
    if not settings.SITE_URL:
        text = f"SITE_URL is not set: links in mails begin with {site.site_url()}."
        found.append(CheckWarning(text, hint="SITE_URL=https://…", id="accounts.W011"))
    return found


@register(Tags.database)
def data_keys(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """The ring must fit what is in the keys database. Only where that is named (`--database`)."""
    if KEYS not in (databases or ()) or KEYS not in settings.DATABASES:
        return []
    try:
        problem, back = keys.ring_problem(), keys.returned()
    except (OperationalError, PoolTimeout, ProgrammingError):
        return []  # away, or not migrated yet: the command itself will say so
    problems: list[CheckMessage] = []
    if problem:
        problems.append(Error(problem, hint=HINT, id="accounts.E004"))
    if back:
        text = f"{len(back)} destroyed data keys are back: was the keys database restored?"
        hint = "`manage.py destroy_user_key --again` destroys them again."
        problems.append(Error(text, hint=hint, id="accounts.E005"))
    return problems
