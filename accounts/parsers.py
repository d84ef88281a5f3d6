"""What the API reads and writes: bounded, strict JSON in; JSON (or an event stream) out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, NoReturn

from django.conf import settings
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from accounts.errors import BodyTooLarge, InvalidRequest

MAX_DEPTH = 64
"""Levels of lists and objects. A tool's schema needs about 20; recursive code ends near 1,000."""
MAX_VALUES = 20_000
"""Values in one body. Text needs few; a megabyte of empty lists would cost a second of CPU."""

# A string to its end, or to the end of a body that breaks off in it. It fits at every quote and
# never goes back, so it is linear in whatever is sent.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.?+)*+"?', re.DOTALL)


class BoundedJSONParser(BaseParser):
    """A JSON object of at most `settings.MAX_BODY_BYTES` bytes, or a clear refusal."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return parse_object(_read_bounded(stream, settings.MAX_BODY_BYTES))


class JsonOrEventStream(DefaultContentNegotiation):
    """The first renderer, whatever Accept says: who asks for event streams must get errors too."""

    def select_renderer(  # type: ignore[override]
        self, request: Request, renderers: Sequence[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], str(renderers[0].media_type)


def accepts_event_stream(request: Request) -> bool:
    """Whether Accept names `text/event-stream` (with any q but 0); `*/*` does not name it."""
    return any(
        entry.main_type == "text" and entry.sub_type == "event-stream"
        for entry in request._request.accepted_types
    )


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`. Raises InvalidRequest that says what is wrong.

    Stricter than `json`: no NaN and no number beyond a float, no key twice (which of the two would
    count?), no lone surrogate in a key, at most MAX_DEPTH levels and MAX_VALUES values.
    """
    _refuse_too_many(raw)
    value = _loads(raw)
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
    if _is_deeper_than(value, MAX_DEPTH):
        raise _too_deep()
    return value


def has_lone_surrogate(text: str) -> bool:
    """Whether `text` holds half of a character (from `"\\ud800"` in JSON): no UTF-8 can hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _read_bounded(stream: IO[bytes], limit_bytes: int) -> bytes:
    raw = stream.read(limit_bytes + 1)
    if len(raw) > limit_bytes:
        raise BodyTooLarge(f"The request body is larger than {limit_bytes} bytes.")
    return raw


def _refuse_too_many(raw: bytes) -> None:
    """Counted before anything is built: every value but the first follows one of these signs."""
    signs = _STRING.sub(b"", raw)
    if sum(signs.count(sign) for sign in (b",", b"[", b"{")) > MAX_VALUES:
        raise InvalidRequest(f"The body has more than {MAX_VALUES} values.", code="invalid_json")


def _loads(raw: bytes) -> Any:
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise InvalidRequest("The body is not valid UTF-8.", code="invalid_json") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise InvalidRequest(f"Not valid JSON, {where}.", code="invalid_json") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # an integer of more digits than Python reads
        raise InvalidRequest("A number in the body is too large.", code="invalid_json") from error


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InvalidRequest("This key is there twice.", code="invalid_json", param=key)
        if has_lone_surrogate(key):
            raise InvalidRequest("A key contains a lone surrogate.", code="invalid_json")
        result[key] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"{name} is not JSON.", code="invalid_json")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidRequest("A number in the body is too large.", code="invalid_json")
    return number


def _too_deep() -> InvalidRequest:
    return InvalidRequest(
        f"The body is nested more than {MAX_DEPTH} levels deep.", code="invalid_json"
    )


def _is_deeper_than(value: object, limit: int) -> bool:
    """Level by level, without recursion."""
    level: list[object] = [value]
    for _ in range(limit):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: object) -> list[object]:
    if isinstance(node, dict):
        return [child for child in node.values() if isinstance(child, (dict, list))]
    if isinstance(node, list):
        return [child for child in node if isinstance(child, (dict, list))]
    return []
