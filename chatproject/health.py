"""`/readyz`: this process can serve. (`/healthz`, that it lives, is `handler.Liveness`.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.core.cache import cache
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts import keys
from accounts.api_errors import AWAY
from generation.gateway.process import deaf_for_s
from generation.redis_clients import token_log

DEAF_S: Final = 10.0
"""A subscription that is lost is usually back within a second or two."""


class Readiness:
    """Middleware that answers `/readyz` before anybody looks at the Host header.

    A probe asks by address; behind ALLOWED_HOSTS it would get 400 and the process no traffic.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return readyz(request) if request.path == "/readyz" else self._get_response(request)


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when every part answers, else 503; each part is named with `ok`, `away` or `deaf`."""
    parts = {
        "database": _state(_ask_database),
        "keys": _state(keys.ask),
        "token_logs": _state(lambda: token_log().states([])),
        "cache": _state(lambda: cache.get("readyz")),
        "pushes": "deaf" if deaf_for_s() > DEAF_S else "ok",
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
