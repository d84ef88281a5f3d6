"""Who gets in: owner, another user, nobody, a disabled user; by session cookie and by API token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import HASH_SESSION_KEY
from django.test import Client
from django.utils import timezone

from accounts import tokens
from accounts.aio import in_database
from accounts.authentication import credential_of_request, session_ref
from accounts.errors import NotSignedIn
from accounts.models import ApiToken
from tests.people import PASSWORD, People, Person, bearer, client_of, make_people, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static"),
]
URL = "/v1/things"


@pytest.fixture
def people() -> People:
    return make_people()


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "param", "retry_after_s"}
    error: dict[str, Any] = body["error"]
    return error


def refused(response: Any, code: str) -> None:
    assert error_of(response, 401)["code"] == code
    assert response.headers["WWW-Authenticate"].startswith("Bearer ")


def test_each_person_is_themselves_by_cookie_and_by_api_token(people: People) -> None:
    for person in (people.owner, people.other):
        by_cookie = client_of(person).get(URL)
        by_token = Client().get(URL, headers=bearer(person))
        assert by_cookie.json() == by_token.json() == {"user": person.user.external_id}
    assert people.owner.user.external_id != people.other.user.external_id


def test_nobody_is_refused() -> None:
    refused(Client().get(URL), "not_signed_in")


def test_a_disabled_user_is_refused_by_cookie_and_by_api_token(people: People) -> None:
    refused(client_of(people.disabled).get(URL), "not_signed_in")
    refused(Client().get(URL, headers=bearer(people.disabled)), "account_disabled")


def test_disabling_ends_a_session_that_worked(people: People) -> None:
    client = client_of(people.owner)
    assert client.get(URL).status_code == 200
    people.owner.user.is_active = False
    people.owner.user.save(update_fields=["is_active"])
    refused(client.get(URL), "not_signed_in")


def test_an_expired_api_token_is_refused(people: People) -> None:
    ApiToken.objects.filter(id=people.owner.token.id).update(expires=timezone.now())
    refused(Client().get(URL, headers=bearer(people.owner)), "api_token_expired")


def test_an_api_token_works_until_it_expires(people: People) -> None:
    later = timezone.now() + timedelta(minutes=1)
    ApiToken.objects.filter(id=people.owner.token.id).update(expires=later)
    assert Client().get(URL, headers=bearer(people.owner)).status_code == 200
    with pytest.raises(NotSignedIn):
        tokens.find(people.owner.secret, now=later)


def test_a_revoked_api_token_is_refused_and_another_of_the_same_user_is_not(
    people: People,
) -> None:
    _, second = tokens.create(people.owner.user, "second")
    assert tokens.revoke(people.owner.token) is True
    assert tokens.revoke(people.owner.token) is False
    refused(Client().get(URL, headers=bearer(people.owner)), "api_token_revoked")
    assert Client().get(URL, headers={"Authorization": f"Bearer {second}"}).status_code == 200


@pytest.mark.parametrize("secret", ["", "t_", "x", "t_" + "A" * 43, "t_\x00", "é" * 50, "a b"])
def test_a_malformed_or_unknown_api_token_is_refused(secret: str) -> None:
    response = Client().get(URL, headers={"Authorization": f"Bearer {secret}"})
    refused(response, "invalid_api_token")


def test_a_wrong_api_token_is_refused_beside_a_good_cookie(people: People) -> None:
    response = client_of(people.owner).get(URL, headers={"Authorization": "Bearer t_nope"})
    refused(response, "invalid_api_token")


def test_another_scheme_than_bearer_leaves_the_cookie_to_decide(people: People) -> None:
    headers = {"Authorization": "Basic YTpi"}
    assert client_of(people.owner).get(URL, headers=headers).status_code == 200
    refused(Client().get(URL, headers=headers), "not_signed_in")


def test_a_cookie_with_nul_in_it_is_only_a_wrong_cookie() -> None:
    client = Client(headers={"Cookie": 'sessionid="abcdefgh\\000abcdefghijklmnop"'})
    refused(client.get(URL), "not_signed_in")


def test_only_the_digest_of_an_api_token_is_stored(people: People) -> None:
    row = ApiToken.objects.filter(id=people.owner.token.id).values().get()
    assert bytes(row["digest"]) == tokens.digest(people.owner.secret)
    assert people.owner.secret not in str(row)
    assert people.owner.secret[2:].encode() not in bytes(row["digest"])


def test_a_second_call_within_the_minute_writes_nothing(
    people: People, django_assert_num_queries: Any
) -> None:
    tokens.find(people.owner.secret)
    with django_assert_num_queries(1):
        tokens.find(people.owner.secret)


def test_last_used_is_written_at_most_once_a_minute(people: People) -> None:
    now = timezone.now()

    def used_at(moment: Any) -> Any:
        tokens.find(people.owner.secret, now=moment)
        return ApiToken.objects.get(id=people.owner.token.id).last_used

    assert used_at(now) == now
    assert used_at(now + timedelta(seconds=59)) == now
    assert used_at(now + timedelta(seconds=60)) == now + timedelta(seconds=60)


class TestCsrf:
    """A cookie alone must not change anything; an API token needs no CSRF token."""

    body = {"title": "x"}

    def post(self, client: Client, **headers: str) -> Any:
        return client.post(URL, self.body, content_type="application/json", headers=headers)

    def test_a_post_by_cookie_needs_the_csrf_token(self, people: People) -> None:
        client = client_of(people.owner, enforce_csrf_checks=True)
        assert client.get(URL).status_code == 200
        assert error_of(self.post(client), 403)["code"] == "csrf_failed"

    def test_a_post_by_cookie_passes_with_the_csrf_token(self, people: People) -> None:
        client = client_of(people.owner, enforce_csrf_checks=True)
        client.get("/accounts/change-password/")  # a page with a form sets the CSRF cookie
        csrf = client.cookies["csrftoken"].value
        assert self.post(client, **{"X-CSRFToken": csrf}).status_code == 201
        assert error_of(self.post(client, **{"X-CSRFToken": "x" * 32}), 403)

    def test_a_post_by_api_token_needs_none(self, people: People) -> None:
        client = Client(enforce_csrf_checks=True)
        assert self.post(client, **bearer(people.owner)).status_code == 201


class TestCredentialOfHeaders:
    """The same people through ASGI headers, as streams see them."""

    @staticmethod
    def cookie(person: Person) -> list[tuple[bytes, bytes]]:
        value = client_of(person).cookies["sessionid"].value
        return [(b"host", b"x"), (b"cookie", f"a=b; sessionid={value}".encode())]

    @staticmethod
    def token(secret: str) -> list[tuple[bytes, bytes]]:
        return [(b"authorization", b"Bearer " + secret.encode())]

    def test_an_api_token_names_its_user_and_itself(self, people: People) -> None:
        credential = credential_of_request(self.token(people.owner.secret))
        assert credential is not None
        assert credential.user == people.owner.user
        assert (credential.kind, credential.ref) == ("api_token", people.owner.token.id.hex)

    def test_a_cookie_names_its_user_and_a_digest_of_the_session(self, people: People) -> None:
        headers = self.cookie(people.owner)
        key = headers[1][1].decode().rpartition("=")[2]
        credential = credential_of_request(dict(headers))
        assert credential is not None
        assert credential.user == people.owner.user
        assert (credential.kind, credential.ref) == ("session", session_ref(key))
        assert key not in credential.ref

    def test_cookies_sent_one_by_one_are_read_together(self, people: People) -> None:
        session = self.cookie(people.owner)[1]
        credential = credential_of_request([session, (b"cookie", b"theme=dark")])
        assert credential is not None
        assert credential.user == people.owner.user

    def test_nobody_is_none(self) -> None:
        assert credential_of_request([]) is None
        assert credential_of_request([(b"cookie", b"sessionid=" + b"a" * 32)]) is None
        assert credential_of_request([(b"cookie", b'sessionid="abcdefgh\\000"; x=\xff')]) is None

    def test_a_disabled_user_is_refused(self, people: People) -> None:
        assert credential_of_request(self.cookie(people.disabled)) is None
        with pytest.raises(NotSignedIn, match="disabled"):
            credential_of_request(self.token(people.disabled.secret))

    def test_a_session_from_before_a_new_password_is_refused(self, people: People) -> None:
        headers = self.cookie(people.owner)
        assert credential_of_request(headers) is not None
        people.owner.user.set_password("another password entirely")
        people.owner.user.save()
        assert credential_of_request(headers) is None

    def test_a_session_signed_with_a_fallback_key_is_accepted_and_not_moved(
        self, people: People, settings: Any
    ) -> None:
        client = client_of(people.owner)
        key = client.cookies["sessionid"].value
        settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
        settings.SECRET_KEY = "a new key"
        headers = [(b"cookie", f"sessionid={key}".encode())]
        assert credential_of_request(headers) is not None
        # Had it moved, the browser's cookie would now lead nowhere.
        assert credential_of_request(headers) is not None
        settings.SECRET_KEY_FALLBACKS = []
        assert credential_of_request(headers) is None

    def test_a_session_without_its_hash_is_refused(self, people: People) -> None:
        client = client_of(people.owner)
        session = client.session
        del session[HASH_SESSION_KEY]
        session.save()
        key = client.cookies["sessionid"].value
        assert credential_of_request([(b"cookie", f"sessionid={key}".encode())]) is None

    def test_a_signed_out_session_is_refused(self, people: People) -> None:
        client = client_of(people.owner)
        key = client.cookies["sessionid"].value
        client.logout()
        assert credential_of_request([(b"cookie", f"sessionid={key}".encode())]) is None


@pytest.mark.django_db(transaction=True)
def test_it_works_from_an_event_loop() -> None:
    owner = make_person("owner")
    headers = [(b"authorization", f"Bearer {owner.secret}".encode())]
    credential = async_to_sync(in_database)(credential_of_request, headers)
    assert credential is not None
    assert credential.user == owner.user
    assert PASSWORD not in repr(credential)
