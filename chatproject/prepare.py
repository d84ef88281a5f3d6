"""Brings database and static files up to date in one process: a few commands, one start of Django.

What `ensure_admin` says holds a password, so it goes to the supervisor marked, not straight to the
screen.
"""

from __future__ import annotations

import os
import sys
from io import StringIO

from accounts.routers import KEYS

ADMIN_MARK = "@@admin "


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatproject.settings")
    import django
    from django.core.management import call_command
    from django.core.management.base import CommandError, SystemCheckError
    from django.db import OperationalError

    try:
        django.setup()
        call_command("check")
        _migrate()
        call_command("collectstatic", interactive=False, verbosity=0, skip_checks=True)
        _ensure_admin()
        call_command("ensure_demo")
    except (CommandError, SystemCheckError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OperationalError as error:
        sys.stderr.write(
            f"The server in DATABASE_URL or KEYS_DATABASE_URL cannot be reached: {error}\n"
        )
        return 1
    return 0


def _migrate() -> None:
    """Line by line where there is something to do, in silence where there is not."""
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        sys.stdout.write(f"Applying {len(missing)} migrations\n")
        sys.stdout.flush()
    call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
    call_command(
        "migrate", "keystore", database=KEYS, interactive=False, verbosity=0, skip_checks=True
    )
    # Only now can it be seen whether the master keys fit what is in the database.
    call_command("check", databases=[KEYS])
    call_command("seal_texts")


def _ensure_admin() -> None:
    from django.core.management import call_command

    said = StringIO()
    call_command("ensure_admin", stdout=said, no_color=True)
    for line in said.getvalue().splitlines():
        sys.stdout.write(f"{ADMIN_MARK}{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
