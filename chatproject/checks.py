"""System checks: wrong settings are explained at the start, not found out by a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import OperationalError, ProgrammingError
from psycopg_pool import PoolTimeout

from accounts import keys
from accounts.routers import KEYS
from accounts.sealing import FORMAT_SEALED
from conversations.models import Message
from generation.engines import parse_profiles
from generation.engines.profiles import InvalidProfiles

MIN_SECRET_CHARACTERS = 32


@register()
def engine_profiles(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """ENGINE_PROFILES must be readable: every worker and `ensure_demo` depend on it."""
    try:
        parse_profiles(settings.ENGINE_PROFILES)
    except InvalidProfiles as problem:
        return [Error(str(problem), hint="See docs/operations.md.", id="chatproject.E001")]
    return []


@register()
def limits(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """A message must fit into a request, JSON escapes (six bytes for a character) aside."""
    if settings.MAX_MESSAGE_BYTES >= settings.MAX_BODY_BYTES:
        return [
            Error(
                "MAX_MESSAGE_BYTES must be below MAX_BODY_BYTES.",
                hint="A message travels inside a request body.",
                id="chatproject.E002",
            )
        ]
    return []


@register()
def scheduler_order(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Only a bench wants a queue that is not fair."""
    if settings.SCHEDULER_ORDER not in ("fair", "fifo"):
        text = f"SCHEDULER_ORDER is fair or fifo, not {settings.SCHEDULER_ORDER!r}."
        return [Error(text, hint="Leave it unset.", id="chatproject.E004")]
    if settings.SCHEDULER_ORDER == "fifo":
        text = "SCHEDULER_ORDER=fifo: runs are served in the order in which they come."
        hint = "For bench/fairness only: plans, turns and caps count for nothing. Leave it unset."
        return [checks.Warning(text, hint=hint, id="chatproject.W002")]
    return []


@register(Tags.database)
def keys_of_these_texts(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Sealed texts beside an empty keys database: new keys would be made, and the old texts lost
    from sight.
    """
    if KEYS not in (databases or ()) or KEYS not in settings.DATABASES:
        return []
    try:
        newest = Message.objects.order_by("-id").values_list("content", flat=True)[:100]
        if not any(bytes(content)[:1] == FORMAT_SEALED for content in newest) or keys.has_any():
            return []
    except (OperationalError, PoolTimeout, ProgrammingError):
        return []  # away, or not migrated yet: the command itself will say so
    problem = "There are sealed texts, but the keys database has no keys."
    hint = "Is KEYS_DATABASE_URL the one these texts were written with? See docs/sealing.md."
    return [Error(problem, hint=hint, id="chatproject.E003")]


@register(deploy=True)
def secret_key(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    if len(settings.SECRET_KEY) < MIN_SECRET_CHARACTERS:
        return [
            checks.Warning(
                f"SECRET_KEY has fewer than {MIN_SECRET_CHARACTERS} characters.",
                hint="Sessions are signed with it; make a long random one.",
                id="chatproject.W001",
            )
        ]
    return []


@register(deploy=True)
def metrics_token(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    if 0 < len(settings.METRICS_TOKEN) < MIN_SECRET_CHARACTERS:
        return [
            checks.Warning(
                f"METRICS_TOKEN has fewer than {MIN_SECRET_CHARACTERS} characters.",
                hint="Nothing counts wrong tries; make a long random one.",
                id="chatproject.W002",
            )
        ]
    return []
