"""The ring of master keys, which wrap the users' data keys. Pure.

`MASTER_KEYS` = `id:base64,id:base64`, 32 random bytes each. The first key wraps; all unwrap, each
what carries its id. See docs/sealing.md.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
MAX_KEYS = 16
# Of 32 random bytes fewer than so many differ once in 10^20 keys; a typed phrase or zeros do.
MIN_DIFFERENT_BYTES = 16

_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PURPOSE = b"hearth data key 1 "


class InvalidKeyRing(ValueError):
    """MASTER_KEYS cannot be used; the message says why, and quotes no key."""


class UnknownMasterKey(Exception):
    """The ring has no key of that id."""


class WrongMasterKey(Exception):
    """The ring's key of that id is not the one that wrapped this, or the bytes were changed."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A data key as it is stored: nonce, ciphertext and tag, and which master key opens it."""

    master_key_id: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Master keys by id. `current` is the id of the one that wraps."""

    current: str
    _keys: Mapping[str, AESGCM] = field(repr=False)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def wrap(self, owner_id: UUID, data_key: bytes) -> Wrapped:
        """The data key, bound to its owner and to the master key's id."""
        nonce = os.urandom(NONCE_BYTES)
        bound = _bound(owner_id, self.current)
        return Wrapped(
            self.current, nonce + self._keys[self.current].encrypt(nonce, data_key, bound)
        )

    def unwrap(self, owner_id: UUID, wrapped: Wrapped) -> bytes:
        """What `wrap` was given. Raises UnknownMasterKey, WrongMasterKey."""
        key = self._keys.get(wrapped.master_key_id)
        if key is None:
            raise UnknownMasterKey(f"MASTER_KEYS has no key {wrapped.master_key_id!r}")
        nonce, sealed = wrapped.sealed[:NONCE_BYTES], wrapped.sealed[NONCE_BYTES:]
        try:
            return key.decrypt(nonce, sealed, _bound(owner_id, wrapped.master_key_id))
        except (InvalidTag, ValueError):
            raise WrongMasterKey(
                f"the key {wrapped.master_key_id!r} in MASTER_KEYS is not the one that was used"
            ) from None


def _bound(owner_id: UUID, master_key_id: str) -> bytes:
    return _PURPOSE + owner_id.bytes + master_key_id.encode()


def parse_ring(text: str) -> KeyRing:
    """The ring that MASTER_KEYS describes. Raises InvalidKeyRing."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise InvalidKeyRing("MASTER_KEYS is empty: users' texts can be neither sealed nor opened.")
    if len(entries) > MAX_KEYS:
        raise InvalidKeyRing(f"MASTER_KEYS has more than {MAX_KEYS} keys.")
    keys: dict[str, AESGCM] = {}
    for place, entry in enumerate(entries, start=1):
        key_id, key = _parse_entry(place, entry)
        if key_id in keys:
            raise InvalidKeyRing(f"MASTER_KEYS has two keys of the id {key_id!r}.")
        keys[key_id] = AESGCM(key)
    return KeyRing(next(iter(keys)), keys)


def _parse_entry(place: int, entry: str) -> tuple[str, bytes]:
    """The place, never the entry, is quoted: a key without its id would end in a log."""
    key_id, colon, encoded = entry.partition(":")
    if not colon or not _ID.fullmatch(key_id):
        raise InvalidKeyRing(
            f"Entry {place} of MASTER_KEYS is not id:base64 "
            "(an id has 1 to 32 letters, digits, - and _)."
        )
    try:
        key = base64.b64decode(encoded.strip().translate({45: "+", 95: "/"}), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidKeyRing(f"The key {key_id!r} in MASTER_KEYS is not base64.") from None
    if len(key) != KEY_BYTES:
        raise InvalidKeyRing(
            f"The key {key_id!r} in MASTER_KEYS has {len(key)} bytes instead of {KEY_BYTES}."
        )
    if len(set(key)) < MIN_DIFFERENT_BYTES:
        raise InvalidKeyRing(f"The key {key_id!r} in MASTER_KEYS is not random.")
    return key_id, key


def new_entry(key_id: str) -> str:
    """A new master key as an entry of MASTER_KEYS. Raises InvalidKeyRing for an impossible id."""
    entry = f"{key_id}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"
    parse_ring(entry)
    return entry
