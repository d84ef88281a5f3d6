"""Users and API tokens in the admin: what is shown once, and who may touch whom."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from accounts import passwords, tokens
from accounts.models import ApiToken, AuditEntry, User
from tests.people import PASSWORD, Person, bearer, client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static"),
]
TOKENS = "/admin/accounts/apitoken/"
USERS = "/admin/accounts/user/"


@pytest.fixture
def boss() -> Person:
    return make_person("boss", is_staff=True, is_superuser=True)


@pytest.fixture
def helper() -> Person:
    """A staff member with every right over users and API tokens, but no superuser."""
    person = make_person("helper", is_staff=True)
    person.user.user_permissions.set(Permission.objects.filter(content_type__app_label="accounts"))
    return person


@pytest.fixture
def owner() -> Person:
    return make_person("owner")


def token_form(user: User) -> dict[str, Any]:
    return {
        "user": str(user.id),
        "name": "laptop",
        "scopes": ["read"],
        "expires_0": "",
        "expires_1": "",
    }


def secret_in(response: Any) -> str:
    found = re.search(r"t_[A-Za-z0-9_-]{43}", response.content.decode())
    assert found, response.content
    return found.group()


def user_form(user: User, **changes: Any) -> dict[str, Any]:
    return {
        "email": user.email,
        "name": user.name,
        "preferences": "{}",
        "is_active": "on",
        **changes,
    }


@pytest.mark.parametrize("page", ["", "add/"])
@pytest.mark.parametrize("model", ["user", "apitoken", "organisation"])
def test_every_page_opens(boss: Person, model: str, page: str) -> None:
    assert client_of(boss).get(f"/admin/accounts/{model}/{page}").status_code == 200


def test_the_pages_of_one_row_open(boss: Person) -> None:
    client = client_of(boss)
    assert client.get(f"{USERS}{boss.user.id}/change/").status_code == 200
    assert client.get(f"{USERS}{boss.user.id}/password/").status_code == 200
    assert client.get(f"{TOKENS}{boss.token.id}/change/").status_code == 200
    assert client.get(f"{USERS}?q=boss").status_code == 200
    assert client.get(f"{TOKENS}?q=boss").status_code == 200


@pytest.mark.parametrize("url", [TOKENS, f"{TOKENS}add/", USERS])
def test_others_do_not_get_in(owner: Person, url: str) -> None:
    assert client_of(owner).get(url, follow=True).status_code == 403
    assert Client().get(url).status_code == 302


def test_an_api_token_made_here_works_and_its_secret_is_seen_once(
    boss: Person, owner: Person, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(boss)
    with caplog.at_level(logging.DEBUG):
        response = client.post(f"{TOKENS}add/", token_form(owner.user))
    secret = secret_in(response)
    assert "no-store" in response.headers["Cache-Control"]
    assert tokens.find(secret).user == owner.user
    token = tokens.find(secret)
    # Neither the next pages, nor a cookie, nor the session, the log or the admin's history know it.
    for url in (TOKENS, f"{TOKENS}{token.id}/change/", f"{TOKENS}{token.id}/history/"):
        assert secret not in client.get(url).content.decode()
    assert secret not in str(client.cookies)
    assert all(secret not in str(session.get_decoded()) for session in Session.objects.all())
    assert secret not in caplog.text
    entry = AuditEntry.objects.get(action="add")
    assert entry.object_id == f"t_{token.id.hex}"
    assert secret not in str(vars(entry))
    assert LogEntry.objects.count() == 0


def test_an_expiry_given_here_counts(boss: Person, owner: Person) -> None:
    form = {**token_form(owner.user), "expires_0": "2020-01-01", "expires_1": "00:00"}
    secret = secret_in(client_of(boss).post(f"{TOKENS}add/", form))
    response = Client().get("/v1/things", headers={"Authorization": f"Bearer {secret}"})
    assert response.json()["error"]["code"] == "api_token_expired"


def test_revoking_ends_the_chosen_api_tokens_only(boss: Person, owner: Person) -> None:
    other = make_person("other")
    form = {"action": "revoke", "_selected_action": [str(owner.token.id)]}
    assert client_of(boss).post(TOKENS, form).status_code == 302
    assert Client().get("/v1/things", headers=bearer(owner)).status_code == 401
    assert Client().get("/v1/things", headers=bearer(other)).status_code == 200


def test_an_api_token_cannot_be_handed_to_another_user_or_prolonged(
    boss: Person, owner: Person
) -> None:
    ApiToken.objects.filter(id=owner.token.id).update(revoked=timezone.now())
    form = {**token_form(boss.user), "name": "renamed", "expires_0": "2999-01-01", "revoked": ""}
    assert client_of(boss).post(f"{TOKENS}{owner.token.id}/change/", form).status_code == 302
    token = ApiToken.objects.get(id=owner.token.id)
    assert (token.name, token.user, token.expires) == ("renamed", owner.user, None)
    assert token.revoked is not None


def test_staff_may_make_api_tokens_for_themselves_alone(
    helper: Person, boss: Person, owner: Person
) -> None:
    before = ApiToken.objects.count()
    for other in (boss, owner):
        refused = client_of(helper).post(f"{TOKENS}add/", token_form(other.user))
        assert refused.status_code == 200
    assert ApiToken.objects.count() == before
    secret_in(client_of(helper).post(f"{TOKENS}add/", token_form(helper.user)))
    assert ApiToken.objects.count() == before + 1


def test_a_user_is_made_by_address_and_can_sign_in(boss: Person) -> None:
    form = {
        "email": "made@example.org",
        "name": "",
        "organisation": "",
        "usable_password": "true",
        "password1": PASSWORD,
        "password2": PASSWORD,
    }
    assert client_of(boss).post(f"{USERS}add/", form).status_code == 302
    made = User.objects.get(email="made@example.org")
    assert made.check_password(PASSWORD)
    assert passwords.must_be_changed(made)
    again = client_of(boss).post(f"{USERS}add/", {**form, "email": "MADE@example.org"})
    assert "There is an account with this address already." in again.content.decode()


def test_a_user_can_be_disabled(boss: Person, owner: Person) -> None:
    form = user_form(owner.user)
    del form["is_active"]
    assert client_of(boss).post(f"{USERS}{owner.user.id}/change/", form).status_code == 302
    assert Client().get("/v1/things", headers=bearer(owner)).status_code == 401


@pytest.mark.parametrize("written", ["[]", "[1]", '"x"', "3", "null", "", "{"])
def test_preferences_stay_an_object(boss: Person, owner: Person, written: str) -> None:
    form = user_form(owner.user, name="Renamed", preferences=written)
    response = client_of(boss).post(f"{USERS}{owner.user.id}/change/", form)
    assert response.status_code == 200
    assert response.context["adminform"].errors.keys() == {"preferences"}
    owner.user.refresh_from_db()
    assert (owner.user.name, owner.user.preferences) == ("owner", {})


def test_staff_may_change_users_but_give_no_rights(helper: Person, owner: Person) -> None:
    form = user_form(owner.user, name="Renamed", is_staff="on", is_superuser="on")
    assert client_of(helper).post(f"{USERS}{owner.user.id}/change/", form).status_code == 302
    owner.user.refresh_from_db()
    assert owner.user.name == "Renamed"
    assert (owner.user.is_staff, owner.user.is_superuser) == (False, False)


@pytest.mark.parametrize("rights", [{"is_superuser": True}, {}])
def test_staff_may_not_touch_another_administrator(helper: Person, rights: dict[str, bool]) -> None:
    boss = make_person("boss", is_staff=True, **rights)
    client = client_of(helper)
    url = f"{USERS}{boss.user.id}"
    assert client.post(f"{url}/change/", user_form(boss.user, name="x")).status_code == 403
    token = {"action": "revoke", "_selected_action": [str(boss.token.id)]}
    assert client.post(TOKENS, token).status_code == 403
    form = {"password1": "another one here", "password2": "another one here"}
    assert client.post(f"{url}/password/", form).status_code == 403
    assert client.post(f"{url}/delete/", {"post": "yes"}).status_code == 403
    boss.user.refresh_from_db()
    assert boss.user.name == "boss"
    assert boss.user.check_password(PASSWORD)


def test_staff_may_not_delete_a_superuser_from_the_list(helper: Person, boss: Person) -> None:
    form = {"action": "delete_selected", "_selected_action": [str(boss.user.id)], "post": "yes"}
    client_of(helper).post(USERS, form)
    assert User.objects.filter(id=boss.user.id).exists()


def test_staff_may_change_their_own_name_and_no_right_of_theirs(helper: Person) -> None:
    form = user_form(helper.user, name="Me", is_superuser="on")
    assert client_of(helper).post(f"{USERS}{helper.user.id}/change/", form).status_code == 302
    helper.user.refresh_from_db()
    assert (helper.user.name, helper.user.is_superuser) == ("Me", False)
