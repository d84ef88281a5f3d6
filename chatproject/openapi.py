"""The API's description as OpenAPI 3.1: `/v1/schema`, and a page at `/api` to read and try it.

drf-spectacular collects what the rooms say of their calls (their `openapi` modules). The hooks
below add what holds for all: the one error shape with the codes that a call can answer, and what
is served without Django.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from csp.decorators import csp_update
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.openapi import ERROR_CODES
from generation.openapi import LINKS_OF_RUN, STREAM_PATH, StreamView, event_components

Endpoint = tuple[str, str, str, Callable[..., Any]]
Schema = dict[str, Any]

CODES: Final[dict[int, tuple[str, ...]]] = {
    400: ("invalid_request", "invalid_json", "unknown_model", "invalid_parent"),
    401: (
        "not_signed_in",
        "invalid_api_token",
        "api_token_expired",
        "api_token_revoked",
        "account_disabled",
    ),
    403: (
        "forbidden",
        "csrf_failed",
        "insufficient_scope",
        "session_required",
        "password_change_required",
        "text_destroyed",
        "no_plan",
    ),
    404: ("not_found",),
    405: ("method_not_allowed",),
    408: ("body_too_slow",),
    409: ("conflict", "run_live", "not_continuable", "too_many_api_tokens"),
    412: ("precondition_failed",),
    413: ("body_too_large",),
    415: ("unsupported_media_type",),
    422: ("idempotency_key_reused",),
    429: (
        "rate_limited",
        "quota_exceeded",
        "tokens_per_minute",
        "busy",
        "queue_full",
        "too_many_live_runs",
        "too_many_streams",
    ),
    500: ("internal_error",),
    503: ("unavailable",),
}
"""Every code of an error, by status. docs/api.md has the same table."""

MEANINGS: Final = {
    400: "The request is not valid; `param` names the field.",
    401: "Nobody is signed in, or the API token is not accepted.",
    403: "You may not do this.",
    404: "There is nothing here, or it is not yours: the two are told alike.",
    405: "This address does not take that method.",
    408: "The body took too long to arrive.",
    409: "The request does not fit the present state; `run_live` names the run.",
    412: "It has changed since you looked.",
    413: "The body is too large.",
    415: "The body is not `application/json`.",
    422: "This `Idempotency-Key` was used with another request.",
    429: "Too many, or too much at once; wait for `Retry-After`.",
    500: "Something broke on our side.",
    503: "A part of the service is away for a moment; wait for `Retry-After`.",
}

_DESCRIPTION: Final = """\
Programs send `Authorization: Bearer t_…`; the web UI sends the session cookie and, with everything
that changes something, the `X-CSRFToken` header. Ids carry their kind: `c_` conversation, `m_`
message, `g_` run, `t_` API token. Unknown fields are refused, never ignored. Errors have one shape,
whatever went wrong. Answers never depend on `Accept`, but for those that can stream.

Beside what stands here there is a WebSocket, `WS /v1/ws`: docs/api.md describes it.
"""
_STATUS_OF: Final = {code: status for status, codes in CODES.items() for code in codes}
_ALWAYS: Final = ("internal_error", "unavailable", "rate_limited")
_OF_BODY: Final = (
    "invalid_request",
    "invalid_json",
    "body_too_large",
    "body_too_slow",
    "unsupported_media_type",
)
_OF_CREDENTIAL: Final = (*CODES[401], "forbidden", "insufficient_scope", "password_change_required")
_ERROR: Final[Schema] = {
    "type": "object",
    "description": "What went wrong, in the one shape.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "For programs."},
                "message": {"type": "string", "description": "For people: what to do."},
                "param": {
                    "type": ["string", "null"],
                    "description": "The field, parameter or header that is not valid.",
                },
                "retry_after_s": {"type": ["integer", "null"], "minimum": 0},
            },
            "required": ["code", "message", "param", "retry_after_s"],
        }
    },
    "required": ["error"],
}


# --- hooks ----------------------------------------------------------------------------------------


def add_streams(endpoints: list[Endpoint]) -> list[Endpoint]:
    """Before: what is routed in chatproject.asgi stands among the rest."""
    return [
        *(endpoint for endpoint in endpoints if endpoint[0].startswith("/v1/")),
        (STREAM_PATH, STREAM_PATH, "GET", StreamView.as_view()),
    ]


def finish_schema(result: Schema, **_: Any) -> Schema:
    """After: errors for every operation, the events, and objects that take no unknown field."""
    result["info"]["description"] = _DESCRIPTION
    components = result["components"]
    components["schemas"].update({"Error": _ERROR, **event_components()})
    used: set[tuple[int, tuple[str, ...]]] = set()
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            for status, codes in _errors_of(path, method, operation).items():
                name = _response_name(status, codes)
                used.add((status, codes))
                operation["responses"][str(status)] = {"$ref": f"#/components/responses/{name}"}
    components["responses"] = {_response_name(*one): _error_response(*one) for one in sorted(used)}
    _close_requests(result)
    _add_limits(result)
    _add_links(result)
    _plain_enums(result)
    return result


def _errors_of(path: str, method: str, operation: Schema) -> dict[int, tuple[str, ...]]:
    """status → the codes that this operation can answer with; from its shape, and its own."""
    codes = [*operation.pop(ERROR_CODES, ()), *_ALWAYS, *_implied(path, method, operation)]
    found: dict[int, list[str]] = {}
    for code in codes:
        found.setdefault(_STATUS_OF[code], []).append(code)
    return {
        status: tuple(code for code in CODES[status] if code in given)
        for status, given in sorted(found.items())
    }


def _implied(path: str, method: str, operation: Schema) -> Iterable[str]:
    if operation.get("security") != [{}]:
        yield from _OF_CREDENTIAL
        if method not in ("get", "head"):
            yield "csrf_failed"
    if "requestBody" in operation:
        yield from _OF_BODY
    # A POST without fields still has a body that may be too large, or no JSON.
    elif method not in ("get", "head"):
        yield from ("body_too_large", "body_too_slow", "unsupported_media_type", "invalid_json")
    given = {(one["in"], one["name"]) for one in operation.get("parameters", ())}
    if "{" in path:
        yield "not_found"
    if any(place in ("query", "header") for place, _ in given):
        yield "invalid_request"
    if ("header", "If-Match") in given:
        yield "precondition_failed"


def _response_name(status: int, codes: tuple[str, ...]) -> str:
    digest = hashlib.sha256(",".join(codes).encode()).hexdigest()[:6]
    whole = codes == CODES[status] or len(CODES[status]) == 1
    return f"Error{status}" if whole else f"Error{status}_{digest}"


def _error_response(status: int, codes: tuple[str, ...]) -> Schema:
    code = {"properties": {"error": {"properties": {"code": {"enum": list(codes)}}}}}
    schema = {"allOf": [{"$ref": "#/components/schemas/Error"}, code]}
    response: Schema = {
        "description": f"{MEANINGS[status]} Codes: {', '.join(f'`{one}`' for one in codes)}.",
        "content": {"application/json": {"schema": schema}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "string"}}}
    if "quota_exceeded" in codes:
        response["headers"] |= _limit_headers()
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return response


def _add_limits(result: Schema) -> None:
    """How the limits stand, with whatever begins a run and with the call that tells them."""
    for operations in result["paths"].values():
        for operation in operations.values():
            if operation["operationId"] in _TELL_LIMITS:
                for status in {"200", "202"} & operation["responses"].keys():
                    operation["responses"][status].setdefault("headers", {}).update(
                        _limit_headers()
                    )


_TELL_LIMITS: Final = frozenset({"send", "regenerate", "continueReply", "getUsage"})


def _limit_headers() -> Schema:
    return {
        f"x-ratelimit-{figure}-{what}": {"description": meaning, "schema": {"type": "string"}}
        for what in ("requests", "tokens")
        for figure, meaning in (
            ("limit", "Not there where there is no limit."),
            ("remaining", "Rises only with time, or where something is given back."),
            ("reset", "Until all of it is there again, as `12s` or `6m0s`."),
        )
    }


def _close_requests(result: Schema) -> None:
    """Bodies refuse unknown fields, so the schemas of all that a body can hold say so."""
    schemas = result["components"]["schemas"]
    waiting = [
        content["schema"]
        for operations in result["paths"].values()
        for operation in operations.values()
        for content in operation.get("requestBody", {}).get("content", {}).values()
    ]
    seen: set[str] = set()
    while waiting:
        for name in _names_in(waiting.pop()) - seen:
            seen.add(name)
            schemas[name]["additionalProperties"] = False
            waiting.append(schemas[name])


def _names_in(node: Any) -> set[str]:
    """The components that are named anywhere in it."""
    if isinstance(node, dict):
        own = {node["$ref"].rpartition("/")[2]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(_names_in, node.values()))
    return set().union(*map(_names_in, node)) if isinstance(node, list) else set()


def _add_links(result: Schema) -> None:
    for operations in result["paths"].values():
        for operation in operations.values():
            if operation["operationId"] in ("send", "regenerate", "continueReply"):
                operation["responses"]["202"]["links"] = LINKS_OF_RUN


def _plain_enums(node: Any) -> None:
    """Without the notes of drf-spectacular: `* up - up` tells nothing that `enum` does not."""
    if isinstance(node, dict):
        if node.pop("x-spec-enum-id", None) and str(node.get("description", "")).startswith("* `"):
            del node["description"]
        for child in node.values():
            _plain_enums(child)
    elif isinstance(node, list):
        for child in node:
            _plain_enums(child)


# --- the doors ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def schema_bytes() -> tuple[bytes, str]:
    """The schema as JSON, and its ETag. Made once per process: it takes a moment, and is public."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    body = json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode()
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


class SchemaView(APIView):
    """`GET /v1/schema`: open to everybody, as it says nothing of anybody."""

    authentication_classes = ()
    permission_classes = ()

    @extend_schema(
        operation_id="getSchema",
        tags=["schema"],
        summary="This description, as OpenAPI 3.1",
        responses={200: {"type": "object"}},
        auth=[{}],  # type: ignore[list-item]  # nobody needs to sign in
    )
    def get(self, request: Request) -> HttpResponse:
        body, etag = schema_bytes()
        headers = {"ETag": etag, "Cache-Control": "public, no-cache"}
        whole = HttpResponse(body, content_type="application/json", headers=headers)
        return get_conditional_response(request._request, etag=etag, response=whole) or whole


# Swagger UI draws its arrows and ticks from images inside its stylesheet.
@require_safe
@never_cache
@login_required
@csp_update({"img-src": ["data:"]})
def api_page(request: HttpRequest) -> HttpResponse:
    """`/api`: the schema as a page that can try each call with the session of whoever reads it."""
    return render(request, "api.html")
