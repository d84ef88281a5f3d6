"""Failures below /v1 have one shape, elsewhere a page; nothing private is told or logged."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from tests.integration.accounts_urls import PRIVATE
from tests.integration.test_accounts_access import error_of
from tests.people import Person, bearer, client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static"),
]


@pytest.fixture
def owner() -> Person:
    return make_person("owner")


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


def post(owner: Person, raw: bytes, content_type: str = "application/json") -> Any:
    return Client().post("/v1/things", raw, content_type=content_type, headers=bearer(owner))


def test_a_good_body_is_kept_byte_for_byte(owner: Person) -> None:
    title = "  \u0928\u092e\u0938\u094d\u0924\u0947 \U0001f469\u200d\U0001f52c \u05e9\r\n"
    response = post(owner, json.dumps({"title": title}).encode())
    assert response.status_code == 201
    assert response.json()["title"] == title


BAD_BODIES = {
    "nothing": (b"{}", "title"),
    "list": (b"[]", None),
    "half": (b'{"title": "x"', None),
    "not UTF-8": (b'{"title": "\xff"}', None),
    "NaN": (b'{"title": "x", "number": NaN}', None),
    "infinite": (b'{"title": "x", "number": 1e999}', None),
    "huge integer": (b'{"title": "x", "number": ' + b"9" * 5000 + b"}", None),
    "twice": (b'{"title": "x", "title": "y"}', "title"),
    "deep": (b'{"title": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    "rather deep": (b'{"title": ' + b"[" * 65 + b"]" * 65 + b"}", None),
    "unknown field": (b'{"title": "x", "tilte": "y"}', "tilte"),
    "unknown inner field": (
        b'{"title": "x", "parts": [{"text": "a"}, {"txt": 1}]}',
        "parts[1].txt",
    ),
    "number as text": (b'{"title": 5}', "title"),
    "null": (b'{"title": null}', "title"),
    "empty": (b'{"title": ""}', "title"),
    "NUL": (b'{"title": "a\\u0000b"}', "title"),
    "lone surrogate": (b'{"title": "\\ud83d"}', "title"),
    "lone surrogate as a field": (b'{"title": "x", "\\ud83d": 1}', None),
    "id of another kind": (b'{"title": "x", "parent_id": "m_' + b"0" * 32 + b'"}', "parent_id"),
    "text as number": (b'{"title": "x", "number": "5"}', "number"),
    "true as number": (b'{"title": "x", "number": true}', "number"),
    "object for a list": (b'{"title": "x", "parts": {"text": "a"}}', "parts"),
    "text for an object": (b'{"title": "x", "parts": ["a"]}', "parts[0]"),
    "too long": (b'{"title": "x", "parts": [{"text": "' + b"a" * 21 + b'"}]}', "parts[0].text"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused_and_says_where(owner: Person, name: str) -> None:
    raw, param = BAD_BODIES[name]
    error = error_of(post(owner, raw), 400)
    assert error["param"] == param
    assert error["message"]


def test_a_body_of_5_mb_is_refused(owner: Person) -> None:
    raw = json.dumps({"title": "x" * 5_000_000}).encode()
    assert error_of(post(owner, raw), 413)["code"] == "body_too_large"


def test_a_body_of_just_the_limit_is_read(owner: Person) -> None:
    frame = len(b'{"title": ""}')
    raw = b'{"title": "%s"}' % (b"x" * (django_settings.MAX_BODY_BYTES - frame))
    assert len(raw) == django_settings.MAX_BODY_BYTES
    assert post(owner, raw).status_code == 201
    assert error_of(post(owner, raw[:-2] + b'x"}'), 413)


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data; boundary=x", "x", ""])
def test_a_body_of_another_type_is_refused(owner: Person, content_type: str) -> None:
    response = post(owner, b'{"title": "x"}', content_type)
    assert error_of(response, 415)["code"] == "unsupported_media_type"


@pytest.mark.parametrize("accept", ["text/event-stream", "text/html", "image/png", "nonsense", ""])
def test_accept_never_stands_in_the_way_of_an_error(owner: Person, accept: str) -> None:
    headers = {**bearer(owner), "Accept": accept}
    error_of(Client().get("/v1/failing/invalid", headers=headers), 400)


def test_an_unknown_address_below_v1_is_json(client: Client) -> None:
    assert error_of(client.get("/v1/no/such"), 404)["code"] == "not_found"


def test_an_unknown_address_elsewhere_is_a_page(client: Client) -> None:
    response = client.get("/no/such")
    assert response.status_code == 404
    assert response.headers["Content-Type"].startswith("text/html")


def test_a_wrong_method_is_told_with_those_that_are_right(owner: Person) -> None:
    response = Client().delete("/v1/things", headers=bearer(owner))
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert {"GET", "POST"} <= set(response.headers["Allow"].split(", "))


@pytest.mark.parametrize(
    ("how", "status", "code", "retry_after"),
    [
        ("missing", 404, "not_found", None),
        ("database", 503, "unavailable", "3"),
        ("redis", 503, "unavailable", "3"),
        ("limit", 429, "rate_limited", "7"),
        ("bug", 500, "internal_error", None),
    ],
)
def test_failures_are_told_without_their_text(
    owner: Person, how: str, status: int, code: str, retry_after: str | None
) -> None:
    response = Client().get(f"/v1/failing/{how}", headers=bearer(owner))
    error = error_of(response, status)
    assert error["code"] == code
    assert response.headers.get("Retry-After") == retry_after
    assert error["retry_after_s"] == (int(retry_after) if retry_after else None)
    assert PRIVATE not in response.content.decode()


def test_the_first_invalid_field_is_named(owner: Person) -> None:
    response = Client().get("/v1/failing/invalid", headers=bearer(owner))
    error = error_of(response, 400)
    assert (error["param"], error["message"]) == ("parts[2].text", "Too long.")


def test_an_unexpected_error_is_logged_by_type_and_place_without_its_text(
    owner: Person, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        Client().get("/v1/failing/bug", headers=bearer(owner))
    assert "RuntimeError" in caplog.text
    assert "accounts_urls.py" in caplog.text
    assert PRIVATE not in caplog.text
    assert owner.secret not in caplog.text


def test_an_error_outside_drf_below_v1_is_json(client: Client) -> None:
    response = client.get("/v1/broken")
    assert error_of(response, 500)["code"] == "internal_error"
    assert PRIVATE not in response.content.decode()


def test_an_error_of_a_page_is_a_page(client: Client) -> None:
    response = client.get("/broken")
    assert response.status_code == 500
    assert response.headers["Content-Type"].startswith("text/html")
    assert PRIVATE not in response.content.decode()


def test_a_field_name_of_the_callers_is_cut_and_encodable(owner: Person) -> None:
    raw = json.dumps({"title": "x", "n" * 100_000: 1}).encode()
    assert len(error_of(post(owner, raw), 400)["param"]) == 200


def test_a_form_is_refused_before_the_csrf_check_reads_it(owner: Person) -> None:
    client = client_of(owner, enforce_csrf_checks=True)
    data = "a=" + "x" * (django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
    client.get("/accounts/change-password/")  # sets the CSRF cookie, so that the form is looked at
    response = client.post("/v1/things", data, content_type="application/x-www-form-urlencoded")
    error_of(response, 415)
