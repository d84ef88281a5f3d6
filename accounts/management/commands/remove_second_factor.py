"""`manage.py remove_second_factor ada@example.org`: for somebody who lost phone and codes."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import User


class Command(BaseCommand):
    """Removes every second factor and passkey; the password is enough again."""

    help = "Remove authenticator app, recovery codes and passkeys of one person."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            user = User.objects.get_by_natural_key(options["email"])
        except User.DoesNotExist as error:
            raise CommandError(f"There is no user {options['email']}.") from error
        removed, _ = Authenticator.objects.filter(user=user).delete()
        self.stdout.write(f"Removed: {removed}.")
