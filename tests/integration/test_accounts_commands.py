"""`manage.py ensure_admin` and `create_api_token`."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from accounts import passwords, tokens
from accounts.models import ApiToken, User
from tests.people import Person, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]


def output_of(*command: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


class TestEnsureAdmin:
    def test_the_first_administrator_signs_in_once_and_chooses_a_password(self) -> None:
        printed = output_of("ensure_admin", email="admin@localhost").splitlines()
        facts = dict(line.split(": ", 1) for line in printed)
        assert facts.keys() == {"admin e-mail", "one-time password"}
        admin = User.objects.get(email="admin@localhost")
        assert (admin.is_staff, admin.is_superuser) == (True, True)
        assert passwords.must_be_changed(admin)
        form = {"username": facts["admin e-mail"], "password": facts["one-time password"]}
        response = Client().post("/accounts/sign-in/", form)
        assert response.headers["Location"].startswith("/accounts/change-password/")

    def test_the_address_comes_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADMIN_EMAIL", "chief@example.org")
        assert "admin e-mail: chief@example.org\n" in output_of("ensure_admin")

    def test_a_second_time_it_makes_and_prints_no_password(self) -> None:
        output_of("ensure_admin", email="admin@localhost")
        before = User.objects.get().password
        assert "password" not in output_of("ensure_admin", email="other@localhost")
        assert User.objects.get().password == before

    def test_it_promotes_nobody_who_took_the_address(self) -> None:
        taker = make_person("taker").user
        with pytest.raises(CommandError, match="ADMIN_EMAIL"):
            output_of("ensure_admin", email=taker.email.upper())
        taker.refresh_from_db()
        assert not taker.is_superuser

    def test_a_disabled_administrator_is_none(self) -> None:
        make_person("gone", is_superuser=True, is_staff=True, is_active=False)
        assert "one-time password: " in output_of("ensure_admin", email="admin@localhost")

    def test_a_wrong_address_is_refused(self) -> None:
        with pytest.raises(CommandError, match="not an e-mail address"):
            output_of("ensure_admin", email="nonsense")


class TestCreateApiToken:
    @pytest.fixture
    def owner(self) -> Person:
        return make_person("owner")

    def test_it_prints_the_secret_alone(self, owner: Person) -> None:
        secret = output_of("create_api_token", owner.user.email.upper(), name="ci").rstrip("\n")
        token = tokens.find(secret)
        assert (token.user, token.name, token.expires) == (owner.user, "ci", None)

    def test_it_expires_when_asked(self, owner: Person) -> None:
        before = timezone.now()
        secret = output_of("create_api_token", owner.user.email, name="ci", expires_days=2).strip()
        expires = tokens.find(secret).expires
        assert expires is not None
        assert before + timedelta(days=2) <= expires <= timezone.now() + timedelta(days=2)

    @pytest.mark.parametrize(
        "options",
        [
            {"name": ""},
            {"name": "x" * 101},
            {"name": "x", "expires_days": 0},
            {"name": "x", "expires_days": 10**9},
        ],
    )
    def test_wrong_options_are_refused(self, owner: Person, options: dict[str, Any]) -> None:
        before = ApiToken.objects.count()
        with pytest.raises(CommandError):
            output_of("create_api_token", owner.user.email, **options)
        assert ApiToken.objects.count() == before

    def test_an_unknown_or_disabled_user_is_refused(self) -> None:
        disabled = make_person("disabled", is_active=False)
        for email in ("nobody@example.org", disabled.user.email):
            with pytest.raises(CommandError, match="no active user"):
                output_of("create_api_token", email, name="x")
