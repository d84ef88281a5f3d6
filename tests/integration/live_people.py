"""People with an API token and a session each, whose access a test then takes away."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from tests.stack import Stack

_MAKE = """
import json
from importlib import import_module
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from accounts import tokens
from accounts.models import User
from accounts.ids import new_id

made = {}
for name in NAMES:
    user = User.objects.create_user(f"{name}-{new_id().hex}@example.org", "a long enough password")
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    secret = tokens.create(user, "tests")[1]
    made[name] = [str(user.pk), user.external_id, secret, session.session_key]
print(json.dumps(made))
"""


@dataclass(frozen=True, slots=True)
class LivePerson:
    """`id` as the API names it; `session` is the key in the cookie."""

    user: UUID
    id: str
    token: str
    session: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"sessionid={self.session}"}


def live_people(stack: Stack, changes: Mapping[str, str]) -> dict[str, LivePerson]:
    """By name; each is changed, once all are made, by the statement that stands with the name."""
    code = _MAKE.replace("NAMES", repr(list(changes)))
    found = json.loads(stack.manage("shell", "--verbosity", "0", "-c", code))
    people = {name: LivePerson(UUID(row[0]), *row[1:]) for name, row in found.items()}
    for name, statement in changes.items():
        if statement:
            change(stack, people[name], statement)
    return people


def change(stack: Stack, person: LivePerson, statement: str) -> None:
    """Run the statement, which may name %(user)s, %(session)s and %(token)s."""
    values: dict[str, Any] = {"user": person.user, "session": person.session}
    with psycopg.connect(stack.env["DATABASE_URL"], autocommit=True) as connection:
        assert connection.execute(statement.encode(), values).rowcount == 1, statement
