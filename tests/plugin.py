"""Starts one PostgreSQL and one Valkey for the test run, before Django reads its settings.

A run that names only `tests/unit` needs neither: then the addresses lead nowhere, so that a unit
test which touches a service fails at once.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

NOWHERE = "127.0.0.1:1"


def _only_unit_tests() -> bool:
    paths = [arg for arg in sys.argv[1:] if "tests" in arg and not arg.startswith("-")]
    return bool(paths) and all("tests/unit" in path for path in paths)


def _set_environment(database_url: str, redis_url: str) -> None:
    os.environ.update(
        DATABASE_URL=database_url,
        REDIS_URL=redis_url,
        SECRET_KEY="only-for-tests-" + "x" * 40,
        STATIC_ROOT=str(Path(tempfile.gettempdir()) / f"hearth-test-static-{os.getpid()}"),
    )


def _start_services() -> None:
    from chatproject.embedded import EmbeddedPostgres, EmbeddedValkey

    services = ExitStack()
    atexit.register(services.close)
    postgres = services.enter_context(EmbeddedPostgres.temporary())
    valkey = services.enter_context(EmbeddedValkey.temporary())
    _set_environment(postgres.url, valkey.url)


if _only_unit_tests():
    _set_environment(f"postgres://nobody@{NOWHERE}/none", f"redis://{NOWHERE}/0")
else:
    _start_services()
