"""`manage.py forget_audit --older-than-days N`: the one way to delete audit entries."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from accounts import audit

KEPT_DAYS = 90
"""What the database keeps in any case (migration accounts 0004)."""


class Command(BaseCommand):
    help = "Delete audit entries that are older than N days; never the last 90 days."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--older-than-days", type=int, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        days: int = options["older_than_days"]
        if days < KEPT_DAYS:
            raise CommandError(f"The last {KEPT_DAYS} days are always kept.")
        gone = audit.forget(timezone.now() - timedelta(days=days))
        self.stdout.write(f"Deleted audit entries: {gone}")
