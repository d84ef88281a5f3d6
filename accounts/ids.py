"""Ids: UUIDv7 in the database, a prefix and 32 hex digits outside."""

from __future__ import annotations

import re
import uuid
from typing import Literal

import uuid_utils.compat

Prefix = Literal["c", "m", "g", "a", "t", "u"]
"""conversation, message, run, attachment, API token, user."""

_HEX = re.compile(r"[0-9a-f]{32}", re.ASCII)


class InvalidId(ValueError):
    """The text is not an id of the wanted kind."""


def new_id() -> uuid.UUID:
    """A UUIDv7: sorts by creation time, and rises within one process."""
    return uuid_utils.compat.uuid7()


def external_id(prefix: Prefix, row_id: uuid.UUID) -> str:
    """The id as clients see it, e.g. `c_0193a0…` (34 characters)."""
    return f"{prefix}_{row_id.hex}"


def parse_id(prefix: Prefix, text: object) -> uuid.UUID:
    """The id inside `text`. Raises InvalidId for another kind of id or anything else."""
    if not isinstance(text, str) or text[:2] != f"{prefix}_" or not _HEX.fullmatch(text[2:]):
        raise InvalidId(f"not an id that begins with {prefix}_")
    return uuid.UUID(hex=text[2:])
