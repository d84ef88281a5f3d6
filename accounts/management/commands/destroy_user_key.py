"""`manage.py destroy_user_key ada@example.org --yes`: make a user's every text unreadable."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from accounts import keys
from accounts.ids import InvalidId, external_id, parse_id
from accounts.keystore.models import DataKey
from accounts.models import User
from accounts.routers import KEYS


class Command(BaseCommand):
    help = (
        "Destroy a user's data key: every text of theirs, in every copy and back-up of the "
        "content, can never be opened again. There is no undo."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("who", nargs="?", help="E-mail address, or u_… of a user already gone.")
        parser.add_argument("--yes", action="store_true", help="I know that there is no undo.")
        parser.add_argument(
            "--again",
            action="store_true",
            help="Destroy all keys again that were destroyed and came back with a back-up.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["again"]:
            self.stdout.write(f"{keys.repeat_destructions()} keys had come back and are destroyed.")
            _clean_up()
            return
        owner_id = _owner_id(options["who"])
        if not options["yes"]:
            raise CommandError(
                "Nothing was done. Every text of this user would be lost for good: add --yes."
            )
        name = external_id("u", owner_id)
        if keys.destroy(owner_id):
            self.stdout.write(
                f"The key of {name} is destroyed. Other processes forget it within "
                f"{keys.CACHE_S} s; back-ups of the keys database must be gone within 7 days."
            )
        else:
            self.stdout.write(f"There was no key of {name}; now there will never be one.")
        _clean_up()


def _owner_id(who: str | None) -> UUID:
    if not who:
        raise CommandError("Name a user: an e-mail address or u_….")
    if "@" not in who:
        try:
            return parse_id("u", who)
        except InvalidId:
            raise CommandError(f"{who} is neither an e-mail address nor an id.") from None
    try:
        return User.objects.get_by_natural_key(who).pk
    except User.DoesNotExist:
        raise CommandError(f"There is no user {who}.") from None


def _clean_up() -> None:
    """The wrapped key is still in the table's file, as an old version of its row."""
    connection = connections[KEYS]
    if not connection.in_atomic_block:  # VACUUM takes no transaction; a test may be in one
        with connection.cursor() as cursor:
            cursor.execute(f"VACUUM {connection.ops.quote_name(DataKey._meta.db_table)}")
