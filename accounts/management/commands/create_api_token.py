"""`manage.py create_api_token ada@example.org --name laptop --expires-days 90 --scope read`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts import scopes, tokens
from accounts.errors import TooManyTokens
from accounts.models import User


class Command(BaseCommand):
    """Prints the new secret and nothing else, so that a script can take it."""

    help = "Make an API token and print its secret, alone, on standard output."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--name", required=True, help="What it is for, e.g. laptop.")
        parser.add_argument("--expires-days", type=int, help="Without it, it does not expire.")
        parser.add_argument(
            "--scope",
            action="append",
            choices=scopes.ALL,
            help="What it may do; may be given twice. Without it: both.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = _active(options["email"])
        if user is None:
            raise CommandError(f"There is no active user {options['email']}.")
        wanted = options["scope"] or scopes.ALL
        try:
            _, secret = tokens.create(
                user, _name(options["name"]), _expires(options["expires_days"]), wanted
            )
        except TooManyTokens as error:
            raise CommandError(error.message) from error
        self.stdout.write(secret)


def _active(email: str) -> User | None:
    try:
        user = User.objects.get_by_natural_key(email)
    except User.DoesNotExist:
        return None
    return user if user.is_active else None


def _name(name: str) -> str:
    if not 1 <= len(name) <= tokens.MAX_NAME_CHARACTERS:
        raise CommandError(f"--name takes 1 to {tokens.MAX_NAME_CHARACTERS} characters.")
    return name


def _expires(days: int | None) -> Any:
    if days is None:
        return None
    if not 1 <= days <= tokens.MAX_DAYS:
        raise CommandError(f"--expires-days takes 1 to {tokens.MAX_DAYS}.")
    return timezone.now() + timedelta(days=days)
