"""What callers are told of an exception: code, place, headers, and nothing else."""

from __future__ import annotations

import json
import logging

import kombu.exceptions
import psycopg_pool
import pytest
import redis.exceptions
from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    ValidationError,
)
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404
from django_ratelimit.exceptions import Ratelimited
from rest_framework import exceptions as drf

from accounts import errors
from accounts.api_errors import first_problem, json_response, to_api_error

PRIVATE = "what a person wrote in confidence"


def subclasses(kind: type[errors.ApiError]) -> list[type[errors.ApiError]]:
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in subclasses(child))]


@pytest.mark.parametrize(
    ("exception", "status", "code"),
    [
        (drf.ParseError(PRIVATE), 400, "invalid_request"),
        (drf.NotAuthenticated(PRIVATE), 401, "not_signed_in"),
        (drf.AuthenticationFailed(PRIVATE), 401, "not_signed_in"),
        (drf.PermissionDenied(PRIVATE), 403, "forbidden"),
        (drf.NotFound(PRIVATE), 404, "not_found"),
        (drf.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
        (drf.NotAcceptable(PRIVATE), 400, "invalid_request"),
        (drf.UnsupportedMediaType("x/y"), 415, "unsupported_media_type"),
        (drf.Throttled(wait=9), 429, "rate_limited"),
        (drf.APIException(PRIVATE), 500, "internal_error"),
        (Http404(PRIVATE), 404, "not_found"),
        (PermissionDenied(PRIVATE), 403, "forbidden"),
        (Ratelimited(), 429, "rate_limited"),
        (RequestDataTooBig(PRIVATE), 413, "body_too_large"),
        (SuspiciousOperation(PRIVATE), 400, "invalid_request"),
        (OperationalError(PRIVATE), 503, "unavailable"),
        (InterfaceError(PRIVATE), 503, "unavailable"),
        (psycopg_pool.PoolTimeout(PRIVATE), 503, "unavailable"),
        (redis.exceptions.ConnectionError(PRIVATE), 503, "unavailable"),
        (redis.exceptions.TimeoutError(PRIVATE), 503, "unavailable"),
        (redis.exceptions.BusyLoadingError(PRIVATE), 503, "unavailable"),
        (redis.exceptions.ReadOnlyError(PRIVATE), 503, "unavailable"),
        (kombu.exceptions.OperationalError(PRIVATE), 503, "unavailable"),
        (redis.exceptions.ResponseError(PRIVATE), 500, "internal_error"),
        (IntegrityError(PRIVATE), 500, "internal_error"),
        (DataError(PRIVATE), 500, "internal_error"),
        (KeyError(PRIVATE), 500, "internal_error"),
    ],
)
def test_each_exception_has_its_code_and_keeps_its_text(
    exception: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        error = to_api_error(exception)
    assert (error.http_status, error.code) == (status, code)
    response = json_response(error)
    assert response.status_code == status
    assert PRIVATE not in response.content.decode() + caplog.text
    assert ("Retry-After" in response.headers) == (status in {429, 503})
    assert ("WWW-Authenticate" in response.headers) == (status == 401)


def test_every_error_has_a_code_a_status_and_a_sentence_of_its_own() -> None:
    kinds = [kind for kind in subclasses(errors.ApiError) if kind.__module__.startswith("accounts")]
    assert len(kinds) >= 13
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind().message.endswith(".")
        assert 400 <= kind.http_status <= 599


def test_our_own_errors_pass_unchanged() -> None:
    error = errors.Conflict("It runs.", param="m_1")
    assert to_api_error(error) is error
    body = json.loads(json_response(error).content)
    assert body == {
        "error": {"code": "conflict", "message": "It runs.", "param": "m_1", "retry_after_s": None}
    }


@pytest.mark.parametrize(
    ("detail", "param", "message"),
    [
        ({"a": ["No."]}, "a", "No."),
        ({"a": [], "b": ["No."]}, "b", "No."),
        ({"a": {"b": ["No."]}}, "a.b", "No."),
        ({"a": {"non_field_errors": ["No."]}}, "a", "No."),
        ({"non_field_errors": ["No."]}, None, "No."),
        ({"a": [{}, {"b": ["No."]}]}, "a[1].b", "No."),
        ({"a": {3: ["No."]}}, "a[3]", "No."),
        ([{"a": ["No."]}], "[0].a", "No."),
        (["No."], None, "No."),
        ("No.", None, "No."),
        ({}, None, "This is not valid."),
        ([[], {}], None, "This is not valid."),
    ],
)
def test_the_first_problem_is_found(detail: object, param: str | None, message: str) -> None:
    assert first_problem(detail) == (param, message)


def test_a_models_validation_error_names_its_field() -> None:
    error = to_api_error(ValidationError({"name": ["Too long."]}))
    assert (error.http_status, error.param, error.message) == (400, "name", "Too long.")
    error = to_api_error(ValidationError("Not together."))
    assert (error.http_status, error.param, error.message) == (400, None, "Not together.")


def test_text_that_cannot_be_encoded_is_told_with_a_mark() -> None:
    response = json_response(errors.InvalidRequest("No \ud83d.", param="\ud83d" * 300))
    error = json.loads(response.content)["error"]
    assert (error["message"], error["param"]) == ("No ?.", "?" * 200)
