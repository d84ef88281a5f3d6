"""Pooled connections: what the server has closed is given to nobody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.db import connection, connections
from psycopg_pool import ConnectionPool


def _in_a_thread(statement: str) -> int:
    """By a connection that is taken from the pool and given back."""

    def ask() -> int:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return int(cursor.fetchone()[0])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(ask).result()


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_the_server_has_closed_is_given_to_nobody() -> None:
    connection.ensure_connection()  # none of those that are given out below
    # In turn, so that each of the few there are has been given out.
    backends = {_in_a_thread("SELECT pg_backend_pid()") for _ in range(settings.DATABASE_POOL_SIZE)}
    with connection.cursor() as cursor:
        for backend in backends:
            cursor.execute("SELECT pg_terminate_backend(%s, 20000)", [backend])
    assert _in_a_thread("SELECT pg_backend_pid()") not in backends


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_taken_again_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point of it: no round trip of its own."""
    asked: list[object] = []
    monkeypatch.setattr(ConnectionPool, "check_connection", asked.append)
    for _ in range(5):
        _in_a_thread("SELECT pg_backend_pid()")
    assert asked == []


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_long_for_a_lock_or_holds_one_for_ever() -> None:
    shown = "SELECT setting::int FROM pg_settings WHERE name = '{}'"
    assert _in_a_thread(shown.format("lock_timeout")) == 5_000
    assert _in_a_thread(shown.format("idle_in_transaction_session_timeout")) == 30_000
