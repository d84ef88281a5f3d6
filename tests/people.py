"""The people of every access test: an owner, another user, nobody, and a disabled user.

people = make_people()
client_of(people.owner).get(…)                                  # session cookie
Client().get(…, headers=bearer(people.other))                   # API token
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from django.test import Client

from accounts import tokens
from accounts.models import ApiToken, User

PASSWORD = "correct horse battery"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Person:
    """A user with an API token, the token's secret, and PASSWORD as password."""

    user: User
    token: ApiToken
    secret: str


@dataclass(frozen=True, slots=True)
class People:
    owner: Person
    other: Person
    disabled: Person


def make_person(name: str = "ada", *, is_active: bool = True, **fields: object) -> Person:
    """A person with an address nobody else has."""
    user = User.objects.create_user(
        f"{name}{next(_numbers)}@example.org", PASSWORD, name=name, is_active=is_active, **fields
    )
    token, secret = tokens.create(user, "test")
    return Person(user, token, secret)


def make_people() -> People:
    """Disabled means: had a session and an API token, then was disabled (see `client_of`)."""
    return People(
        owner=make_person("owner"),
        other=make_person("other"),
        disabled=make_person("disabled", is_active=False),
    )


def client_of(person: Person, *, enforce_csrf_checks: bool = False) -> Client:
    """A browser in which this person is signed in, or, if disabled now, was when they were not."""
    client = Client(enforce_csrf_checks=enforce_csrf_checks)
    client.force_login(person.user)
    return client


def bearer(person: Person) -> dict[str, str]:
    """The header of this person's API token."""
    return {"Authorization": f"Bearer {person.secret}"}
