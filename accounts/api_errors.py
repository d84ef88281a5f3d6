"""Every failure below `/v1` in the one shape, with the headers that belong to it.

`exception_handler` is DRF's; `to_api_error` and `json_response` serve whoever answers without DRF.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

import kombu.exceptions
import psycopg
import redis.exceptions
from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    ValidationError,
)
from django.db import InterfaceError, OperationalError
from django.http import Http404, JsonResponse, UnreadablePostError
from django_ratelimit.exceptions import Ratelimited
from rest_framework import exceptions as drf
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import set_rollback

from accounts import errors
from accounts.authentication import REALM
from accounts.keys import KeyDestroyed

logger = logging.getLogger(__name__)

UNAVAILABLE_RETRY_S = 3
"""A restart of PostgreSQL or Redis takes about so long."""
RATE_LIMITED_RETRY_S = 60
MAX_PARAM_CHARACTERS = 200

# What the drivers raise while PostgreSQL, Redis or the broker is away or drowning.
AWAY: tuple[type[Exception], ...] = (
    OperationalError,
    InterfaceError,
    psycopg.OperationalError,  # psycopg_pool's PoolTimeout is one
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    kombu.exceptions.OperationalError,
)


class MethodNotAllowed(errors.ApiError):
    """This address does not take that method."""

    code = "method_not_allowed"
    http_status = 405

    def __init__(self, message: str | None = None, *, allow: str = "") -> None:
        self.allow = allow
        super().__init__(message)


class UnsupportedMediaType(errors.ApiError):
    """Send the body as application/json."""

    code = "unsupported_media_type"
    http_status = 415


class TextDestroyed(errors.ApiError):
    """The texts of this account were destroyed for good, and it can hold no new ones."""

    code = "text_destroyed"
    http_status = 403


class InternalError(errors.ApiError):
    """Something broke on our side. Try again in a moment; what you had already sent is kept."""

    code = "internal_error"
    http_status = 500


def exception_handler(exc: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's hook: the answer to any exception of an API view. It never lets one pass."""
    error = to_api_error(exc)
    set_rollback()
    return Response(_body(error), status=error.http_status, headers=headers_of(error))


def json_response(error: errors.ApiError) -> JsonResponse:
    """The error as an answer of plain Django."""
    return JsonResponse(_body(error), status=error.http_status, headers=headers_of(error))


def headers_of(error: errors.ApiError) -> dict[str, str]:
    """`Retry-After`; `WWW-Authenticate` for a 401; `Allow` for a 405, where DRF adds none."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.http_status == 401:
        headers["WWW-Authenticate"] = REALM
    if isinstance(error, MethodNotAllowed) and error.allow:
        headers["Allow"] = error.allow
    return headers


def to_api_error(exc: Exception) -> errors.ApiError:
    """What the caller is told of `exc`. What is unexpected is logged here and told as a 500."""
    if isinstance(exc, errors.ApiError):
        return exc
    if isinstance(exc, drf.APIException):
        return _of_drf(exc)
    if isinstance(exc, AWAY):
        logger.warning(
            "a service is away: %s", type(exc).__name__, extra={"action": "dependency_away"}
        )
        return errors.Unavailable(retry_after_s=UNAVAILABLE_RETRY_S)
    if isinstance(exc, KeyDestroyed):
        return TextDestroyed()
    return _of_django(exc) or _unexpected(exc)


def _of_drf(exc: drf.APIException) -> errors.ApiError:
    if isinstance(exc, drf.ValidationError):
        param, message = first_problem(exc.detail)
        return errors.InvalidRequest(message, param=param)
    if isinstance(exc, (drf.NotAuthenticated, drf.AuthenticationFailed)):
        return errors.NotSignedIn()
    if isinstance(exc, drf.Throttled):
        return errors.RateLimited(
            retry_after_s=int(getattr(exc, "wait", None) or RATE_LIMITED_RETRY_S)
        )
    return _by_status(exc)


def _by_status(exc: drf.APIException) -> errors.ApiError:
    if exc.status_code >= 500:
        return _unexpected(exc)
    kinds: dict[int, type[errors.ApiError]] = {
        403: errors.Forbidden,
        404: errors.NotFound,
        405: MethodNotAllowed,
        413: errors.BodyTooLarge,
        415: UnsupportedMediaType,
    }
    return kinds.get(exc.status_code, errors.InvalidRequest)()


def _of_django(exc: Exception) -> errors.ApiError | None:
    if isinstance(exc, Http404):
        return errors.NotFound()
    if isinstance(exc, Ratelimited):
        return errors.RateLimited(retry_after_s=RATE_LIMITED_RETRY_S)
    if isinstance(exc, PermissionDenied):
        return errors.Forbidden()
    if isinstance(exc, RequestDataTooBig):
        return errors.BodyTooLarge()
    if isinstance(exc, (SuspiciousOperation, UnreadablePostError)):
        return errors.InvalidRequest("The request could not be read.")
    if isinstance(exc, ValidationError):
        return _of_model_validation(exc)
    return None


def _of_model_validation(exc: ValidationError) -> errors.InvalidRequest:
    by_field = exc.message_dict if hasattr(exc, "error_dict") else exc.messages
    param, message = first_problem(by_field)
    return errors.InvalidRequest(message, param=None if param == "__all__" else param)


def _unexpected(exc: Exception) -> InternalError:
    """Logged by type and place alone: the text of an exception may quote what people wrote."""
    places = "".join(traceback.format_tb(exc.__traceback__))
    logger.error(
        "unexpected %s in an API call\n%s",
        type(exc).__name__,
        places,
        extra={"action": "api_call_failed"},
    )
    return InternalError()


def first_problem(detail: object, path: str = "") -> tuple[str | None, str]:
    """(where, what) of the first problem in DRF's nested detail: `("parts[2].text", "…")`."""
    while isinstance(detail, (dict, list)) and detail:
        step, detail = _first_step(detail)
        path = f"{path}.{step}" if path and step and not step.startswith("[") else path + step
    return path or None, str(detail) if isinstance(detail, str) else "This is not valid."


def _first_step(detail: dict[Any, Any] | list[Any]) -> tuple[str, object]:
    """The first non-empty child, and how to write the way to it."""
    pairs = detail.items() if isinstance(detail, dict) else enumerate(detail)
    key, child = next(((key, child) for key, child in pairs if child), (None, None))
    if key is None or key == api_settings.NON_FIELD_ERRORS_KEY:
        return "", child
    if isinstance(key, int):
        return ("" if isinstance(child, str) else f"[{key}]"), child
    return str(key), child


def _body(error: errors.ApiError) -> dict[str, dict[str, object]]:
    """The shape, safe to encode: a param may be a key of the caller's, lone surrogates and all."""
    body = error.as_dict()
    body["error"]["message"] = _encodable(error.message)
    if error.param is not None:
        body["error"]["param"] = _encodable(error.param)[:MAX_PARAM_CHARACTERS]
    return body


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
