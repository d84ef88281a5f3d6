"""DRF permissions that come from what a caller signed in with."""

from __future__ import annotations

from typing import Any, cast

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from accounts import scopes
from accounts.errors import InsufficientScope, SessionRequired
from accounts.models import ApiToken


class TokenScope(BasePermission):
    """Among the defaults: an API token needs `read` for safe methods and `write` for the others."""

    def has_permission(self, request: Request, view: Any) -> bool:
        needed = scopes.needed_for(request.method)
        token = cast("ApiToken | None", request.auth)
        if not scopes.allows(token, needed):
            raise InsufficientScope(f"This API token may not do this: it needs {needed}.")
        return True


class SessionOnly(BasePermission):
    """For what an API token must never do, whatever its scopes: make, list or change API tokens."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.auth is not None:
            raise SessionRequired
        return True
