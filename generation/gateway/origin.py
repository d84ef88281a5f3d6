"""Which pages may open a socket with somebody's cookie: only those of this product.

A browser sends cookies along with a socket that any page opens, and asks nobody before.
"""

from __future__ import annotations

import io
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.middleware.csrf import CsrfViewMiddleware

_check = CsrfViewMiddleware(lambda _request: None)  # type: ignore[arg-type]


def is_own_origin(scope: dict[str, Any]) -> bool:
    """Whether `Origin` is this address, or one of CSRF_TRUSTED_ORIGINS. None at all is not.

    As Django decides it for a form: BEHIND_TLS_PROXY and wildcards count here too.
    """
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    as_http = {**scope, "type": "http", "method": "GET", "scheme": scheme}
    request = ASGIRequest(as_http, io.BytesIO())
    if "HTTP_ORIGIN" not in request.META:
        return False
    return bool(_check._origin_verified(request))  # type: ignore[attr-defined]
