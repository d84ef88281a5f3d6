"""Starts one PostgreSQL and one Valkey for the test run, before Django reads its settings.

A run that names only `tests/unit` needs neither: then the addresses lead nowhere, so that a unit
test which touches a service fails at once.
"""

from __future__ import annotations

import atexit
import base64
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

NOWHERE = "127.0.0.1:1"


def _only_unit_tests() -> bool:
    paths = [arg for arg in sys.argv[1:] if "tests" in arg and not arg.startswith("-")]
    return bool(paths) and all("tests/unit" in path for path in paths)


def _set_environment(database_url: str, keys_database_url: str, redis_url: str) -> None:
    os.environ.update(
        DATABASE_URL=database_url,
        KEYS_DATABASE_URL=keys_database_url,
        MASTER_KEYS=f"tests:{base64.b64encode(bytes(range(32))).decode()}",
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
    _set_environment(postgres.url, postgres.create_database("chat_keys"), valkey.url)


if _only_unit_tests():
    _set_environment(
        f"postgres://nobody@{NOWHERE}/none",
        f"postgres://nobody@{NOWHERE}/keys",
        f"redis://{NOWHERE}/0",
    )
else:
    _start_services()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that may use the database may use that of the keys too: text needs both."""
    databases = ["default", "keys"]
    for item in items:
        marker = item.get_closest_marker("django_db")
        if marker is not None:
            cast("dict[str, Any]", marker.kwargs).setdefault("databases", databases)
        elif {"db", "transactional_db"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.django_db(databases=databases))
