"""Who a request's user is, for views that only signed-in people reach."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest
from rest_framework.request import Request

from accounts.models import User


def signed_in_user(request: Request) -> User:
    """The user of an API request that has passed `IsAuthenticated`, which lets only users in."""
    return cast("User", request.user)


def user_of_page(request: HttpRequest) -> User:
    """The user of a page that has passed `login_required`."""
    return cast("User", request.user)
