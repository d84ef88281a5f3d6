"""Statements written by hand, for what everybody waits for: pages that are read, and every answer.

Django's cursor takes values as text: every byte of a text as two digits, every time parsed in
Python. The path of a hundred messages took 3 ms so, and takes 1.4 in PostgreSQL's binary format,
which compiled code reads; everything else (errors, wrappers, the log of queries) is Django's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import JSONField, Model
from psycopg import Cursor
from psycopg.pq import Format
from psycopg.types.json import Jsonb

M = TypeVar("M", bound=Model)


def rows(sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of one statement, its values bound by the server. Raises Django's database errors.

    A value whose type PostgreSQL cannot tell from its place needs a cast in `sql`.
    """
    return later(sql, values)()


Later = Callable[[], list[tuple[Any, ...]]]
"""Gives the rows of a statement, once; what is wrong with it, or was before it, is raised here."""


def later(sql: str, values: Mapping[str, Any]) -> Later:
    """`rows` that are asked for now and waited for when they are wanted: inside `pipeline`."""
    wrapped = _executed(sql, values)

    def fetch() -> list[tuple[Any, ...]]:
        with wrapped:
            return wrapped.fetchall()  # type: ignore[no-any-return]

    return fetch


def run(sql: str, values: Mapping[str, Any]) -> None:
    """A statement whose rows nobody wants. Inside `pipeline` what is wrong is raised at its end."""
    _executed(sql, values).close()


def _executed(sql: str, values: Mapping[str, Any]) -> Any:
    connection.ensure_connection()
    cursor: Any = Cursor(connection.connection)
    cursor.format = Format.BINARY
    make = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    wrapped = make(cursor)
    wrapped.execute(sql, values)
    return wrapped


@contextmanager
def pipeline() -> Iterator[None]:
    """What is executed inside does not wait for what was before it; who wants rows does.

    A round trip costs more than most statements. Each statement sees what was committed when it
    begins, as outside: behind one that waited for a lock, what the other one wrote. Use it inside a
    transaction, so that this is committed when all has gone well.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield


# --- rows of models -------------------------------------------------------------------------------


@cache
def columns(model: type[Model], alias: str, but: str = "") -> str:
    """The model's columns for a SELECT, as `instance` takes them; `but` one that is not loaded."""
    return ", ".join(f'{alias}."{field.column}"' for field in _fields(model) if field.name != but)


def instance(model: type[M], values: Sequence[Any], but: str = "") -> M:
    """The object that the ORM would have made of these columns.

    For models whose fields come as PostgreSQL has them, which is all that are read so.
    """
    return model.from_db("default", _names(model, but), values)


def insert(row: Model) -> None:
    """Insert a new object, all its columns, no signal. Raises Django's database errors."""
    model = type(row)
    values = {name: getattr(row, name) for name in _names(model)}
    run(_insert(model), values | {name: Jsonb(values[name]) for name in _json_names(model)})
    row._state.adding = False


@cache
def _insert(model: type[Model]) -> str:
    fields = _fields(model)
    given = ", ".join(f'"{field.column}"' for field in fields)
    values = ", ".join(f"%({field.attname})s" for field in fields)
    return f'INSERT INTO "{model._meta.db_table}" ({given}) VALUES ({values})'  # noqa: S608 — names of our own


@cache
def _json_names(model: type[Model]) -> tuple[str, ...]:
    fields = _fields(model)
    return tuple(field.attname for field in fields if isinstance(field, JSONField))


@cache
def _names(model: type[Model], but: str = "") -> tuple[str, ...]:
    return tuple(field.attname for field in _fields(model) if field.name != but)


def _fields(model: type[Model]) -> Sequence[Any]:
    return model._meta.concrete_fields


def width(model: type[Model]) -> int:
    """How many columns that are."""
    return len(_names(model))


# --- lists as values ------------------------------------------------------------------------------
# Array literals, because the driver looks at every element on its own: for 400 of them that took
# longer than the query itself.


def uuid_array(ids: Iterable[UUID | None]) -> str:
    """A uuid[] literal."""
    return "{" + ",".join(one.hex if one else "NULL" for one in ids) + "}"


def name_array(names: Iterable[str]) -> str:
    """A text[] literal of names of ours: letters only, so that none needs quotes."""
    return "{" + ",".join(names) + "}"
