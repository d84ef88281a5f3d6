"""Requests as bytes; the connection ends with their answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping


def get(path: str, token: str = "") -> str:
    """A stream to be read."""
    return _head(f"GET {path}", token, []) + "\r\n\r\n"


def post(path: str, token: str, body: Mapping[str, object], *, keyed: bool = True) -> str:
    """A request whose answer is a stream, with a key of its own as the page has; or without, as
    programs often have none."""
    content = json.dumps(body)
    more = ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    if keyed:
        more.append(f"Idempotency-Key: {uuid.uuid4().hex}")
    return _head(f"POST {path}", token, more) + f"\r\n\r\n{content}"


def _head(call: str, token: str, more: list[str]) -> str:
    head = [f"{call} HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream", "Connection: close"]
    return "\r\n".join([*head, *([f"Authorization: Bearer {token}"] if token else []), *more])
