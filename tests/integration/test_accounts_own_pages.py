"""One's own account: the list of sessions, API tokens on a page, a first password."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.core import mail
from django.test import Client
from django.utils import timezone

from accounts import adapters, tokens
from accounts.authentication import credential_of_request
from accounts.models import ApiToken, User
from tests.integration.account_room import CHANGE, NEW_PASSWORD, SIGN_IN, is_signed_in, sign_in
from tests.people import PASSWORD, People, Person, client_of, make_people, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]
SESSIONS = "/accounts/sessions/"
TOKENS = "/accounts/tokens/"
THINGS = "/v1/things"


@pytest.fixture
def people() -> People:
    return make_people()


def browser(person: Person, agent: str = "Firefox", address: str = "192.0.2.7") -> Client:
    client = Client(headers={"User-Agent": agent})
    assert sign_in(client, person.user.email, address=address).status_code == 302
    return client


def session_rows(client: Client) -> list[str]:
    page = client.get(SESSIONS).content.decode()
    return re.findall(r'name="session" value="(\d+)"', page)


def works(secret: str) -> bool:
    return Client().get(THINGS, headers={"Authorization": f"Bearer {secret}"}).status_code == 200


class TestSessions:
    def test_the_list_names_browsers_and_where_they_are(self, people: People) -> None:
        here = browser(people.owner, "Firefox on a desk")
        browser(people.owner, "<b>Phone</b>", "2001:db8::7")
        page = here.get(SESSIONS).content.decode()
        assert "This browser" in page
        assert "Firefox on a desk" in page
        assert "&lt;b&gt;Phone" in page
        assert "2001:db8::7" in page
        assert str(here.session.session_key) not in page

    def test_ending_one_ends_it_at_once_in_the_database(self, people: People) -> None:
        here, there = browser(people.owner), browser(people.owner)
        key = there.session.session_key
        assert key
        cookie = [(b"cookie", f"sessionid={key}".encode())]
        assert credential_of_request(cookie) is not None
        [row] = session_rows(here)
        assert here.post(SESSIONS, {"session": row}, follow=True).status_code == 200
        assert not Session.objects.filter(session_key=key).exists()
        assert credential_of_request(cookie) is None
        assert not is_signed_in(there)
        assert is_signed_in(here)

    def test_all_others_at_once(self, people: People) -> None:
        here = browser(people.owner)
        others = [browser(people.owner) for _ in range(3)]
        stranger = browser(people.other)
        page = here.post(SESSIONS, {"others": "1"}, follow=True).content.decode()
        assert "3 browsers are signed out" in page
        assert not any(is_signed_in(client) for client in others)
        assert is_signed_in(here)
        assert is_signed_in(stranger)

    def test_nobody_ends_another_s(self, people: People) -> None:
        mine = browser(people.owner)
        row = UserSession.objects.get(user=people.owner.user)
        for value in (str(row.pk), "", "x", "-1", "\x00", mine.session.session_key or ""):
            browser(people.other).post(SESSIONS, {"session": value})
        assert is_signed_in(mine)

    def test_one_that_began_before_the_list_is_in_it(self, people: People) -> None:
        client = client_of(people.owner)
        assert "This browser" in client.get(SESSIONS).content.decode()
        assert UserSession.objects.filter(user=people.owner.user).count() == 1

    def test_what_ended_another_way_is_not_in_it(self, people: People) -> None:
        here, gone = browser(people.owner), browser(people.owner)
        gone.post("/accounts/sign-out/")
        assert session_rows(here) == []

    def test_a_changed_password_keeps_this_one_in_it(self, people: People) -> None:
        here = browser(people.owner)
        browser(people.owner)
        form = {"old_password": PASSWORD, "new_password1": NEW_PASSWORD}
        here.post(CHANGE, {**form, "new_password2": NEW_PASSWORD})
        page = here.get(SESSIONS).content.decode()
        assert "This browser" in page
        assert session_rows(here) == []
        assert mail.outbox[-1].to == [people.owner.user.email]

    def test_of_too_many_the_oldest_end(
        self, people: People, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(adapters, "MAX_SESSIONS", 3)
        clients = [browser(people.owner) for _ in range(5)]
        assert [is_signed_in(client) for client in clients] == [False, False, True, True, True]

    def test_addresses_come_from_proxies_of_ours_alone(self, people: People, settings: Any) -> None:
        for count, shown in ((0, "192.0.2.7"), (1, "203.0.113.9"), (2, "198.51.100.1")):
            settings.TRUSTED_PROXY_COUNT = count
            client = Client(headers={"X-Forwarded-For": "198.51.100.1, 203.0.113.9"})
            sign_in(client, people.owner.user.email, address="192.0.2.7")
            assert UserSession.objects.latest("created_at").ip == shown

    @pytest.mark.parametrize("address", ["", "unix:", "not an address"])
    def test_an_unknown_address_costs_nobody_the_sign_in(
        self, people: People, address: str
    ) -> None:
        assert sign_in(Client(), people.owner.user.email, address=address).status_code == 302

    def test_a_form_of_another_site_ends_none(self, people: People) -> None:
        client = client_of(people.owner, enforce_csrf_checks=True)
        assert client.post(SESSIONS, {"others": "1"}).status_code == 403


class TestTokensPage:
    def secret_of(self, page: Any) -> str:
        found = re.search(r">(t_[\w-]{43})</textarea>", page.content.decode())
        assert found, page.content.decode()
        return found.group(1)

    def make(self, person: Person, **form: str) -> Any:
        wanted = {"name": "laptop", "power": "write", "days": "90", **form}
        return client_of(person).post(TOKENS, wanted)

    def test_the_secret_is_shown_once_and_works(self, people: People) -> None:
        page = self.make(people.owner, power="read", days="30")
        assert "no-store" in page.headers["Cache-Control"]
        secret = self.secret_of(page)
        assert works(secret)
        token = tokens.find(secret)
        assert (token.name, token.scopes) == ("laptop", ["read"])
        assert token.expires is not None
        assert timedelta(29) < token.expires - timezone.now() < timedelta(31)
        assert secret not in client_of(people.owner).get(TOKENS).content.decode()

    @pytest.mark.parametrize(
        "form",
        [{"name": ""}, {"name": "x" * 101}, {"power": "admin"}, {"days": "7"}, {"days": "x"}],
    )
    def test_mistakes_are_told(self, people: People, form: dict[str, str]) -> None:
        before = ApiToken.objects.count()
        assert 'class="errorlist"' in self.make(people.owner, **form).content.decode()
        assert ApiToken.objects.count() == before

    def test_one_that_does_not_end(self, people: People) -> None:
        assert tokens.find(self.secret_of(self.make(people.owner, days="0"))).expires is None

    @pytest.mark.parametrize(("overlap", "old_works"), [("0", False), ("1h", True), ("x", False)])
    def test_a_new_secret(self, people: People, overlap: str, old_works: bool) -> None:
        url = f"{TOKENS}{people.owner.token.external_id}/rotate/"
        page = client_of(people.owner).post(url, {"overlap": overlap})
        assert works(self.secret_of(page))
        assert works(people.owner.secret) is old_works
        again = client_of(people.owner).post(url, follow=True)
        assert "was replaced already" in again.content.decode()

    def test_revoking(self, people: People) -> None:
        url = f"{TOKENS}{people.owner.token.external_id}/revoke/"
        client = client_of(people.owner)
        assert "test is revoked" in client.post(url, follow=True).content.decode()
        assert not works(people.owner.secret)
        assert "You have none" in client.get(TOKENS).content.decode()

    @pytest.mark.parametrize("verb", ["rotate", "revoke"])
    def test_another_s_and_missing_look_the_same(self, people: People, verb: str) -> None:
        client = client_of(people.other)
        answers = [
            client.post(f"{TOKENS}{name}/{verb}/")
            for name in (people.owner.token.external_id, f"t_{'0' * 32}", "x")
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert works(people.owner.secret)
        assert client.get(f"{TOKENS}{people.other.token.external_id}/{verb}/").status_code == 405

    def test_at_the_limit_it_says_so(self, people: People) -> None:
        for number in range(tokens.MAX_LIVE - 1):
            tokens.create(people.owner.user, f"t{number}")
        client = client_of(people.owner)
        form = {"name": "one too many", "power": "write", "days": "90"}
        page = client.post(TOKENS, form, follow=True).content.decode()
        assert "You have as many API tokens as one person may have" in page

    def test_names_are_shown_and_not_run(self, people: People) -> None:
        self.make(people.owner, name="<script>alert(1)</script>")
        assert "<script>alert" not in client_of(people.owner).get(TOKENS).content.decode()

    def test_an_api_token_opens_no_page(self, people: People) -> None:
        headers = {"Authorization": f"Bearer {people.owner.secret}"}
        assert Client().get(TOKENS, headers=headers).headers["Location"].startswith(SIGN_IN)


class TestFirstPassword:
    """Of somebody who signs in without one: by an identity provider or a passkey."""

    SET = "/accounts/set-password/"
    CODE = "/accounts/reauthenticate/code/"

    @pytest.fixture
    def person(self) -> Person:
        person = make_person("sso")
        person.user.set_unusable_password()
        person.user.save()
        return person

    def ask(self, client: Client, person: Person) -> Any:
        return client.post(self.CODE, {"recipient": person.user.email, "next": self.SET})

    def test_a_mailed_code_proves_who_it_is(self, person: Person) -> None:
        client = client_of(person)
        assert client.get(CHANGE).headers["Location"] == self.SET
        assert client.get(self.SET).headers["Location"].startswith(self.CODE)
        assert f'value="{person.user.email}"' in client.get(self.CODE).content.decode()
        asked = self.ask(client, person)
        assert asked.status_code == 302, asked.content
        code = re.search(r"^([A-Z0-9-]{5,20})$", str(mail.outbox[0].body), re.MULTILINE)
        assert code, mail.outbox[0].body
        assert mail.outbox[0].to == [person.user.email]
        proved = client.post(asked.headers["Location"], {"code": code.group(1)})
        assert proved.headers["Location"] == self.SET
        form = {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD}
        assert client.post(self.SET, form).headers["Location"] == "/accounts/password-changed/"
        assert is_signed_in(client)
        assert sign_in(Client(), person.user.email, NEW_PASSWORD).headers["Location"] == "/"

    def test_it_is_not_for_somebody_with_a_password(self, people: People) -> None:
        """A mailbox and a stolen session together must not turn a second step off."""
        client = client_of(people.owner)
        answer = self.ask(client, people.owner)
        assert answer.headers["Location"].startswith("/accounts/reauthenticate/?")
        assert not mail.outbox

    def test_guessing_the_code_ends_it(self, person: Person) -> None:
        client = client_of(person)
        confirm = self.ask(client, person).headers["Location"]
        answers = [client.post(confirm, {"code": "AAAAAA"}) for _ in range(4)]
        assert answers[-1].status_code == 302
        assert client.get(self.SET).status_code == 302

    def test_codes_are_few(self, person: Person) -> None:
        client = client_of(person)
        assert [self.ask(client, person).status_code for _ in range(6)][-1] == 429
        assert len(mail.outbox) == 5


def test_every_page_is_for_people_who_are_signed_in_and_kept_nowhere(people: People) -> None:
    for url in (
        "/accounts/",
        SESSIONS,
        TOKENS,
        CHANGE,
        "/accounts/email/",
        "/accounts/connections/",
    ):
        for client in (Client(), client_of(people.disabled)):
            answer = client.get(url)
            assert answer.headers["Location"] == f"{SIGN_IN}?next={url}", url
        answer = client_of(people.owner).get(url)
        assert answer.status_code == 200, url
        assert "no-store" in answer.headers["Cache-Control"], url
        assert sign_in(Client(), people.owner.user.email, next=url).headers["Location"] == url


def test_users_that_others_make_count_as_confirmed(people: People) -> None:
    boss = make_person("boss", is_staff=True, is_superuser=True)
    form = {"email": "Made@example.org", "usable_password": "true", "name": ""}
    made = client_of(boss).post(
        "/admin/accounts/user/add/", {**form, "password1": PASSWORD, "password2": PASSWORD}
    )
    assert made.status_code == 302, made.content.decode()
    assert User.objects.filter(email__iexact="made@example.org").exists()
    first = sign_in(Client(), "made@example.org").headers["Location"]
    assert first.startswith(CHANGE)  # with a one-time password, and without a mail
    assert not mail.outbox
