"""`/v1/schema`: valid, whole, and the same as what the calls answer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from jsonschema import ValidationError

from accounts.errors import ApiError
from chatproject.openapi import CODES, MEANINGS
from tests.api_schema import calls, check_answer, check_event, schema
from tests.unit.test_docs import API, kinds

OVER_A_SOCKET = {"too_many_watches", "too_many_sockets"}
"""Codes of `WS /v1/ws`, which OpenAPI cannot describe."""


def test_it_is_valid_and_without_warnings(tmp_path: Any) -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(tmp_path / "schema"))


def _paths(patterns: Any, before: str = "") -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            found += _paths(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern) and path.startswith("v1/"):
            found.append("/" + path.replace("<str:", "{").replace(">", "}"))
    return found


def test_every_address_below_v1_is_in_it() -> None:
    addresses = _paths(get_resolver().url_patterns)
    assert len(addresses) > 10
    assert set(addresses) | {"/v1/runs/{run}/stream"} == set(schema()["paths"])


def test_every_method_of_every_view_is_in_it() -> None:
    for path, operations in schema()["paths"].items():
        if path.endswith("/stream"):
            continue
        match = get_resolver().resolve(path.replace("{", "x").replace("}", "x"))
        view = match.func.cls  # type: ignore[attr-defined]
        answers = {name for name in view.http_method_names if hasattr(view, name)} - {"options"}
        assert answers == set(operations), path


def test_every_field_stands_on_the_api_page() -> None:
    parts = schema()["components"]["schemas"].values()
    fields = {name for part in parts for name in part.get("properties", {})}
    assert len(fields) > 30
    told = set(re.findall(r"[`\"](\w+)[`\"]", API))
    assert fields <= told, fields - told


def test_operations_are_told_in_full() -> None:
    names = [operation["operationId"] for operation in calls().values()]
    assert len(set(names)) == len(names)
    for call, operation in calls().items():
        assert operation["summary"], call
        assert operation["tags"], call
        assert {"500", "503"} <= set(operation["responses"]), call
        open_to_all = call == "GET /v1/schema"
        assert ("401" in operation["responses"]) is not open_to_all
        csrf: dict[str, list[str]] = {"session": [], "csrf": []}
        assert (csrf in operation["security"]) is not (call.startswith("GET"))


def test_every_error_code_has_its_status() -> None:
    assert CODES.keys() == MEANINGS.keys()
    for kind in kinds(ApiError):
        if kind.__module__.startswith("tests") or kind.code in OVER_A_SOCKET:
            continue
        assert kind.code in CODES[kind.http_status], kind
    for codes in CODES.values():
        for code in codes:
            assert f"`{code}`" in API


@pytest.mark.parametrize(
    ("method", "path", "status", "kind", "body"),
    [
        ("GET", "/v1/models", 200, "application/json", b'{"object": "list"}'),
        ("GET", "/v1/models", 200, "application/json", b'{"object": "list", "data": [], "x": 1}'),
        ("GET", "/v1/models", 204, "application/json", b""),
        ("GET", "/v1/models", 200, "text/html", b""),
        ("GET", "/v1/nothing", 404, "application/json", b"{}"),
        ("GET", "/v1/runs/g_0", 404, "application/json", b'{"error": {"code": "not_found"}}'),
        (
            "GET",
            "/v1/runs/g_0",
            404,
            "application/json",
            b'{"error": {"code": "made_up", "message": "", "param": null, "retry_after_s": null}}',
        ),
    ],
)
def test_the_check_of_answers_can_fail(
    method: str, path: str, status: int, kind: str, body: bytes
) -> None:
    with pytest.raises((AssertionError, ValidationError)):
        check_answer(method, path, status, kind, body)


def test_the_check_of_events_can_fail() -> None:
    check_event("delta", {"text": "x"})
    with pytest.raises(AssertionError):
        check_event("delta", {"text": "x", "more": 1})


def test_it_is_served_to_everybody_with_a_tag(client: Client) -> None:
    answer = client.get("/v1/schema")
    assert (answer.status_code, answer.json()) == (200, schema())
    assert answer.headers["Content-Type"] == "application/json"
    unchanged = client.get("/v1/schema", headers={"If-None-Match": answer.headers["ETag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["ETag"] == answer.headers["ETag"]
    assert client.post("/v1/schema").status_code == 405
