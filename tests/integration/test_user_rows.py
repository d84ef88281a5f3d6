"""A user's row is changed by its person and by administrators at once: neither undoes the other."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from django.http import HttpRequest
from django.test import RequestFactory

from accounts import passwords
from accounts.adapters import AccountAdapter
from accounts.admin_forms import AdminPasswordChangeForm
from accounts.forms import ChangePasswordForm
from accounts.models import User
from tests.integration.account_room import NEW_PASSWORD
from tests.people import PASSWORD, make_person

pytestmark = pytest.mark.django_db
CHANGES = {"is_staff": False, "name": "Renamed", "preferences": {"theme": "dark"}}


def read(**fields: Any) -> User:
    """A user as a request read it."""
    return User.objects.get(pk=make_person("row", is_staff=True, **fields).user.pk)


def request_of(user: User) -> HttpRequest:
    request = RequestFactory().post("/")
    request.user = user
    return request


def by_form(user: User) -> None:
    form = ChangePasswordForm(
        user,
        {"old_password": PASSWORD, "new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD},
    )
    assert form.is_valid()
    form.save()


def by_link(user: User) -> None:
    AccountAdapter(context.request).set_password(user, NEW_PASSWORD)


def by_administrator(user: User) -> None:
    form = AdminPasswordChangeForm(user, {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD})
    assert form.is_valid()
    form.save()


@pytest.mark.parametrize("way", [by_form, by_link, by_administrator])
def test_a_new_password_undoes_nothing_that_happened_meanwhile(way: Any) -> None:
    user = read()
    User.objects.filter(pk=user.pk).update(**CHANGES)
    with context.request_context(request_of(user)):
        way(user)
    now = User.objects.get(pk=user.pk)
    assert {name: getattr(now, name) for name in CHANGES} == CHANGES
    assert now.check_password(NEW_PASSWORD)


@pytest.mark.parametrize("way", [by_form, by_link])
def test_who_was_disabled_meanwhile_stays_so_with_the_old_password(way: Any) -> None:
    user = read()
    User.objects.filter(pk=user.pk).update(is_active=False)
    with context.request_context(request_of(user)), pytest.raises(ImmediateHttpResponse):
        way(user)
    now = User.objects.get(pk=user.pk)
    assert not now.is_active
    assert now.check_password(PASSWORD)


def test_a_password_of_an_administrator_is_good_once_also_for_somebody_disabled() -> None:
    user = read(is_active=False)
    with context.request_context(request_of(make_person("boss").user)):
        by_administrator(user)
    now = User.objects.get(pk=user.pk)
    assert passwords.must_be_changed(now)
    assert not now.is_active
    with context.request_context(request_of(user)):
        by_administrator(now)
    assert not passwords.must_be_changed(User.objects.get(pk=user.pk))


def test_saving_a_whole_user_writes_only_what_was_changed(
    django_assert_num_queries: Any,
) -> None:
    """As packages do: connecting an identity provider, the admin's form."""
    user = read()
    User.objects.filter(pk=user.pk).update(is_active=False)
    user.name = "Another"
    user.preferences["theme"] = "light"
    user.save()
    now = User.objects.get(pk=user.pk)
    assert (now.name, now.preferences, now.is_active) == ("Another", {"theme": "light"}, False)
    with django_assert_num_queries(0):
        now.save()
    User.objects.filter(pk=user.pk).update(is_active=True)
    now.refresh_from_db()
    with django_assert_num_queries(0):
        now.save()
