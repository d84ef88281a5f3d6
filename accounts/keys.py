"""The users' data keys: made at their first text, kept wrapped, cached for a minute, destroyed.

A key is committed in the keys database before the first text is sealed with it. The content is in
another database, so a crash in between leaves a key without text, which the next text uses.

Unwrapped keys live only in this process: a bounded cache, in which an entry is at most CACHE_S old.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from functools import lru_cache
from uuid import UUID

from cachetools import TTLCache
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.db import OperationalError, ProgrammingError, connections, transaction
from django.utils import timezone
from psycopg_pool import PoolTimeout

from accounts.key_ring import (
    KEY_BYTES,
    InvalidKeyRing,
    KeyRing,
    UnknownMasterKey,
    Wrapped,
    WrongMasterKey,
    parse_ring,
)
from accounts.keystore.models import DataKey, Destruction
from accounts.routers import KEYS

log = logging.getLogger(__name__)

CACHE_S = 60
"""A destroyed key works for so long at most, in processes other than the one that destroyed it."""

MAX_CACHED = 10_000
"""Keys in a process at once, about 1 KiB each; the one unused for longest makes room."""

LOST_S = 2
"""How long a missing key is believed to be missing: a page of texts asks once, and a key that
another process makes is soon seen."""

ROTATE_BATCH = 500


class Unreadable(Exception):
    """The sealed bytes cannot be opened, now or later."""


class KeyDestroyed(Unreadable):
    """The owner's data key was destroyed, and every text of theirs with it."""


class KeyLost(Unreadable):
    """There is no data key of this owner: another keys database, or one restored to before it."""


class KeysUnavailable(OperationalError):
    """Keys cannot be had at the moment, but nothing is lost: no master key that fits, no database.

    An OperationalError, so that it is met like any absence of a database: callers of the API hear
    503, and an answer that is being finished waits.
    """


# --- the keys of one owner ------------------------------------------------------------------------


def for_sealing(owner_id: UUID) -> AESGCM:
    """The owner's key; their first one is made. Raises KeyDestroyed, KeysUnavailable."""
    found = _cache.get(owner_id)
    if found is None or found is KeyLost:
        era = _cache.era
        found = _read(owner_id)
        if found is KeyLost:
            _make(owner_id)
            found = _read(owner_id)
        _cache.put(owner_id, found, era)
    return _key(owner_id, found)


def for_opening(owner_id: UUID) -> AESGCM:
    """The owner's key. Raises KeyDestroyed, KeyLost, KeysUnavailable."""
    found = _cache.get(owner_id)
    if found is None:
        era = _cache.era
        found = _read(owner_id)
        if found is KeyLost:
            log.error("there is no data key of %s", owner_id, extra={"action": "key_lost"})
        _cache.put(owner_id, found, era)
    return _key(owner_id, found)


def _key(owner_id: UUID, found: AESGCM | type[Unreadable]) -> AESGCM:
    if not isinstance(found, AESGCM):
        raise found(f"there is no key of {owner_id}")
    return found


def destroy(owner_id: UUID) -> bool:
    """Destroy the owner's key for good; False where it was destroyed before, or never made.

    Here it stops working at once, in other processes within CACHE_S. Nothing makes a new one.
    """
    # First beside the content: should we end between the two, repeat_destructions() goes on.
    Destruction.objects.get_or_create(owner_id=owner_id)
    now = timezone.now()
    with _database():
        # The tombstone comes first, so that a first key made at this moment is met by the update.
        tombstone = DataKey(owner_id=owner_id, destroyed_at=now)
        DataKey.objects.bulk_create([tombstone], ignore_conflicts=True)
        alive = DataKey.objects.filter(owner_id=owner_id, destroyed_at__isnull=True)
        destroyed = alive.update(wrapped=None, master_key_id="", destroyed_at=now)
    _cache.forget(owner_id)
    return bool(destroyed)


def repeat_destructions() -> int:
    """Destroy again what has come back with a restored keys database; how many there were."""
    return sum(destroy(owner_id) for owner_id in returned())


def returned() -> list[UUID]:
    """Owners whose key was to be destroyed and is there."""
    asked = list(Destruction.objects.values_list("owner_id", flat=True))
    with _database():
        alive = DataKey.objects.filter(owner_id__in=asked, destroyed_at__isnull=True)
        return list(alive.values_list("owner_id", flat=True)) if asked else []


def _read(owner_id: UUID) -> AESGCM | type[Unreadable]:
    with _database():
        row = DataKey.objects.filter(owner_id=owner_id).first()
    if row is None:
        return KeyLost
    if row.wrapped is None:
        return KeyDestroyed
    return AESGCM(_unwrap(row))


def _make(owner_id: UUID) -> None:
    """Whoever inserts first has made it; the others' random bytes are dropped."""
    fresh = ring().wrap(owner_id, os.urandom(KEY_BYTES))
    row = DataKey(owner_id=owner_id, wrapped=fresh.sealed, master_key_id=fresh.master_key_id)
    # Durable: text sealed with a key that is rolled back would be lost.
    with _database(), transaction.atomic(using=KEYS, durable=True):
        DataKey.objects.bulk_create([row], ignore_conflicts=True)


def _unwrap(row: DataKey) -> bytes:
    try:
        return ring().unwrap(row.owner_id, _wrapped(row))
    except (UnknownMasterKey, WrongMasterKey) as problem:
        log.error("a data key cannot be unwrapped: %s", problem, extra={"action": "key_unusable"})  # noqa: TRY400 — no traceback, whose frames hold keys
        raise KeysUnavailable(str(problem)) from None


def _wrapped(row: DataKey) -> Wrapped:
    return Wrapped(row.master_key_id, bytes(row.wrapped or b""))


# --- ring and database ----------------------------------------------------------------------------


def ring() -> KeyRing:
    """The ring of the settings. Raises KeysUnavailable where it cannot be used."""
    try:
        return _parsed(settings.MASTER_KEYS)
    except InvalidKeyRing as problem:
        raise KeysUnavailable(str(problem)) from None


@lru_cache(maxsize=4)
def _parsed(text: str) -> KeyRing:
    return parse_ring(text)


@contextlib.contextmanager
def _database() -> Iterator[None]:
    """The keys database, whose connection goes back to its small pool at once.

    It would else stay with the thread to the end of the request: a dozen threads would need a
    dozen connections for a look-up of a millisecond.
    """
    if KEYS not in settings.DATABASES:
        raise KeysUnavailable("KEYS_DATABASE_URL is not set.")
    try:
        yield
    except ProgrammingError:
        raise KeysUnavailable(
            "The keys database has no table yet: manage.py migrate keystore --database keys"
        ) from None
    finally:
        connection = connections[KEYS]
        if not connection.in_atomic_block:
            connection.close()


# --- the cache ------------------------------------------------------------------------------------


class _Cache:
    """What was found for an owner: the key, or why there is none. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.era = 0
        self._found: TTLCache[UUID, AESGCM | type[Unreadable]] = TTLCache(
            MAX_CACHED, CACHE_S, timer=lambda: time.monotonic()
        )
        self._lost: TTLCache[UUID, bool] = TTLCache(
            MAX_CACHED, LOST_S, timer=lambda: time.monotonic()
        )

    def get(self, owner_id: UUID) -> AESGCM | type[Unreadable] | None:
        with self._lock:
            found = self._found.get(owner_id)
            return KeyLost if found is None and owner_id in self._lost else found

    def put(self, owner_id: UUID, found: AESGCM | type[Unreadable], era: int) -> None:
        """Keep what was read, unless something was forgotten since `era`: it may be that key."""
        with self._lock:
            if era != self.era:
                return
            if found is KeyLost:
                self._lost[owner_id] = True
            else:
                self._found[owner_id] = found

    def forget(self, owner_id: UUID | None = None) -> None:
        """Forget what is known of one owner, or of all."""
        with self._lock:
            self.era += 1
            self._lost.clear()
            if owner_id is None:
                self._found.clear()
            else:
                self._found.pop(owner_id, None)


_cache = _Cache()


def forget_all() -> None:
    """Drop every unwrapped key of this process."""
    _cache.forget()


# --- rotation -------------------------------------------------------------------------------------


def rotate(batch: int = ROTATE_BATCH) -> Generator[tuple[int, int], None, None]:
    """Wrap every data key by the ring's first master key; after each batch (rewrapped, unusable).

    Each batch is a transaction of its own and each update is guarded by the old bytes, so it may
    be interrupted, repeated and run twice at once, while the product runs. Text is not touched.
    """
    last: UUID | None = None
    while True:
        with _database():
            rows = _not_current(last, batch)
            if not rows:
                return
            done = _rewrap(rows)
        last = rows[-1].owner_id
        yield done, len(rows) - done


def _not_current(after: UUID | None, batch: int) -> list[DataKey]:
    rows = DataKey.objects.filter(destroyed_at__isnull=True)
    rows = rows.exclude(master_key_id=ring().current).order_by("owner_id")
    return list((rows.filter(owner_id__gt=after) if after else rows)[:batch])


def _rewrap(rows: Iterable[DataKey]) -> int:
    """How many are wrapped by the first key now; those destroyed or rewrapped meanwhile count."""
    done = 0
    with transaction.atomic(using=KEYS):
        for row in rows:
            with contextlib.suppress(KeysUnavailable):
                fresh = ring().wrap(row.owner_id, _unwrap(row))
                unchanged = DataKey.objects.filter(owner_id=row.owner_id, wrapped=row.wrapped)
                unchanged.update(wrapped=fresh.sealed, master_key_id=fresh.master_key_id)
                done += 1
    return done


def count_by_master_key() -> dict[str, int]:
    """How many data keys each master key wraps; one that wraps none may leave the ring."""
    with _database():
        alive = DataKey.objects.filter(destroyed_at__isnull=True)
        ids = list(alive.values_list("master_key_id", flat=True).distinct())
        return {one: alive.filter(master_key_id=one).count() for one in sorted(ids)}


def ring_problem() -> str | None:
    """Why the keys in the keys database cannot be unwrapped, or None. Tries one of each id.

    Raises KeysUnavailable where there is no ring or no table, OperationalError where the database
    is away.
    """
    ring()
    try:
        with _database():
            for one in _one_of_each():
                ring().unwrap(one.owner_id, _wrapped(one))
    except (UnknownMasterKey, WrongMasterKey) as problem:
        return f"Data keys cannot be unwrapped: {problem}."
    return None


def ask() -> None:
    """Raises OperationalError where there is no ring, or where the keys database is away."""
    ring()
    with _database():
        DataKey.objects.filter(owner_id=UUID(int=0)).exists()


def has_any() -> bool:
    """Whether there ever was a key in this keys database."""
    with _database():
        return DataKey.objects.exists()


def check_at_start() -> None:
    """Raises KeysUnavailable where this process could neither seal nor open.

    A database that is away for a moment is no reason: it may be starting, too.
    """
    try:
        problem = ring_problem()
    except KeysUnavailable:
        raise
    except (OperationalError, PoolTimeout):
        log.warning("the keys database is away", extra={"action": "keys_away"})
    else:
        if problem:
            raise KeysUnavailable(problem)


def _one_of_each() -> list[DataKey]:
    alive = DataKey.objects.filter(destroyed_at__isnull=True)
    return list(alive.order_by("master_key_id", "owner_id").distinct("master_key_id"))
