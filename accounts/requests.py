"""What views ask of a request: who sent it, and its query."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest
from rest_framework.request import Request

from accounts.errors import InvalidRequest
from accounts.models import User


def signed_in_user(request: Request) -> User:
    """The user of an API request that has passed `IsAuthenticated`, which lets only users in."""
    return cast("User", request.user)


def user_of_page(request: HttpRequest) -> User:
    """The user of a page that has passed `login_required`."""
    return cast("User", request.user)


def query_of(request: Request) -> dict[str, str]:
    """The query. Raises InvalidRequest for a parameter that is there twice: which would count?"""
    for name, values in request.query_params.lists():
        if len(values) > 1:
            raise InvalidRequest("This parameter is there twice.", param=name)
    return request.query_params.dict()
