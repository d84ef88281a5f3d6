"""`manage.py ensure_admin`: the first administrator, where there is none."""

from __future__ import annotations

import os
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from accounts import passwords
from accounts.models import User

DEFAULT_EMAIL = "admin@localhost"


class Command(BaseCommand):
    """Prints `admin e-mail: …` and `one-time password: …`, or that there is one already."""

    help = "Create the first administrator if there is none, and print the one-time password once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", default=os.environ.get("ADMIN_EMAIL") or DEFAULT_EMAIL)

    def handle(self, *args: Any, **options: Any) -> None:
        if User.objects.filter(is_superuser=True, is_active=True).exists():
            self.stdout.write("There is an administrator already.")
            return
        email = _checked(options["email"])
        password = passwords.one_time_password()
        _create(email, password)
        self.stdout.write(f"admin e-mail: {email}")
        self.stdout.write(f"one-time password: {password}")


def _checked(email: str) -> str:
    try:
        validate_email(email)
    except ValidationError as error:
        raise CommandError(f"ADMIN_EMAIL is not an e-mail address: {email}") from error
    return email


def _create(email: str, password: str) -> None:
    """Never promotes an account that is there: anybody may have signed up with this address."""
    try:
        with transaction.atomic():
            User.objects.create_superuser(
                email, password, preferences={passwords.IS_TEMPORARY: True}
            )
    except IntegrityError as error:
        raise CommandError(
            f"There is an account {email} without an administrator's rights. "
            "Set ADMIN_EMAIL to another address."
        ) from error
