"""The one door through which text goes to rest and comes back.

Every `bytea` column that holds what people or models wrote is written by `seal` and read by
`open_sealed`. The first byte names the format, so that a later key or codec can be told apart.
"""

from __future__ import annotations

import uuid

FORMAT_PLAIN = b"\x00"


class Unreadable(Exception):
    """The sealed bytes cannot be opened."""


def seal(owner_id: uuid.UUID, row_id: uuid.UUID, plain: bytes) -> bytes:
    """`plain` as it is stored for this owner in this row."""
    return FORMAT_PLAIN + plain


def open_sealed(owner_id: uuid.UUID, row_id: uuid.UUID, sealed: bytes | memoryview) -> bytes:
    """What `seal` was given. Raises Unreadable for bytes of an unknown format."""
    raw = bytes(sealed)
    if raw[:1] != FORMAT_PLAIN:
        raise Unreadable("unknown format of sealed text")
    return raw[1:]
