"""`manage.py await_replica`: wait until a replica can take runs, in a deploy one by one."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from generation.models import Replica

LOOK_S: Final = 0.3


class Command(BaseCommand):
    """Looks for a row that the worker has written since this began: an older one is that of the
    process before it."""

    help = "Wait until the worker of this replica says that its engine can take runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="as in GPU_REPLICA")
        parser.add_argument("--patience-s", type=float, default=600.0, help="600 if left out")

    def handle(self, *args: Any, **options: Any) -> None:
        since, until_s = timezone.now(), time.monotonic() + options["patience_s"]
        replica = Replica.objects.filter(name=options["name"], healthy=True, heartbeat__gt=since)
        while not replica.exists():
            if time.monotonic() > until_s:
                raise CommandError(
                    f"{options['name']} cannot take runs after {options['patience_s']:g} s. "
                    "Its worker's log says why, and so does its row in the admin."
                )
            time.sleep(LOOK_S)
