"""`manage.py make_master_key k2`: a new master key, as an entry of MASTER_KEYS."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.key_ring import InvalidKeyRing, new_entry


class Command(BaseCommand):
    requires_system_checks = []  # one of them fails for want of what this prints
    help = "Print a new entry for MASTER_KEYS. It is kept nowhere."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="A name that no other entry has, e.g. k2.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(new_entry(options["id"]))
        except InvalidKeyRing as problem:
            raise CommandError(str(problem)) from None
