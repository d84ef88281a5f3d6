"""API tokens over HTTP: JSON below `/v1/tokens` and pages below `/accounts/tokens/`.

Both are for sessions alone: whoever took an API token could otherwise make themselves others that
outlive it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import openapi, rate_limits, tokens
from accounts.models import ApiToken
from accounts.permissions import SessionOnly
from accounts.requests import signed_in_user
from accounts.scopes import ALL
from accounts.serializers import (
    StrictCharField,
    StrictIntegerField,
    StrictSerializer,
    iso_time,
)


class TokenBody(StrictSerializer):
    """`POST /v1/tokens`."""

    name = StrictCharField(max_length=tokens.MAX_NAME_CHARACTERS)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(ALL), min_length=1, max_length=len(ALL), default=list(ALL)
    )
    expires_days = StrictIntegerField(
        min_value=1, max_value=tokens.MAX_DAYS, allow_null=True, default=None
    )


class RotateBody(StrictSerializer):
    """`POST /v1/tokens/{t}:rotate`."""

    overlap_s = StrictIntegerField(min_value=0, default=0)

    def validate_overlap_s(self, value: int) -> int:
        most: int = settings.API_TOKEN_OVERLAP_MAX_S
        if value > most:
            raise serializers.ValidationError(f"At most {most} seconds.")
        return value


def token_item(token: ApiToken) -> dict[str, Any]:
    """`{"id", "name", "scopes", "created", "expires", "last_used", "replaced"}`; no secret."""
    return {
        "id": token.external_id,
        "name": token.name,
        "scopes": token.scopes,
        "created": iso_time(token.created),
        "expires": _iso(token.expires),
        "last_used": _iso(token.last_used),
        "replaced": token.replaced_by_id is not None,
    }


def expiry(days: int | None) -> datetime | None:
    """The end of an API token that lives for `days`; None: it does not end by itself."""
    return None if days is None else timezone.now() + timedelta(days=days)


class SessionView(APIView):
    """What only a person who is signed in may do."""

    permission_classes = (IsAuthenticated, SessionOnly)


@openapi.tokens_schema(TokenBody)
@method_decorator(never_cache, name="dispatch")
class TokensView(SessionView):
    """`/v1/tokens`: the API tokens that can be used, and a new one."""

    def get(self, request: Request) -> Response:
        found = tokens.live(signed_in_user(request))
        return Response({"items": [token_item(token) for token in found], "next_cursor": None})

    def post(self, request: Request) -> Response:
        user = signed_in_user(request)
        body = TokenBody(data=request.data)
        body.is_valid(raise_exception=True)
        rate_limits.count(request, rate_limits.MAKE_TOKEN, user.external_id)
        wanted = body.validated_data
        made, secret = tokens.create(
            user, wanted["name"], expiry(wanted["expires_days"]), wanted["scopes"]
        )
        return Response({**token_item(made), "secret": secret}, status=201)


class TokenView(SessionView):
    """`/v1/tokens/{t}`."""

    @openapi.revoke_token_schema
    def delete(self, request: Request, token: str) -> Response:
        tokens.revoke(tokens.access(signed_in_user(request), token))
        return Response(status=204)


@method_decorator(never_cache, name="dispatch")
class RotateTokenView(SessionView):
    """`POST /v1/tokens/{t}:rotate`."""

    @openapi.rotate_token_schema(RotateBody)
    def post(self, request: Request, token: str) -> Response:
        user = signed_in_user(request)
        old = tokens.access(user, token)
        body = RotateBody(data=request.data)
        body.is_valid(raise_exception=True)
        rate_limits.count(request, rate_limits.MAKE_TOKEN, user.external_id)
        overlap = timedelta(seconds=body.validated_data["overlap_s"])
        made, secret = tokens.rotate(old, overlap)
        return Response({**token_item(made), "secret": secret}, status=201)


def _iso(moment: datetime | None) -> str | None:
    return iso_time(moment) if moment else None
