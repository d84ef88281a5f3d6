"""Sign-up, the confirmation of an address, and a forgotten password: everything that needs mail."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.db import connections
from django.test import Client, override_settings

from accounts import passwords
from accounts.forms import SignUpForm
from accounts.models import User
from accounts.preferences import change_preferences
from tests.integration.account_room import (
    NEW_PASSWORD,
    RESET,
    SENT,
    SIGN_IN,
    SIGN_UP,
    MailServer,
    is_signed_in,
    last_link,
    mail_server,
    sign_in,
    sign_up_form,
)
from tests.people import PASSWORD, Person, bearer, client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]
EVIL = "evil.example"


@pytest.fixture
def owner() -> Person:
    return make_person("owner")


class TestSignUp:
    def test_it_makes_an_account_that_a_mail_confirms(self) -> None:
        client = Client()
        response = client.post(SIGN_UP, sign_up_form(next="/c/c_1"))
        assert (response.status_code, response.headers["Location"]) == (302, SENT)
        assert "Look into your mail" in client.get(SENT).content.decode()
        user = User.objects.get(email="new@example.org")
        assert (user.is_staff, user.is_superuser, user.name) == (False, False, "New")
        assert PASSWORD not in user.password
        assert not is_signed_in(client)
        assert mail.outbox[0].to == ["new@example.org"]
        # The link only asks; programs that look at mails press no buttons.
        page = client.get(last_link())
        assert "Yes, it is mine" in page.content.decode()
        assert sign_in(Client(), "new@example.org").headers["Location"] == SENT
        confirmed = client.post(last_link(0))
        assert confirmed.headers["Location"] == "/c/c_1"
        assert is_signed_in(client)

    def test_confirmed_elsewhere_it_signs_nobody_in(self) -> None:
        Client().post(SIGN_UP, sign_up_form())
        elsewhere = Client()
        assert elsewhere.post(last_link()).headers["Location"] == SIGN_IN
        assert not is_signed_in(elsewhere)
        assert sign_in(Client(), "new@example.org").headers["Location"] == "/"

    def test_a_link_works_once_and_only_as_it_is(self) -> None:
        Client().post(SIGN_UP, sign_up_form())
        link = last_link()
        for wrong in (link[:-2] + "x/", "/accounts/confirm-email/abc/"):
            assert "too old" in Client().get(wrong).content.decode()
        assert Client().post(link).status_code == 302
        assert "too old" in Client().get(link).content.decode()

    def test_rights_cannot_be_asked_for(self) -> None:
        Client().post(SIGN_UP, sign_up_form(is_staff="on", is_superuser="on"))
        user = User.objects.get(email="new@example.org")
        assert (user.is_staff, user.is_superuser) == (False, False)

    def test_the_password_rules_are_told(self) -> None:
        assert "at least 10 characters" in Client().get(SIGN_UP).content.decode()

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({"password1": "short", "password2": "short"}, "too short"),
            ({"password1": "1029384756", "password2": "1029384756"}, "numeric"),
            ({"password2": "another one here"}, "match"),
            ({"password1": "x" * 1001, "password2": "x" * 1001}, "At most 1000"),
            ({"email": "not an address"}, "valid email"),
            ({"email": "adm\u0131n@localhost"}, "plain letters"),
            ({"email": ""}, "required"),
            ({"name": "a\x00b"}, "Null characters"),
            ({"name": "x" * 151}, "at most 150"),
        ],
    )
    def test_mistakes_are_told_and_nothing_is_made(
        self, changes: dict[str, str], told: str
    ) -> None:
        before = User.objects.count()
        response = Client().post(SIGN_UP, sign_up_form(**changes))
        assert response.status_code == 200
        assert told in response.content.decode()
        assert User.objects.count() == before

    @pytest.mark.parametrize("change", [str, str.upper])
    def test_taken_and_free_addresses_look_the_same(self, owner: Person, change: Any) -> None:
        """Only the mail differs, which the owner of the address alone reads."""
        taken, free = Client(), Client()
        answers = [
            taken.post(SIGN_UP, sign_up_form(change(owner.user.email))),
            free.post(SIGN_UP, sign_up_form()),
        ]
        assert [(a.status_code, a.headers["Location"]) for a in answers] == [(302, SENT)] * 2
        assert set(taken.cookies) == set(free.cookies)
        shown = [client.get(SENT) for client in (taken, free)]
        assert shown[0].content == shown[1].content
        again = [client.get(SIGN_UP).status_code for client in (taken, free)]
        assert again == [200, 200]
        assert [len(m.to) for m in mail.outbox] == [1, 1]
        assert mail.outbox[0].to == [owner.user.email]
        assert "There is one already" in str(mail.outbox[0].body)
        owner.user.refresh_from_db()
        assert owner.user.check_password(PASSWORD)

    @pytest.mark.django_db(transaction=True)
    def test_of_many_at_once_one_wins_and_none_breaks(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All six find the address free before the first of them takes it."""
        all_have_looked = Barrier(6)
        save = SignUpForm.save

        def save_together(form: SignUpForm, commit: bool = True) -> User:
            all_have_looked.wait(timeout=60)
            return save(form, commit)

        monkeypatch.setattr(SignUpForm, "save", save_together)

        def attempt(number: int) -> int:
            try:
                address = f"192.0.2.{number}"
                return Client().post(SIGN_UP, sign_up_form(), REMOTE_ADDR=address).status_code
            finally:
                connections.close_all()

        with ThreadPoolExecutor(6) as threads:
            statuses = list(threads.map(attempt, range(6)))
        assert statuses == [302] * 6
        assert User.objects.filter(email="new@example.org").count() == 1

    @override_settings(SIGN_UP_OPEN=False)
    def test_closed_it_says_so_and_makes_nothing(self) -> None:
        client = Client()
        assert "New accounts are closed" in client.get(SIGN_UP).content.decode()
        assert SIGN_UP not in client.get(SIGN_IN).content.decode()
        response = client.post(SIGN_UP, sign_up_form())
        assert response.status_code == 403
        assert not User.objects.exists()

    def test_who_is_signed_in_is_sent_on(self, owner: Person) -> None:
        assert client_of(owner).get(SIGN_UP).headers["Location"] == "/"


class TestForgottenPassword:
    def ask(self, email: str, **more: Any) -> Any:
        return Client().post(RESET, {"email": email}, **more)

    def choose(self, client: Client, link: str, password: str = NEW_PASSWORD) -> Any:
        """Follows the link to the form, whose address no longer holds the secret."""
        form_at = client.get(link)
        assert form_at.status_code == 302
        form = {"password1": password, "password2": password}
        return client.post(form_at.headers["Location"], form)

    def test_a_link_leads_to_a_new_password_and_ends_every_session(self, owner: Person) -> None:
        there = client_of(owner)
        assert self.ask(owner.user.email.upper()).headers["Location"] == f"{RESET}sent/"
        assert mail.outbox[0].to == [owner.user.email]
        client = Client()
        link = last_link()
        assert "set-password" in client.get(link).headers["Location"]
        assert self.choose(client, link).headers["Location"] == f"{RESET}changed/"
        assert client.get(f"{RESET}changed/").status_code == 200
        assert not is_signed_in(there)
        assert not is_signed_in(client)
        assert sign_in(Client(), owner.user.email).status_code == 200
        assert sign_in(Client(), owner.user.email, NEW_PASSWORD).status_code == 302
        assert Client().get("/v1/things", headers=bearer(owner)).status_code == 200
        assert "Password changed" in Client().get(f"{RESET}changed/").content.decode()

    def test_a_mail_speaks_its_readers_language_whoever_asks(self, owner: Person) -> None:
        arabic = {"Accept-Language": "ar"}
        Client().post(RESET, {"email": owner.user.email}, headers=arabic)
        change_preferences(owner.user, {"language": "hi"})
        Client().post(RESET, {"email": owner.user.email}, headers=arabic)
        told = [sent.subject for sent in mail.outbox]
        assert [bool(re.search(r"[\u0900-\u097f]", str(subject))) for subject in told] == [
            False,
            True,
        ]

    def test_a_link_works_once(self, owner: Person) -> None:
        self.ask(owner.user.email)
        link = last_link()
        self.choose(Client(), link)
        assert "too old" in Client().get(link).content.decode()

    def test_a_new_password_by_other_means_ends_the_link(self, owner: Person) -> None:
        self.ask(owner.user.email)
        owner.user.set_password(NEW_PASSWORD)
        owner.user.save()
        assert "too old" in Client().get(last_link()).content.decode()

    def test_it_ends_a_one_time_password_and_proves_the_address(self, owner: Person) -> None:
        User.objects.filter(id=owner.user.id).update(preferences={passwords.IS_TEMPORARY: True})
        EmailAddress.objects.filter(user=owner.user).update(verified=False)
        self.ask(owner.user.email)
        self.choose(Client(), last_link())
        assert sign_in(Client(), owner.user.email, NEW_PASSWORD).headers["Location"] == "/"

    def test_known_unknown_and_disabled_addresses_look_the_same(self, owner: Person) -> None:
        disabled = make_person("off", is_active=False)
        answers = [
            self.ask(email)
            for email in (owner.user.email, "nobody@example.org", disabled.user.email)
        ]
        assert len({(a.status_code, a.headers["Location"], a.content) for a in answers}) == 1
        assert [bool(a.cookies) for a in answers] == [bool(answers[0].cookies)] * 3
        assert [m.to for m in mail.outbox] == [
            [owner.user.email],
            ["nobody@example.org"],
            [disabled.user.email],
        ]
        assert "/reset-password/" not in "".join(str(m.body) for m in mail.outbox[1:])

    def test_a_disabled_person_has_no_use_of_an_older_link(self, owner: Person) -> None:
        self.ask(owner.user.email)
        User.objects.filter(id=owner.user.id).update(is_active=False)
        assert "too old" in Client().get(last_link()).content.decode()

    def test_not_even_of_a_form_that_was_open(self, owner: Person) -> None:
        self.ask(owner.user.email)
        client = Client()
        form_at = client.get(last_link()).headers["Location"]
        User.objects.filter(id=owner.user.id).update(is_active=False)
        form = {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD}
        assert "too old" in client.post(form_at, form).content.decode()
        owner.user.refresh_from_db()
        assert owner.user.check_password(PASSWORD)

    @pytest.mark.parametrize(
        "path", ["0" * 32 + "-x", "z" * 32 + "-x", "1-2", "0" * 32 + "-" + "x" * 99]
    )
    def test_made_up_links_are_only_wrong(self, path: str) -> None:
        assert Client().get(f"{RESET}{path}/").status_code in (200, 404)

    @pytest.mark.parametrize("email", ["", "x", "a\x00b@example.org", "own\u0131@example.org"])
    def test_strange_addresses_are_told(self, email: str) -> None:
        assert self.ask(email).status_code == 200
        assert not mail.outbox

    def test_a_look_alike_gets_no_link(self, owner: Person) -> None:
        """U+0130 becomes i with a dot when it is lowered; no mail may leave for such an address."""
        self.ask(owner.user.email.replace("o", "\u00f6", 1))
        assert not mail.outbox

    def test_an_address_that_is_yet_to_be_proved_gets_no_link(self, owner: Person) -> None:
        EmailAddress.objects.create(user=owner.user, email="typo@example.org")
        self.ask("typo@example.org")
        assert "/reset-password/" not in str(mail.outbox[0].body)

    def test_mails_to_one_account_are_few(self, owner: Person) -> None:
        answers = [self.ask(owner.user.email, REMOTE_ADDR=f"192.0.2.{n}") for n in range(6)]
        assert [a.status_code for a in answers] == [302] * 5 + [429]
        assert len(mail.outbox) == 5


class TestLinks:
    """They lead to us, whatever Host a request names."""

    @override_settings(ALLOWED_HOSTS=["*"], SITE_URL="https://chat.example.org")
    def test_to_site_url(self, owner: Person) -> None:
        for url, form in (
            (SIGN_UP, sign_up_form()),
            (SIGN_UP, sign_up_form(owner.user.email)),
            (RESET, {"email": owner.user.email}),
            (RESET, {"email": "nobody@example.org"}),
        ):
            Client().post(url, form, headers={"Host": EVIL})
        assert len(mail.outbox) == 4
        for message in mail.outbox:
            assert EVIL not in str(message.message())
            assert "https://chat.example.org" in str(message.body)

    @override_settings(ALLOWED_HOSTS=[".evil.example", "chat.example.org"], SITE_URL="")
    def test_without_it_to_the_first_name_that_is_allowed(self, owner: Person) -> None:
        Client().post(RESET, {"email": owner.user.email}, headers={"Host": f"x.{EVIL}"})
        assert "http://chat.example.org/accounts/reset-password/" in str(mail.outbox[0].body)
        assert EVIL not in str(mail.outbox[0].message())


class TestChangeOfAddress:
    EMAIL = "/accounts/email/"

    def proved(self, person: Person) -> Client:
        client = client_of(person)
        answer = client.post(self.EMAIL, {"email": "x@example.org", "action_add": "1"})
        assert answer.headers["Location"].startswith("/accounts/reauthenticate/")
        assert not any("x@example.org" in message.to for message in mail.outbox)
        client.post("/accounts/reauthenticate/", {"password": PASSWORD})
        return client

    def test_it_asks_who_it_is_and_replaces_the_old_one_once_it_is_confirmed(
        self, owner: Person
    ) -> None:
        old = owner.user.email
        client = self.proved(owner)
        client.post(self.EMAIL, {"email": "Next@example.org", "action_add": "1"})
        assert mail.outbox[-1].to == ["next@example.org"]
        link = last_link()
        owner.user.refresh_from_db()
        assert owner.user.email == old  # until then
        assert "waits to be confirmed" in client.get("/accounts/").content.decode()
        client.post(link)
        owner.user.refresh_from_db()
        assert owner.user.email == "next@example.org"
        assert mail.outbox[-1].to == [old]  # told where somebody else may have done it
        assert sign_in(Client(), old).status_code == 200
        assert sign_in(Client(), "next@example.org").headers["Location"] == "/"

    def test_a_wrong_password_proves_nothing(self, owner: Person) -> None:
        client = client_of(owner)
        client.post("/accounts/reauthenticate/", {"password": "wrong"})
        client.post(self.EMAIL, {"email": "x@example.org", "action_add": "1"})
        assert not mail.outbox

    def test_guesses_are_limited(self, owner: Person) -> None:
        client = client_of(owner)
        pages = [client.post("/accounts/reauthenticate/", {"password": "guess"}) for _ in range(11)]
        assert "Too many tries" in pages[-1].content.decode()
        right = client.post("/accounts/reauthenticate/", {"password": PASSWORD})
        assert "Too many tries" in right.content.decode()

    def test_nobody_takes_another_s(self, owner: Person) -> None:
        other = make_person("other")
        client = self.proved(owner)
        answer = client.post(self.EMAIL, {"email": other.user.email, "action_add": "1"})
        assert answer.status_code == 302  # as for a free one
        client.post(last_link())
        owner.user.refresh_from_db()
        assert owner.user.email != other.user.email
        assert sign_in(Client(), other.user.email).headers["Location"] == "/"

    def test_not_even_of_somebody_who_has_not_confirmed_theirs(self, owner: Person) -> None:
        Client().post(SIGN_UP, sign_up_form("squat@example.org"))
        client = self.proved(owner)
        client.post(self.EMAIL, {"email": "squat@example.org", "action_add": "1"})
        assert client.post(last_link()).status_code in (200, 302)
        owner.user.refresh_from_db()
        assert owner.user.email != "squat@example.org"

    def test_an_administrator_s_change_needs_no_mail(self, owner: Person) -> None:
        owner.user.email = "Renamed@example.org"
        owner.user.save()
        assert sign_in(Client(), "renamed@example.org").headers["Location"] == "/"
        rows = EmailAddress.objects.filter(user=owner.user)
        assert [(r.email, r.verified, r.primary) for r in rows] == [
            ("renamed@example.org", True, True)
        ]

    def test_it_is_for_people_who_are_signed_in(self) -> None:
        assert Client().get(self.EMAIL).headers["Location"].startswith(SIGN_IN)


class TestMailServer:
    """An uncertain mail server costs a clear page and little time, never a 500."""

    @pytest.mark.parametrize("behaviour", MailServer.behaviours)
    def test_a_sign_up_without_mail_leaves_nothing_behind(
        self, behaviour: str, settings: Any, owner: Person
    ) -> None:
        began = time.monotonic()
        with mail_server(behaviour, settings):
            pages = [
                Client().post(SIGN_UP, sign_up_form(email))
                for email in ("new@example.org", owner.user.email)
            ]
        assert [page.status_code for page in pages] == [503, 503]
        assert pages[0].content == pages[1].content
        assert "could not be sent" in pages[0].content.decode()
        assert int(pages[0].headers["Retry-After"]) > 0
        assert not User.objects.filter(email="new@example.org").exists()
        assert time.monotonic() - began < 60
        # … so that the same person can try again.
        with mail_server("working", settings) as server:
            assert Client().post(SIGN_UP, sign_up_form()).status_code == 302
        assert "new@example.org" in server.received[0]

    @pytest.mark.parametrize("behaviour", MailServer.behaviours)
    def test_a_reset_says_so_whether_the_address_is_known_or_not(
        self, behaviour: str, settings: Any, owner: Person
    ) -> None:
        with mail_server(behaviour, settings):
            pages = [
                Client().post(RESET, {"email": email})
                for email in (owner.user.email, "nobody@example.org")
            ]
        assert [page.status_code for page in pages] == [503, 503]
        assert pages[0].content == pages[1].content

    def test_nobody_listens(self, settings: Any, owner: Person) -> None:
        with mail_server("working", settings):
            pass
        assert Client().post(RESET, {"email": owner.user.email}).status_code == 503

    def test_none_is_named(self, settings: Any, owner: Person) -> None:
        settings.EMAIL_BACKEND = "accounts.mail.NoMailServerBackend"
        assert Client().post(RESET, {"email": owner.user.email}).status_code == 503

    def test_what_only_informs_is_given_up(self, settings: Any, owner: Person) -> None:
        settings.EMAIL_BACKEND = "accounts.mail.NoMailServerBackend"
        form = {"old_password": PASSWORD, "new_password1": NEW_PASSWORD}
        answer = client_of(owner).post(
            "/accounts/change-password/", {**form, "new_password2": NEW_PASSWORD}
        )
        assert answer.headers["Location"] == "/accounts/password-changed/"
        assert sign_in(Client(), owner.user.email, NEW_PASSWORD).status_code == 302

    def test_a_sign_in_with_an_unconfirmed_address_says_so_too(self, settings: Any) -> None:
        Client().post(SIGN_UP, sign_up_form())
        with mail_server("refusing", settings):
            client = Client()
            assert sign_in(client, "new@example.org").status_code == 503
            assert not is_signed_in(client)
