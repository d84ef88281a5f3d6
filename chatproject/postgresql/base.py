"""Django's PostgreSQL backend, whose pool gives out connections without asking the server first.

Django's own check (`CONN_HEALTH_CHECKS`) is a round trip each time a connection is taken, five for
an answer. A server that restarted, or closed a connection, has said so: the socket can be read,
which costs nothing to see. Only then is the server asked. One that has vanished says nothing to
either check; for that there are time-outs.
"""

from __future__ import annotations

import select
from typing import Any, Final

from django.db.backends.postgresql import base
from psycopg import Connection, OperationalError
from psycopg_pool import ConnectionPool

LOCK_TIMEOUT_S: Final = 5
"""Rows are locked for milliseconds. Whoever waits longer waits for a process that stands still."""

STALLED_TRANSACTION_S: Final = 30
"""Then its connection is closed: a frozen worker must not hold rows that others need to go on."""

_TIMEOUTS: Final = (
    f"SET lock_timeout = '{LOCK_TIMEOUT_S}s';"
    f"SET idle_in_transaction_session_timeout = '{STALLED_TRANSACTION_S}s'"
)


class DatabaseWrapper(base.DatabaseWrapper):
    """See the module. `CONN_HEALTH_CHECKS` stays off."""

    def _configure_connection(self, connection: Connection[Any]) -> bool:
        """Once for each connection that is made, with time-outs for locks and for transactions that
        go no further; not in the connection's options, which poolers refuse."""
        django: Any = super()  # its types do not know of it
        django._configure_connection(connection)
        with connection.cursor() as cursor:
            cursor.execute(_TIMEOUTS)
        return True

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A connection that the server has not closed. Raises Django's OperationalError."""
        connection = super().get_new_connection(conn_params)
        while self.pool is not None and not is_usable(connection):
            # The pool makes another in its place, and waits for it as long as it may.
            connection.close()
            self.pool.putconn(connection)
            connection = super().get_new_connection(conn_params)
        return connection


def is_usable(connection: Connection[Any]) -> bool:
    """Whether the server still listens there, as far as it has told."""
    if connection.closed:
        return False
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    if not waiting.poll(0):
        return True
    try:
        ConnectionPool.check_connection(connection)
    except OperationalError:
        return False
    return True
