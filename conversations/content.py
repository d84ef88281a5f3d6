"""The content of a message: a list of parts. Pure.

A part is `{"type": "text", "text": str}`. Stored as compact UTF-8 JSON; order and bytes are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypedDict

import orjson

ROLES = ("user", "assistant", "tool")
MAX_PARTS = 32
REPLACEMENT = "\ufffd"

# NUL cannot be stored in a PostgreSQL text; half of a surrogate pair cannot be written as UTF-8.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class TextPart(TypedDict):
    type: str
    text: str


class InvalidContent(ValueError):
    """The content cannot be stored; the message says why."""


def text_content(text: str) -> list[TextPart]:
    """One text part; no part at all for an empty text."""
    return [{"type": "text", "text": text}] if text else []


def plain_text(parts: Sequence[TextPart]) -> str:
    """All text of the parts, in order."""
    return "\n\n".join(part["text"] for part in parts if part["type"] == "text")


def clean_text(text: str) -> str:
    """The text with each NUL and each lone surrogate replaced by U+FFFD.

    For what models write, where there is nobody to refuse. Character by character, so that a text
    cleaned in pieces equals the text cleaned whole: what was streamed is what is stored.
    """
    return _UNSTORABLE.sub(REPLACEMENT, text)


def checked_content(value: object, *, max_bytes: int) -> list[TextPart]:
    """What a client sent as `content` (a string, or a list of text parts), checked.

    Raises InvalidContent when it is empty, too long in UTF-8 bytes, of an unknown type, or holds
    a NUL or half of a surrogate pair (neither can be stored or sent as UTF-8 text).
    """
    parts = _parts(value)
    size = sum(len(_checked_text(part["text"])) for part in parts)
    if size > max_bytes:
        raise InvalidContent(f"The message is {size} bytes long; {max_bytes} are allowed.")
    if not any(part["text"].strip() for part in parts):
        raise InvalidContent("The message is empty.")
    return parts


def _parts(value: object) -> list[TextPart]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise InvalidContent("Content must be a text, or a list of parts.")
    if len(value) > MAX_PARTS:
        raise InvalidContent(f"At most {MAX_PARTS} parts are allowed.")
    return [_part(item) for item in value]


def _part(item: object) -> TextPart:
    if not isinstance(item, dict) or item.get("type") != "text":
        raise InvalidContent('Each part must be {"type": "text", "text": …}.')
    if set(item) != {"type", "text"} or not isinstance(item["text"], str):
        raise InvalidContent('Each part must be {"type": "text", "text": …} and nothing else.')
    return {"type": "text", "text": item["text"]}


def _checked_text(text: str) -> bytes:
    if "\x00" in text:
        raise InvalidContent("The text holds a NUL character (U+0000), which cannot be stored.")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidContent("The text holds half of a surrogate pair.") from None


def encode_parts(parts: Sequence[TextPart]) -> bytes:
    """The parts as they are sealed: compact UTF-8 JSON."""
    return orjson.dumps(list(parts))


def decode_parts(raw: bytes) -> list[TextPart]:
    """The inverse of `encode_parts`."""
    parts: list[TextPart] = orjson.loads(raw)
    return parts
