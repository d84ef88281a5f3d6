"""`manage.py create_api_token ada@example.org --name laptop --expires-days 90`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts import tokens
from accounts.models import User

MAX_DAYS = 3650


class Command(BaseCommand):
    """Prints the new secret and nothing else, so that a script can take it."""

    help = "Make an API token and print its secret, alone, on standard output."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--name", required=True, help="What it is for, e.g. laptop.")
        parser.add_argument("--expires-days", type=int, help="Without it, it does not expire.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email__iexact=options["email"], is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['email']}.")
        _, secret = tokens.create(user, _name(options["name"]), _expires(options["expires_days"]))
        self.stdout.write(secret)


def _name(name: str) -> str:
    if not 1 <= len(name) <= 100:
        raise CommandError("--name takes 1 to 100 characters.")
    return name


def _expires(days: int | None) -> Any:
    if days is None:
        return None
    if not 1 <= days <= MAX_DAYS:
        raise CommandError(f"--expires-days takes 1 to {MAX_DAYS}.")
    return timezone.now() + timedelta(days=days)
