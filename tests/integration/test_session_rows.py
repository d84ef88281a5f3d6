"""Sessions: forgotten when they are over, and ended all at once by an administrator."""

from __future__ import annotations

from datetime import timedelta

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from accounts import session_rows, tasks
from tests.integration.account_room import is_signed_in, sign_in
from tests.people import Person, client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]
AGO = timedelta(hours=2)


def browser(person: Person) -> Client:
    client = Client()
    assert sign_in(client, person.user.email).status_code == 302
    return client


def test_what_is_over_is_forgotten_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_rows, "BATCH", 2)
    person = make_person()
    here = browser(person)
    now = timezone.now()
    for number in range(5):
        Session.objects.create(session_key=f"old{number}", expire_date=now - AGO)
        row = UserSession(user=person.user, ip="::", session_key=f"gone{number}")
        row.created_at = now - AGO
        row.save()
    UserSession.objects.create(user=person.user, ip="::", session_key="beginning")
    assert tasks.forget_sessions() == 10
    assert tasks.forget_sessions() == 0
    assert is_signed_in(here)
    left = UserSession.objects.values_list("session_key", flat=True)
    assert set(left) == {here.session.session_key, "beginning"}


def test_one_round_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_rows, "BATCH", 1)
    monkeypatch.setattr(session_rows, "BATCHES", 2)
    for number in range(3):
        Session.objects.create(session_key=f"old{number}", expire_date=timezone.now() - AGO)
    assert tasks.forget_sessions() == 2


def test_signing_somebody_out_ends_sessions_that_are_in_no_list_too() -> None:
    boss = make_person("boss", is_staff=True, is_superuser=True)
    person, other = make_person("row"), make_person("other")
    listed, unlisted, stranger = browser(person), client_of(person), client_of(other)
    assert UserSession.objects.filter(user=person.user).count() == 1
    form = {"action": "end_sessions", "_selected_action": [str(person.user.pk)]}
    assert client_of(boss).post("/admin/accounts/user/", form).status_code == 302
    assert not is_signed_in(listed)
    assert not is_signed_in(unlisted)
    assert is_signed_in(stranger)
    assert not UserSession.objects.filter(user=person.user).exists()
