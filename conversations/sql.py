"""Statements written by hand, for the reads that everybody waits for.

Django's cursor takes values as text: every byte of a text as two digits, every time parsed in
Python. The path of a hundred messages took 3 ms so, and takes 1.4 in PostgreSQL's binary format,
which compiled code reads; everything else (errors, wrappers, the log of
queries) is Django's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg import Cursor
from psycopg.pq import Format


def rows(sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of one statement, its values bound by the server. Raises Django's database errors.

    A value whose type PostgreSQL cannot tell from its place needs a cast in `sql`.
    """
    connection.ensure_connection()
    cursor: Any = Cursor(connection.connection)
    cursor.format = Format.BINARY
    make = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    with make(cursor) as wrapped:
        wrapped.execute(sql, values)
        found: list[tuple[Any, ...]] = wrapped.fetchall()
    return found


# Array literals, because the driver looks at every element on its own: for 400 of them that took
# longer than the query itself.


def uuid_array(ids: Iterable[UUID | None]) -> str:
    """A uuid[] literal."""
    return "{" + ",".join(one.hex if one else "NULL" for one in ids) + "}"


def name_array(names: Iterable[str]) -> str:
    """A text[] literal of names of ours: letters only, so that none needs quotes."""
    return "{" + ",".join(names) + "}"
