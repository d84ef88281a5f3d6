"""PostgreSQL and Valkey from pip packages, started and stopped by us: for `make run` and the tests.

    with EmbeddedPostgres(root) as postgres, EmbeddedValkey(root) as valkey:
        connect(postgres.url, valkey.url)

Nothing here knows Django.
"""

from __future__ import annotations

from chatproject.embedded.postgres import EmbeddedPostgres
from chatproject.embedded.problems import SetupProblem
from chatproject.embedded.valkey import EmbeddedValkey

__all__ = ["EmbeddedPostgres", "EmbeddedValkey", "SetupProblem"]
