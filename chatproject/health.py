"""`/healthz`: this process answers. `/readyz`: it can serve."""

from __future__ import annotations

from collections.abc import Callable

from django.core.cache import cache
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts import keys
from accounts.api_errors import AWAY
from generation.redis_clients import token_log


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when every part answers, else 503; each part is named with `ok` or `away`."""
    parts = {
        "database": _state(_ask_database),
        "keys": _state(keys.ask),
        "token_logs": _state(lambda: token_log().states([])),
        "cache": _state(lambda: cache.get("readyz")),
    }
    ready = all(state == "ok" for state in parts.values())
    status = "ok" if ready else "unavailable"
    return JsonResponse({"status": status, **parts}, status=200 if ready else 503)


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _state(ask: Callable[[], object]) -> str:
    try:
        ask()
    except AWAY:
        return "away"
    return "ok"
