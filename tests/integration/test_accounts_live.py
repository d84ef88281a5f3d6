"""Whether what let somebody in still does, as a table; the end of each is seen at the next look."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth import logout
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection
from django.http import HttpRequest
from django.utils import timezone

from accounts import live, tokens
from accounts.authentication import credential_of_request
from accounts.ids import new_id
from accounts.live import LiveCredential, ended, live_credential
from accounts.models import ApiToken, User
from tests.people import PASSWORD, Person, client_of, make_person

pytestmark = pytest.mark.django_db


def _token(person: Person) -> LiveCredential:
    secret = person.secret.encode()
    credential = credential_of_request([(b"authorization", b"Bearer " + secret)])
    assert credential is not None
    return live_credential(credential)


def _session(person: Person) -> LiveCredential:
    key = client_of(person).session.session_key
    assert key is not None
    credential = credential_of_request([(b"cookie", f"sessionid={key}".encode())])
    assert credential is not None
    return live_credential(credential)


def _disable(person: Person, one: LiveCredential) -> None:
    User.objects.filter(id=person.user.id).update(is_active=False)


def _delete(person: Person, one: LiveCredential) -> None:
    person.user.delete()


def _new_password(person: Person, one: LiveCredential) -> None:
    person.user.set_password(PASSWORD)  # the same again is a new one too
    person.user.save()


def _sign_out(person: Person, one: LiveCredential) -> None:
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(one.key)
    request.user = person.user
    logout(request)


def _expire_session(person: Person, one: LiveCredential) -> None:
    Session.objects.filter(session_key=one.key).update(expire_date=timezone.now())


def _revoke(person: Person, one: LiveCredential) -> None:
    assert tokens.revoke(person.token)


def _expire_token(person: Person, one: LiveCredential) -> None:
    ApiToken.objects.filter(id=person.token.id).update(expires=timezone.now())


def _rotate(person: Person, one: LiveCredential) -> None:
    tokens.rotate(person.token)


def _rotate_with_overlap(person: Person, one: LiveCredential) -> None:
    tokens.rotate(person.token, timedelta(hours=1))


def _nothing(person: Person, one: LiveCredential) -> None:
    pass


Act = Callable[[Person, LiveCredential], None]
# What happens, and whether a session and an API token have ended then.
TABLE: list[tuple[Act, bool, bool]] = [
    (_nothing, False, False),
    (_disable, True, True),
    (_delete, True, True),
    (_new_password, True, False),
    (_revoke, False, True),
    (_expire_token, False, True),
    (_rotate, False, True),
    (_rotate_with_overlap, False, False),
]


@pytest.mark.parametrize(("act", "session_ends", "token_ends"), TABLE)
def test_what_ends_what(act: Act, session_ends: bool, token_ends: bool) -> None:
    person, witness = make_person("ada"), make_person("bob")
    session, token = _session(person), _token(person)
    others = {_session(witness), _token(witness)}
    assert ended([session, token, *others]) == set()
    act(person, token)
    expected = ({session} if session_ends else set()) | ({token} if token_ends else set())
    assert ended([session, token, *others]) == expected


@pytest.mark.parametrize("act", [_sign_out, _expire_session])
def test_one_session_ends_and_the_others_stay(act: Act) -> None:
    person = make_person("ada")
    gone, stays, token = _session(person), _session(person), _token(person)
    act(person, gone)
    assert ended([gone, stays, token]) == {gone}


def test_a_session_that_someone_else_took_over_is_not_ones_own() -> None:
    """The same key with another user in it: nobody is let in by what was."""
    person, other = make_person("ada"), make_person("bob")
    session = _session(person)
    stolen = LiveCredential(other.user.id, "session", session.key, session.password)
    token = _token(person)
    foreign = LiveCredential(other.user.id, "api_token", token.key)
    assert ended([session, stolen, token, foreign]) == {stolen, foreign}


def test_a_lock_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [LiveCredential(new_id(), "session", "k" * 32, "hash")]
    with (
        monkeypatch.context() as patched,
        psycopg.connect(**connection.get_connection_params()) as other,
    ):
        patched.setattr(live, "QUERY_MS", 50)
        other.execute("LOCK TABLE accounts_user")
        with pytest.raises(OperationalError, match="statement timeout"):
            ended(asked)
    assert ended(asked) == set(asked)


def test_thousands_cost_two_queries(django_assert_num_queries: Any) -> None:
    person = make_person("ada")
    session, token = _session(person), _token(person)
    missing = [
        LiveCredential(person.user.id, "session", f"{number:032x}", session.password)
        for number in range(3_000)
    ]
    frame = 3  # the transaction's begin and end, and its time limit
    with django_assert_num_queries(2 + frame):
        assert ended([session, *missing, token]) == set(missing)
    with django_assert_num_queries(0):
        assert ended([]) == set()


def test_no_secret_is_shown() -> None:
    person = make_person("ada")
    for one in (_session(person), _token(person)):
        assert one.key not in repr(one)
        assert not one.password or one.password not in repr(one)
