"""The words of the API's description that every room shares: ids, headers, credentials.

Each room describes its own calls in its `openapi` module; `chatproject.openapi` adds what holds for
all of them (errors, security) and serves the whole at `/v1/schema`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from django.conf import settings
from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerFieldExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import (
    Direction,
    OpenApiExample,
    OpenApiParameter,
    extend_schema,
    extend_schema_view,
)
from rest_framework import serializers

from accounts import scopes
from accounts.ids import Prefix

F = TypeVar("F", bound=Callable[..., Any])
ERROR_CODES = "x-error-codes"
"""Extension of an operation: its own error codes, beside those that its shape implies. It is
turned into responses, and not published."""


def id_schema(prefix: Prefix) -> dict[str, Any]:
    """The JSON schema of an id of this kind."""
    return {"type": "string", "pattern": f"^{prefix}_[0-9a-f]{{32}}$"}


def example_id(prefix: Prefix) -> str:
    """An id that looks like those there are."""
    return f"{prefix}_019a1f4e7c3a7d21b5e08f6c4d2a9b10"


def id_in_path(name: str, prefix: Prefix, description: str = "") -> OpenApiParameter:
    """A path parameter that holds an id."""
    return OpenApiParameter(
        name,
        id_schema(prefix),
        OpenApiParameter.PATH,
        description=description,
        examples=[OpenApiExample("id", example_id(prefix))],
    )


def header(name: str, description: str, **schema: Any) -> OpenApiParameter:
    """A request header."""
    return OpenApiParameter(
        name, {"type": "string", **schema}, OpenApiParameter.HEADER, description=description
    )


_TAG = r'(W/)?"[!#-~]*"'
IDEMPOTENCY_KEY = header(
    "Idempotency-Key",
    "Repeat it when you repeat the request: you get the run of the first one. Kept for 24 hours.",
    pattern="^[ -~]{1,200}$",
)
IF_MATCH = header(
    "If-Match",
    "An `ETag` that you were given: nothing is written if the conversation has changed since.",
    pattern=rf"^(\*|{_TAG}(, ?{_TAG})*)$",
)


SESSION_ONLY: Final[Any] = [{"session": []}]
SESSION_WRITES: Final[Any] = [{"session": [], "csrf": []}]


class IdChars(serializers.CharField):
    """Describes an id in an answer, which is a text already."""

    def __init__(self, prefix: Prefix, **kwargs: Any) -> None:
        self.prefix = prefix
        super().__init__(**kwargs)


class _IdFields(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """`IdField`, in bodies."""

    target_class = "accounts.serializers.IdField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        return id_schema(self.target.prefix)


class _IdChars(_IdFields):  # type: ignore[no-untyped-call]
    """`IdChars`, in answers."""

    target_class = "accounts.openapi.IdChars"


class _ApiToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.authentication.ApiTokenAuthentication"
    name = "apiToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "t_…",
            "description": "An API token: `Authorization: Bearer t_…`.",
        }


class _Cookie(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.authentication.CookieAuthentication"
    name = ["session", "csrf"]

    def get_security_definition(self, auto_schema: AutoSchema) -> list[dict[str, Any]]:
        return [
            {
                "type": "apiKey",
                "in": "cookie",
                "name": settings.SESSION_COOKIE_NAME,
                "description": "The session of the web UI.",
            },
            {
                "type": "apiKey",
                "in": "header",
                "name": "X-CSRFToken",
                "description": "Beside the session cookie, with all that changes something: the "
                f"CSRF token, as the `{settings.CSRF_COOKIE_NAME}` cookie holds it.",
            },
        ]

    def get_security_requirement(self, auto_schema: AutoSchema) -> dict[str, list[Any]]:
        safe = auto_schema.method in ("GET", "HEAD")
        return {"session": []} if safe else {"session": [], "csrf": []}


# --- API tokens -----------------------------------------------------------------------------------

TOKEN: Final = id_in_path("token", "t")


class ApiToken(serializers.Serializer[Any]):
    """An API token, without its secret."""

    id = IdChars("t")
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(scopes.ALL))
    created = serializers.DateTimeField()
    expires = serializers.DateTimeField(allow_null=True)
    last_used = serializers.DateTimeField(allow_null=True, help_text="True to the minute.")
    replaced = serializers.BooleanField(help_text="By a rotation; it ends soon.")


class ApiTokenMade(ApiToken):
    """A new API token, with its secret, which is never shown again."""

    secret = serializers.CharField()


class ApiTokenList(serializers.Serializer[Any]):
    """The API tokens that can be used now."""

    items = ApiToken(many=True)
    next_cursor = serializers.CharField(allow_null=True)


def tokens_schema(body: type[serializers.Serializer[Any]]) -> Any:
    """For the view of `/v1/tokens`; `body` is what a POST takes."""
    return extend_schema_view(
        get=extend_schema(
            operation_id="listApiTokens",
            tags=["tokens"],
            summary="List your API tokens",
            responses={200: ApiTokenList},
            auth=SESSION_ONLY,
            extensions={ERROR_CODES: ["session_required"]},
        ),
        post=extend_schema(
            operation_id="createApiToken",
            tags=["tokens"],
            summary="Make an API token",
            description="For sessions alone: no API token makes another.",
            request=body,
            responses={201: ApiTokenMade},
            auth=SESSION_WRITES,
            examples=[OpenApiExample("a reader", {"name": "backup", "scopes": ["read"]})],
            extensions={ERROR_CODES: ["session_required", "too_many_api_tokens"]},
        ),
    )


revoke_token_schema = extend_schema(
    operation_id="revokeApiToken",
    tags=["tokens"],
    summary="Revoke an API token at once",
    parameters=[TOKEN],
    responses={204: None},
    auth=SESSION_WRITES,
    extensions={ERROR_CODES: ["session_required"]},
)


def rotate_token_schema(body: type[serializers.Serializer[Any]]) -> Callable[[F], F]:
    """For `POST /v1/tokens/{t}:rotate`, which takes `body`."""
    return extend_schema(
        operation_id="rotateApiToken",
        tags=["tokens"],
        summary="Replace an API token by one with another secret",
        description="The old one ends at once, or after `overlap_s`.",
        parameters=[TOKEN],
        request=body,
        responses={201: ApiTokenMade},
        auth=SESSION_WRITES,
        extensions={ERROR_CODES: ["session_required", "conflict"]},
    )
