"""The frames of `WS /v1/ws`: one JSON object each. What a client may say, and what it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from accounts.errors import ApiError, InvalidRequest
from accounts.parsers import parse_object
from generation.events import MAX_SEQ

MAX_FRAME_BYTES: Final = 4_096
"""What a client may send at once: all it ever says is an id and a number, or an API token."""

Type = Literal["auth", "watch", "unwatch", "stop", "ping"]

FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "auth": frozenset({"token"}),
    "watch": frozenset({"run", "after"}),
    "unwatch": frozenset({"run"}),
    "stop": frozenset({"run"}),
    "ping": frozenset(),
}


class FrameTooBig(ValueError):
    """The frame is longer than MAX_FRAME_BYTES."""


class BadFrame(ValueError):
    """The frame is none of those that a client may send. The message says why, in a few words."""


@dataclass(frozen=True, slots=True)
class ClientFrame:
    """What a client said; fields that its type does not have are empty."""

    type: Type
    run: str = ""
    after: int = 0
    token: str = ""


def parse_frame(text: str) -> ClientFrame:
    """The frame in `text`. Raises FrameTooBig or BadFrame."""
    if len(text) > MAX_FRAME_BYTES or len(raw := text.encode("utf-8")) > MAX_FRAME_BYTES:
        raise FrameTooBig
    try:
        found = parse_object(raw)
    except InvalidRequest:
        raise BadFrame("not a JSON object") from None
    kind = found.pop("type", None)
    if not isinstance(kind, str) or kind not in FIELDS:
        raise BadFrame("unknown type")
    if not found.keys() <= FIELDS[kind]:
        raise BadFrame("unknown field")
    wanted = FIELDS[kind] - {"after"}
    if any(not isinstance(found.get(name), str) for name in wanted):
        raise BadFrame("a field is missing or no text")
    return ClientFrame(kind, **_with_cursor(found))  # type: ignore[arg-type]  # one of FIELDS


def _with_cursor(found: dict[str, object]) -> dict[str, object]:
    after = found.get("after", 0)
    if type(after) is not int or not 0 <= after <= MAX_SEQ:
        raise BadFrame("after must be a seq")
    return found


# --- what the client is told ----------------------------------------------------------------------


def run_frames(run: str, chunk: bytes) -> Iterator[str]:
    """The frames of a stream, as `Viewer.take` gives them, as those of a socket.

    The data is copied as it is; comments are left out.
    """
    for frame in chunk.split(b"\n\n"):
        *before, event, data = frame.split(b"\n") if b"\n" in frame else (b"", b"")
        if data:
            cursor = before[0].removeprefix(b"id: ") if before else b""
            yield run_frame(
                run,
                cursor.decode("ascii"),
                event.removeprefix(b"event: ").decode("ascii"),
                data.removeprefix(b"data: ").decode("utf-8"),
            )


def run_frame(run: str, cursor: str, event: str, data: str) -> str:
    """One event of a run; `data` is JSON already. Without a cursor its id is null."""
    id_ = f'"{cursor}"' if cursor else "null"
    return f'{{"id":{id_},"run":"{run}","event":"{event}","data":{data}}}'


def hint_frame(data: Mapping[str, str]) -> str:
    return _frame("hint", data)


LOOK_AGAIN: Final = '{"event":"hint","data":{"kind":"look_again"}}'
"""Hints may have been lost."""

PONG: Final = '{"event":"pong"}'


def ready_frame(user: str) -> str:
    return _frame("ready", {"user": user})


def refused_frame(frame: ClientFrame, error: ApiError) -> str:
    """Why a watch or a stop was not done; its own fields say which."""
    return _frame("refused", {"type": frame.type, "run": frame.run, **error.as_dict()})


def _frame(event: str, data: Mapping[str, object]) -> str:
    return json.dumps({"event": event, "data": data}, separators=(",", ":"))
