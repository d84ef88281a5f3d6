"""`manage.py rotate_master_key`: wrap every data key by the first key of MASTER_KEYS."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts import keys


class Command(BaseCommand):
    help = (
        "Wrap every data key by the first key of MASTER_KEYS, in batches, while the product runs. "
        "May be interrupted and repeated."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--batch", type=int, default=keys.ROTATE_BATCH)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["batch"] < 1:
            raise CommandError("--batch takes a number above 0.")
        current = keys.ring().current
        done = unusable = 0
        for rewrapped, failed in keys.rotate(options["batch"]):
            done, unusable = done + rewrapped, unusable + failed
            self.stdout.write(f"{done} data keys rewrapped")
        if unusable:
            raise CommandError(
                f"{unusable} data keys could not be unwrapped and were left as they are: "
                "MASTER_KEYS lacks the key that wrapped them. Put it back and repeat."
            )
        counts = keys.count_by_master_key()
        self._tell(current, counts)

    def _tell(self, current: str, counts: dict[str, int]) -> None:
        for key_id, number in counts.items():
            self.stdout.write(f"{key_id}: {number} data keys")
        others = [key_id for key_id in keys.ring().ids if key_id not in (current, *counts)]
        if set(counts) - {current}:
            self.stdout.write("Some were made meanwhile under another first key: repeat.")
        elif others:
            self.stdout.write(f"May be taken out of MASTER_KEYS: {', '.join(others)}")
