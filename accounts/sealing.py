"""The one door through which text goes to rest and comes back.

Every `bytea` column that holds what people or models wrote is written by `seal` and read by
`open_sealed`. A sealed value is

    format byte 1 | nonce, 12 bytes | AES-256-GCM of the zstd-compressed text | tag, 16 bytes

under the owner's data key. Column, owner and row are bound in: bytes that are moved to another
row, column or owner cannot be opened there. Format 0 is plain text, as the first version of the
product wrote it; it is read, and never written (`manage.py seal_texts` seals what is left).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Literal
from uuid import UUID

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from accounts import keys
from accounts.keys import KeyDestroyed, KeyLost, KeysUnavailable, Unreadable

__all__ = [
    "FORMAT_SEALED",
    "Column",
    "KeyDestroyed",
    "KeyLost",
    "KeysUnavailable",
    "Unreadable",
    "is_plain",
    "open_sealed",
    "opener",
    "seal",
]

FORMAT_PLAIN = b"\x00"
FORMAT_SEALED = b"\x01"
NONCE_BYTES = 12
COMPRESSION_LEVEL = 3

Column = Literal["title", "content", "checkpoint", "feedback", "second_factor"]
# What is bound in. A number is never used again: old rows would open as another column.
_COLUMN_BYTE: dict[Column, bytes] = {
    "title": b"\x01",
    "content": b"\x02",
    "checkpoint": b"\x03",
    "feedback": b"\x04",
    "second_factor": b"\x05",
}
_PURPOSE = b"hearth text 1 "


class _Zstd(threading.local):
    """Contexts are costly to make and belong to one thread at a time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def seal(column: Column, owner_id: UUID, row_id: UUID, plain: bytes) -> bytes:
    """`plain` as it is stored for this owner in this row; the owner's first key is made.

    Raises KeyDestroyed; KeysUnavailable or another OperationalError, and then nothing is written.
    """
    return seal_with(keys.for_sealing(owner_id), column, owner_id, row_id, plain)


def open_sealed(column: Column, owner_id: UUID, row_id: UUID, sealed: bytes | memoryview) -> bytes:
    """What `seal` was given. Raises Unreadable (KeyDestroyed, KeyLost), or as `seal`."""
    return opener(column, owner_id)(row_id, sealed)


def opener(column: Column, owner_id: UUID) -> Callable[[UUID, bytes | memoryview], bytes]:
    """`open_sealed` for many rows of one owner, whose key is looked up once.

    To be dropped with the page it opens: a key that is destroyed meanwhile still opens here.
    """
    key: AESGCM | None = None

    def open_one(row_id: UUID, sealed: bytes | memoryview) -> bytes:
        nonlocal key
        raw = bytes(sealed)
        if is_plain(raw):
            return raw[1:]
        if raw[:1] != FORMAT_SEALED:
            raise Unreadable("unknown format of sealed text")
        key = key or keys.for_opening(owner_id)
        return open_with(key, column, owner_id, row_id, raw)

    return open_one


def is_plain(raw: bytes) -> bool:
    """Whether these stored bytes are still unsealed."""
    return raw[:1] == FORMAT_PLAIN


def seal_with(key: AESGCM, column: Column, owner_id: UUID, row_id: UUID, plain: bytes) -> bytes:
    """`seal` under a key at hand."""
    nonce = os.urandom(NONCE_BYTES)
    packed = _zstd.compressor.compress(plain)
    return FORMAT_SEALED + nonce + key.encrypt(nonce, packed, _bound(column, owner_id, row_id))


def open_with(key: AESGCM, column: Column, owner_id: UUID, row_id: UUID, raw: bytes) -> bytes:
    """`open_sealed` of format 1 under a key at hand."""
    view = memoryview(raw)
    nonce, sealed = view[1 : 1 + NONCE_BYTES], view[1 + NONCE_BYTES :]
    try:
        packed = key.decrypt(nonce, sealed, _bound(column, owner_id, row_id))
    except (InvalidTag, ValueError):
        raise Unreadable("sealed for another place, or changed") from None
    # Only now: what is decompressed was written by us, whoever can write to the database.
    return _zstd.decompressor.decompress(packed)


def _bound(column: Column, owner_id: UUID, row_id: UUID) -> bytes:
    return _PURPOSE + _COLUMN_BYTE[column] + owner_id.bytes + row_id.bytes
