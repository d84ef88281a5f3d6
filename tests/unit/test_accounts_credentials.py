"""Reading credentials and addresses from requests: no database needed."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from accounts import tokens
from accounts.authentication import bearer_secret, credential_of_request, session_ref
from accounts.rate_limits import client_address


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        ("Bearer t_x", "t_x"),
        ("bearer  t_x ", "t_x"),
        ("BEARER t_x", "t_x"),
        ("Bearer", ""),
        ("Bearer a b", "a b"),
        ("Basic t_x", None),
        ("t_x", None),
        ("", None),
    ],
)
def test_the_secret_is_what_stands_after_bearer(header: str, secret: str | None) -> None:
    assert bearer_secret(header) == secret


@given(st.binary(max_size=100))
def test_no_cookie_breaks_the_reading_of_headers(raw: bytes) -> None:
    # Without a session key of the right shape no database is asked (there is none here).
    assert credential_of_request([(b"cookie", raw), (b"cookie", b"a=" + raw)]) is None


def test_secrets_are_long_unlike_and_shaped() -> None:
    made = {tokens.new_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(len(secret) == 45 and secret.startswith("t_") for secret in made)


@given(st.text(max_size=50))
def test_any_text_has_a_digest(text: str) -> None:
    assert len(tokens.digest(text)) == 32


def test_a_session_is_named_without_its_key() -> None:
    assert session_ref("a" * 32) != session_ref("b" * 32)
    assert "a" * 32 not in session_ref("a" * 32)


@pytest.mark.parametrize(
    ("trusted", "forwarded", "address"),
    [
        (0, None, "192.0.2.1"),
        (0, "203.0.113.9", "192.0.2.1"),
        (1, None, "192.0.2.1"),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "1.1.1.1, 203.0.113.9", "203.0.113.9"),
        (2, "1.1.1.1, 203.0.113.9, 198.51.100.7", "203.0.113.9"),
        (2, "203.0.113.9", "192.0.2.1"),
        (1, "nonsense", "unknown"),
        (1, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        (1, "::ffff:203.0.113.9", "203.0.113.9"),
    ],
)
def test_the_clients_address_is_what_our_own_proxies_saw(
    settings: Any, trusted: int, forwarded: str | None, address: str
) -> None:
    settings.TRUSTED_PROXY_COUNT = trusted
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    request = RequestFactory().get("/", headers=headers, REMOTE_ADDR="192.0.2.1")
    assert client_address(request) == address


def test_a_unix_socket_has_no_address() -> None:
    request = RequestFactory().get("/")
    del request.META["REMOTE_ADDR"]
    assert client_address(request) == "unknown"
