"""Launch profiles: where engines are and what they may be asked.

They come from the environment (`ENGINE_PROFILES`, a JSON object by profile name), never from the
database, so that no administrator's row can point a worker at another host or hold a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeGuard, cast
from urllib.parse import urlsplit

from generation.engines.llamacpp import LlamaCppEngine
from generation.engines.openai import OpenAIEngine
from generation.engines.protocol import UNIX_SCHEME, Engine, EngineKind, EngineProfile
from generation.engines.serve import parse_serve
from generation.engines.simulated import SimulatedEngine
from generation.engines.vllm import VllmEngine

PROFILES_BYTES_MAX = 256 * 1024
CONTEXT_TOKENS_MAX = 16 * 1024 * 1024
SLOTS_MAX = 4096
SILENCE_S_MAX = 3600

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEYS = frozenset(
    {"kind", "url", "api_key", "model", "context_tokens", "slots", "silence_s", "options", "serve"}
)
# What the kernel takes for a unix socket's name, less the byte that ends it.
SOCKET_BYTES_MAX = 107


__all__ = ["EngineProfile", "InvalidProfiles", "build_engine", "parse_profiles"]


class InvalidProfiles(ValueError):
    """ENGINE_PROFILES is wrong; the message says which profile and which key, never a value."""


def parse_profiles(text: str) -> dict[str, EngineProfile]:
    """Profiles by name from the JSON of ENGINE_PROFILES; empty text means none.

    Raises `InvalidProfiles`.
    """
    if not text.strip():
        return {}
    if len(text.encode("utf-8", "replace")) > PROFILES_BYTES_MAX:
        raise InvalidProfiles(f"ENGINE_PROFILES is larger than {PROFILES_BYTES_MAX} bytes.")
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        # `from None`: the JSON error carries the whole document, keys included.
        at = f" (position {error.pos})" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidProfiles(f"ENGINE_PROFILES is not valid JSON{at}.") from None
    if not isinstance(loaded, dict):
        raise InvalidProfiles("ENGINE_PROFILES must be a JSON object of profiles by name.")
    return {name: _profile(name, entry) for name, entry in loaded.items()}


def _profile(name: str, entry: object) -> EngineProfile:
    if not _NAME.fullmatch(name):
        raise InvalidProfiles(
            f"Profile name {name[:64]!r} may have only letters, digits, '.', '_', '-' (1 to 64)."
        )
    if not isinstance(entry, dict):
        raise InvalidProfiles(f"Profile {name!r} must be a JSON object.")
    if unknown := sorted(set(entry) - _KEYS):
        raise InvalidProfiles(f"Profile {name!r} has the unknown key {unknown[0][:64]!r}.")
    kind = entry.get("kind")
    if not _is_kind(kind):
        raise InvalidProfiles(
            f"Profile {name!r}: 'kind' must be one of {', '.join(sorted(_BUILDERS))}."
        )
    profile = EngineProfile(
        name=name,
        kind=kind,
        url=_url(name, kind, _text(name, entry, "url")),
        api_key=_api_key(name, _text(name, entry, "api_key")),
        model=_text(name, entry, "model"),
        context_tokens=_count(
            name, entry, "context_tokens", EngineProfile.context_tokens, CONTEXT_TOKENS_MAX
        ),
        slots=_count(name, entry, "slots", EngineProfile.slots, SLOTS_MAX),
        options=_options(name, entry),
        silence_s=_silence_s(name, entry),
    )
    return _with_serve(profile, entry["serve"]) if "serve" in entry else profile


def _with_serve(profile: EngineProfile, serve: object) -> EngineProfile:
    """Only at a socket of our own: at a port, another program's server could be taken for ours."""
    if profile.kind != "vllm" or profile.socket is None:
        raise InvalidProfiles(
            f"Profile {profile.name!r}: 'serve' is for the kind vllm, at a url like"
            " unix:///run/hearth/engine.sock."
        )
    try:
        return replace(profile, serve=parse_serve(serve))
    except ValueError as error:
        raise InvalidProfiles(f"Profile {profile.name!r}: {error}") from None


def _is_kind(kind: object) -> TypeGuard[EngineKind]:
    return isinstance(kind, str) and kind in _BUILDERS


def _text(name: str, entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise InvalidProfiles(f"Profile {name!r}: {key!r} must be a string.")
    return value


def _count(name: str, entry: Mapping[str, Any], key: str, default: int, largest: int) -> int:
    value = entry.get(key, default)
    # bool is an int to Python; `"slots": true` is a mistake all the same.
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
        raise InvalidProfiles(f"Profile {name!r}: {key!r} must be a whole number, 1 to {largest}.")
    return value


def _silence_s(name: str, entry: Mapping[str, Any]) -> float | None:
    value = entry.get("silence_s")
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 1 <= value <= SILENCE_S_MAX:
        raise InvalidProfiles(f"Profile {name!r}: 'silence_s' must be 1 to {SILENCE_S_MAX}.")
    return float(value)


def _api_key(name: str, api_key: str) -> str:
    # A key with a line end or a non-ASCII letter fails only at the first request, as a header
    # error whose text holds the key.
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise InvalidProfiles(f"Profile {name!r}: 'api_key' must be printable ASCII.")
    return api_key


def _url(name: str, kind: EngineKind, url: str) -> str:
    if kind == "simulated":
        return url
    if kind == "vllm" and url.startswith(UNIX_SCHEME):
        return _socket_url(name, url)
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.username or parts.query or parts.fragment:
        raise InvalidProfiles(
            f"Profile {name!r}: 'url' must look like http://host:port, without user or query"
            f"{' (or unix:///path)' if kind == 'vllm' else ''}."
        )
    return url.rstrip("/").removesuffix("/v1")


def _socket_url(name: str, url: str) -> str:
    path = url.removeprefix(UNIX_SCHEME)
    plain = path.startswith("/") and path.isprintable() and not path.endswith("/")
    if not plain or len(path.encode("utf-8", "replace")) > SOCKET_BYTES_MAX:
        raise InvalidProfiles(
            f"Profile {name!r}: 'url' must be unix:// and an absolute path of at most"
            f" {SOCKET_BYTES_MAX} bytes."
        )
    return url


def _options(name: str, entry: Mapping[str, Any]) -> Mapping[str, object]:
    options = entry.get("options", {})
    if not isinstance(options, dict):
        raise InvalidProfiles(f"Profile {name!r}: 'options' must be a JSON object.")
    return MappingProxyType(cast("dict[str, object]", options))


def build_engine(profile: EngineProfile) -> Engine:
    """The adapter for a profile; raises `InvalidProfiles` for options it cannot use."""
    try:
        return _BUILDERS[profile.kind](profile)
    except ValueError as error:
        raise InvalidProfiles(f"Profile {profile.name!r}: {error}") from None


_BUILDERS: Mapping[EngineKind, Callable[[EngineProfile], Engine]] = {
    "llamacpp": LlamaCppEngine,
    "openai": OpenAIEngine,
    "simulated": SimulatedEngine,
    "vllm": VllmEngine,
}
