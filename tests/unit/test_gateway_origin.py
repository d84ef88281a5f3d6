"""Which pages may open a socket with a cookie."""

from __future__ import annotations

from typing import Any

import pytest
from django.middleware.csrf import CsrfViewMiddleware

from generation.gateway import origin as origin_room
from generation.gateway.origin import is_own_origin

HOST = "chat.example.org"

# (Origin, scheme of the connection, what a proxy says) and whether it is ours.
CASES = [
    (f"http://{HOST}", "ws", "", True),
    (f"https://{HOST}", "wss", "", True),
    (f"https://{HOST}", "ws", "https", True),
    ("https://trusted.example.org", "ws", "", True),
    ("https://any.trusted.example.net", "ws", "", True),
    (None, "ws", "", False),
    ("", "ws", "", False),
    ("null", "ws", "", False),
    (f"https://{HOST}", "ws", "", False),
    (f"http://{HOST}", "ws", "https", False),
    (f"http://{HOST}:8000", "ws", "", False),
    (f"http://{HOST}.evil.example", "ws", "", False),
    (f"http://evil.example/{HOST}", "ws", "", False),
    (f"http://{HOST}@evil.example", "ws", "", False),
    ("https://evil.example", "ws", "", False),
    ("http://trusted.example.org", "ws", "", False),
    ("http://[", "ws", "", False),
    ("\x00", "ws", "", False),
]


def _scope(origin: str | None, scheme: str, proxy: str, host: str = HOST) -> dict[str, Any]:
    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if proxy:
        headers.append((b"x-forwarded-proto", proxy.encode()))
    return {"type": "websocket", "path": "/v1/ws", "scheme": scheme, "headers": headers}


@pytest.fixture(autouse=True)
def addresses(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # A check of our own: Django keeps what it has read of the settings.
    check = CsrfViewMiddleware(lambda _request: None)  # type: ignore[arg-type]
    monkeypatch.setattr(origin_room, "_check", check)
    settings.ALLOWED_HOSTS = [HOST]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.CSRF_TRUSTED_ORIGINS = [
        "https://trusted.example.org",
        "https://*.trusted.example.net",
    ]


@pytest.mark.parametrize(("origin", "scheme", "proxy", "ours"), CASES)
def test_origins(origin: str | None, scheme: str, proxy: str, ours: bool) -> None:
    assert is_own_origin(_scope(origin, scheme, proxy)) is ours


def test_a_host_that_is_not_ours_makes_no_origin_ours() -> None:
    assert not is_own_origin(_scope("http://evil.example", "ws", "", host="evil.example"))


def test_a_proxy_is_believed_only_where_the_settings_say_so(settings: Any) -> None:
    settings.SECURE_PROXY_SSL_HEADER = None
    assert not is_own_origin(_scope(f"https://{HOST}", "ws", "https"))
