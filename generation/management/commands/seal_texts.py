"""`manage.py seal_texts`: seals what was stored before texts were sealed. Idempotent.

In batches, while the product runs. Each update is guarded by the bytes that were read, so a title
that is changed meanwhile, or a text that is purged, stays as it is now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand
from django.db import connection, transaction

from accounts.sealing import Column, KeyDestroyed, open_sealed, seal

BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Place:
    """One sealed column: `owner` is where the row's owner is found."""

    kind: Column
    table: str
    key: str
    column: str
    owner: str = "row.owner_id"


PLACES: Final = (
    Place("title", "conversations_conversation", "id", "title"),
    Place("content", "conversations_message", "id", "content"),
    Place("feedback", "conversations_feedback", "id", "reason", "row.user_id"),
)

_FIND = """
SELECT row.{key}, {owner}, row.{column} FROM {table} row
WHERE row.{key} > %s AND substring(row.{column} FROM 1 FOR 1) = '\\x00'::bytea
ORDER BY row.{key} LIMIT %s
"""
_REPLACE = "UPDATE {table} SET {column} = %s WHERE {key} = %s AND {column} = %s"
_FIRST = UUID(int=0)


class Command(BaseCommand):
    help = "Seal titles, messages and reasons that are still stored as plain text."

    def handle(self, *args: Any, **options: Any) -> None:
        counts = {place.kind: seal_all(place, self.stdout.write) for place in PLACES}
        sealed = {kind: number for kind, number in counts.items() if number}
        if not sealed:
            return
        words = ", ".join(f"{kind}: {number}" for kind, number in sealed.items())
        self.stdout.write(
            f"Sealed what was plain ({words}). Old versions of these rows stay in the database's "
            "files until VACUUM FULL, and in back-ups until those are gone (docs/sealing.md)."
        )


def seal_all(place: Place, say: Callable[[str], object] = lambda _: None) -> int:
    """Seal every plain value of one column; how many there were."""
    last, done = _FIRST, 0
    while True:
        rows = _plain_rows(place, last)
        if not rows:
            return done
        done += _seal_rows(place, rows)
        last = rows[-1][0]
        if len(rows) == BATCH:
            say(f"{place.kind}: {done} sealed so far")


def _plain_rows(place: Place, after: UUID) -> list[tuple[UUID, UUID, bytes]]:
    with connection.cursor() as cursor:
        cursor.execute(_sql(_FIND, place), [after, BATCH])
        return [(key, owner, bytes(value)) for key, owner, value in cursor.fetchall()]


@transaction.atomic
def _seal_rows(place: Place, rows: list[tuple[UUID, UUID, bytes]]) -> int:
    done = 0
    with connection.cursor() as cursor:
        for key, owner_id, plain in rows:
            cursor.execute(
                _sql(_REPLACE, place), [_sealed(place, owner_id, key, plain), key, plain]
            )
            done += cursor.rowcount
    return done


def _sealed(place: Place, owner_id: UUID, row_id: UUID, plain: bytes) -> bytes:
    """No bytes for the text of an owner whose key was destroyed: it was to be lost."""
    try:
        return seal(place.kind, owner_id, row_id, open_sealed(place.kind, owner_id, row_id, plain))
    except KeyDestroyed:
        return b""


def _sql(template: str, place: Place) -> str:
    return template.format(
        table=place.table,
        key=place.key,
        column=place.column,
        owner=place.owner,
    )
