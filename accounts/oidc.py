"""Identity providers from the environment: what OIDC_PROVIDERS may hold. Pure.

[{"id": "corp", "name": "Corp", "server_url": "https://id.corp.example", "client_id": "…",
  "client_secret": "…", "sign_up": true, "link_by_email": true}]
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
AUTH_METHODS = ("client_secret_basic", "client_secret_post")
# field → (types, required)
FIELDS: dict[str, tuple[tuple[type, ...], bool]] = {
    "id": ((str,), True),
    "name": ((str,), True),
    "server_url": ((str,), True),
    "client_id": ((str,), True),
    "client_secret": ((str,), False),
    "client_secret_file": ((str,), False),
    "sign_up": ((bool,), False),
    "trust_email": ((bool, list), False),
    "link_by_email": ((bool,), False),
    "scopes": ((list,), False),
    "uid_field": ((str,), False),
    "token_auth_method": ((str,), False),
}
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)


class InvalidProviders(ValueError):
    """OIDC_PROVIDERS cannot be used; the text says where and why."""


def parse_providers(text: str) -> list[dict[str, Any]]:
    """The providers as django-allauth's `APPS` take them. Raises InvalidProviders."""
    try:
        given = json.loads(text or "[]")
    except ValueError as error:
        raise InvalidProviders(f"OIDC_PROVIDERS is not JSON: {error}.") from None
    if not isinstance(given, list):
        raise InvalidProviders("OIDC_PROVIDERS must be a JSON list of providers.")
    apps = [_app(entry, f"OIDC_PROVIDERS[{index}]") for index, entry in enumerate(given)]
    names = [app["provider_id"] for app in apps]
    if len(set(names)) < len(names):
        raise InvalidProviders("OIDC_PROVIDERS: two providers have the same id.")
    return apps


def _app(entry: object, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise InvalidProviders(f"{where} must be an object.")
    _check_fields(entry, where)
    _check_values(entry, where)
    settings: dict[str, Any] = {"server_url": entry["server_url"].rstrip("/")}
    renamed = {
        "sign_up": "sign_up",
        "trust_email": "verified_email",
        "link_by_email": "email_authentication",
        "scopes": "scope",
        "uid_field": "uid_field",
        "token_auth_method": "token_auth_method",
    }
    settings |= {ours: entry[name] for name, ours in renamed.items() if name in entry}
    return {
        "provider_id": entry["id"],
        "name": entry["name"],
        "client_id": entry["client_id"],
        "secret": _secret(entry, where),
        "settings": settings,
    }


def _check_fields(entry: dict[str, Any], where: str) -> None:
    for name in entry:
        if name not in FIELDS:
            known = ", ".join(FIELDS)
            raise InvalidProviders(f"{where} has an unknown field {name!r}; known are {known}.")
    for name, (types, required) in FIELDS.items():
        if required and not entry.get(name):
            raise InvalidProviders(f"{where} lacks {name!r}.")
        if name in entry and not isinstance(entry[name], types):
            kinds = " or ".join(kind.__name__ for kind in types)
            raise InvalidProviders(f"{where}: {name!r} must be a {kinds}.")


def _check_values(entry: dict[str, Any], where: str) -> None:
    if not _ID.fullmatch(entry["id"]):
        raise InvalidProviders(
            f"{where}: 'id' stands in addresses: a-z, 0-9 and -, at most 40 characters."
        )
    address = urlsplit(entry["server_url"])
    if not address.hostname or address.scheme not in ("http", "https"):
        raise InvalidProviders(f"{where}: 'server_url' must begin with https://.")
    if address.scheme == "http" and address.hostname not in LOCAL:
        raise InvalidProviders(
            f"{where}: 'server_url' must begin with https://; plain http only on this machine."
        )
    if entry.get("token_auth_method", AUTH_METHODS[0]) not in AUTH_METHODS:
        raise InvalidProviders(f"{where}: 'token_auth_method' is one of {', '.join(AUTH_METHODS)}.")
    for name in ("scopes", "trust_email"):
        if isinstance(entry.get(name), list) and not all(
            isinstance(part, str) for part in entry[name]
        ):
            raise InvalidProviders(f"{where}: {name!r} must be a list of texts.")
    if "scopes" in entry and "openid" not in entry["scopes"]:
        raise InvalidProviders(f"{where}: 'scopes' must hold 'openid'.")


def _secret(entry: dict[str, Any], where: str) -> str:
    file = entry.get("client_secret_file")
    if not file:
        return str(entry.get("client_secret", ""))
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise InvalidProviders(
            f"{where}: 'client_secret_file' cannot be read: {error.strerror}."
        ) from None
