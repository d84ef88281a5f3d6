"""Sign in, sign out, sign up, change the password, and the admin's door, as a browser sees them."""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache
from django.test import Client, override_settings
from redis.exceptions import RedisError

from accounts import passwords
from accounts.authentication import credential_of_request
from accounts.errors import PasswordChangeRequired
from accounts.models import User
from chatproject.embedded.ports import free_port
from tests.integration.account_room import (
    CHANGE,
    ELSEWHERE,
    NEW_PASSWORD,
    SIGN_IN,
    SIGN_OUT,
    SIGN_UP,
    is_signed_in,
    sign_in,
    sign_up_form,
)
from tests.people import PASSWORD, Person, bearer, client_of, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]


@pytest.fixture
def owner() -> Person:
    return make_person("owner")


class TestSignIn:
    def test_the_page_works_without_javascript(self) -> None:
        page = Client().get(SIGN_IN).content.decode()
        # Scripts are for passkeys alone, whose button is disabled until they run.
        form = page[page.index("<form") : page.index("</form>")]
        assert "<script" not in form
        assert "disabled" not in form
        assert re.search(r'<button[^>]*id="passkey-sign-in"[^>]* disabled>', page)
        assert 'autocomplete="username"' in page
        assert 'autocomplete="current-password"' in page
        assert 'type="email"' in page

    def test_address_and_password_let_in(self, owner: Person) -> None:
        client = Client()
        assert not is_signed_in(client)
        response = sign_in(client, owner.user.email.upper())
        assert (response.status_code, response.url) == (302, "/")
        assert is_signed_in(client)

    def test_a_form_without_csrf_token_is_refused(self, owner: Person) -> None:
        client = Client(enforce_csrf_checks=True)
        assert sign_in(client, owner.user.email).status_code == 403
        assert not is_signed_in(client)

    def test_unknown_address_wrong_password_and_disabled_look_the_same(self, owner: Person) -> None:
        disabled = make_person("disabled", is_active=False)
        pages = []
        for email, password in [
            ("nobody@example.org", PASSWORD),
            (owner.user.email, "wrong"),
            (disabled.user.email, PASSWORD),
            (disabled.user.email, "wrong"),
        ]:
            response = sign_in(Client(), email, password)
            assert response.status_code == 200
            page = response.content.decode().replace(email, "ADDRESS")
            pages.append(page.replace(str(response.context["csrf_token"]), "CSRF"))
        assert len(set(pages)) == 1
        assert "do not belong together" in pages[0]

    def test_the_typed_password_does_not_come_back(self, owner: Person) -> None:
        page = sign_in(Client(), owner.user.email, "typed in vain").content.decode()
        assert owner.user.email in page
        assert "typed in vain" not in page

    @pytest.mark.parametrize(
        "email", ["a\x00b@example.org", "x" * 10_000, "", "\u0131@example.org"]
    )
    def test_strange_addresses_are_only_wrong(self, email: str) -> None:
        assert sign_in(Client(), email).status_code == 200

    def test_a_very_long_password_is_only_wrong(self, owner: Person) -> None:
        assert sign_in(Client(), owner.user.email, "x" * 500_000).status_code == 200

    def test_a_cookie_with_nul_in_it_is_only_a_wrong_cookie(self, settings: Any) -> None:
        settings.SESSION_ENGINE = "accounts.sessions"
        client = Client(headers={"Cookie": 'sessionid="abcdefgh\\000abcdefgh"'})
        assert client.get(CHANGE).headers["Location"].startswith(SIGN_IN)

    def test_next_is_kept_through_page_and_mistakes(self, owner: Person) -> None:
        client = Client()
        assert 'value="/c/c_1?a=b"' in client.get(SIGN_IN, {"next": "/c/c_1?a=b"}).content.decode()
        wrong = sign_in(client, owner.user.email, "wrong", next="/c/c_1?a=b")
        assert 'value="/c/c_1?a=b"' in wrong.content.decode()
        assert "next=%2Fc%2Fc_1%3Fa%3Db" in wrong.content.decode()  # to sign-up
        assert sign_in(client, owner.user.email, next="/c/c_1?a=b").url == "/c/c_1?a=b"

    @pytest.mark.parametrize("wanted", ELSEWHERE)
    def test_next_leads_nowhere_else(self, owner: Person, wanted: str) -> None:
        client = Client()
        assert "evil" not in client.get(SIGN_IN, {"next": wanted}).content.decode()
        assert sign_in(client, owner.user.email, next=wanted).url == "/"
        # … nor for who is signed in already.
        assert client.get(SIGN_IN, {"next": wanted}).headers["Location"] == "/"

    @pytest.mark.parametrize("wanted", [SIGN_IN, SIGN_IN + "?next=/x", SIGN_OUT])
    def test_next_leads_into_no_circle(self, owner: Person, wanted: str) -> None:
        client = client_of(owner)
        assert client.get(SIGN_IN, {"next": wanted}).headers["Location"] == "/"

    def test_no_password_in_any_log(self, owner: Person, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            sign_in(Client(), owner.user.email)
            sign_in(Client(), owner.user.email, "guess-7f3a")
            Client().post(SIGN_UP, sign_up_form())
        assert PASSWORD not in caplog.text
        assert "guess-7f3a" not in caplog.text


class TestSignOut:
    def test_post_ends_the_session(self, owner: Person) -> None:
        client = client_of(owner)
        assert is_signed_in(client)
        assert client.post(SIGN_OUT).headers["Location"] == SIGN_IN
        assert not is_signed_in(client)

    def test_get_only_shows_the_button(self, owner: Person) -> None:
        client = client_of(owner)
        assert 'method="post"' in client.get(SIGN_OUT).content.decode()
        assert is_signed_in(client)

    def test_another_site_cannot_sign_people_out(self, owner: Person) -> None:
        client = client_of(owner, enforce_csrf_checks=True)
        assert client.post(SIGN_OUT).status_code == 403
        assert is_signed_in(client)

    @pytest.mark.parametrize("wanted", ELSEWHERE)
    def test_next_leads_nowhere_else(self, owner: Person, wanted: str) -> None:
        response = client_of(owner).post(SIGN_OUT, {"next": wanted})
        assert response.headers["Location"] == SIGN_IN


class TestChangePassword:
    def change(self, client: Client, old: str, new: str = NEW_PASSWORD, **more: str) -> Any:
        form = {"old_password": old, "new_password1": new, "new_password2": new, **more}
        return client.post(CHANGE, form)

    def test_it_needs_a_session(self) -> None:
        assert Client().get(CHANGE).headers["Location"] == f"{SIGN_IN}?next={CHANGE}"

    def test_a_new_password_keeps_this_session_and_ends_the_others(self, owner: Person) -> None:
        here, there = client_of(owner), client_of(owner)
        assert self.change(here, PASSWORD).headers["Location"] == "/accounts/password-changed/"
        assert here.get("/accounts/password-changed/").status_code == 200
        assert is_signed_in(here)
        assert not is_signed_in(there)
        assert sign_in(Client(), owner.user.email, NEW_PASSWORD).status_code == 302

    def test_the_present_password_must_be_right(self, owner: Person) -> None:
        assert self.change(client_of(owner), "wrong").status_code == 200
        owner.user.refresh_from_db()
        assert owner.user.check_password(PASSWORD)

    def test_a_one_time_password_leads_here_and_ends_here(self, owner: Person) -> None:
        owner.user.preferences = {passwords.IS_TEMPORARY: True, "theme": "dark"}
        owner.user.save()
        client = Client()
        first = urlsplit(sign_in(client, owner.user.email, next="/c/c_1").url)
        assert first.path == CHANGE
        assert parse_qs(first.query) == {"next": ["/c/c_1"]}
        assert "one-time password" in client.get(CHANGE).content.decode()
        kept = self.change(client, PASSWORD, PASSWORD)
        assert "Choose another password" in kept.content.decode()
        assert self.change(client, PASSWORD, next="/c/c_1").headers["Location"] == "/c/c_1"
        owner.user.refresh_from_db()
        assert owner.user.preferences == {"theme": "dark"}
        assert sign_in(Client(), owner.user.email, NEW_PASSWORD).url == "/"

    @pytest.mark.parametrize("broken", [[], ["password_is_temporary"], "x", 3])
    def test_preferences_that_are_no_object_lock_nobody_out(
        self, owner: Person, broken: object
    ) -> None:
        User.objects.filter(id=owner.user.id).update(preferences=broken)
        client = Client()
        assert sign_in(client, owner.user.email).url == "/"
        assert self.change(client, PASSWORD).status_code == 302
        owner.user.refresh_from_db()
        assert owner.user.preferences == {}

    def test_guesses_are_limited(self, owner: Person) -> None:
        client = client_of(owner)
        assert [self.change(client, "guess").status_code for _ in range(11)][-2:] == [200, 429]


class TestOneTimePassword:
    """It opens the door to choosing one's own, and no other."""

    @pytest.fixture
    def newcomer(self) -> Person:
        temporary = {passwords.IS_TEMPORARY: True}
        return make_person("new", is_staff=True, is_superuser=True, preferences=temporary)

    @pytest.mark.urls("chatproject.urls")
    @pytest.mark.parametrize(
        "url", ["/", "/c/c_1?a=b", "/admin/", "/admin/accounts/user/", "/admin/password_change/"]
    )
    def test_every_page_leads_to_the_change(self, newcomer: Person, url: str) -> None:
        answer = client_of(newcomer).get(url)
        assert answer.status_code == 302
        to = urlsplit(answer.headers["Location"])
        assert (to.path, parse_qs(to.query)) == (CHANGE, {"next": [url]})

    @pytest.mark.parametrize("url", ["/admin/accounts/user/add/", SIGN_UP])
    def test_nothing_is_done_before_it(self, newcomer: Person, url: str) -> None:
        before = User.objects.count()
        answer = client_of(newcomer).post(url, sign_up_form())
        assert answer.headers["Location"].startswith(CHANGE)
        assert User.objects.count() == before

    def test_the_admin_has_no_way_around_ours(self, newcomer: Person) -> None:
        boss = make_person("boss", is_staff=True, is_superuser=True)
        form = {"old_password": PASSWORD, "new_password1": NEW_PASSWORD}
        form["new_password2"] = NEW_PASSWORD
        for person in (newcomer, boss):
            answer = client_of(person).post("/admin/password_change/", form)
            assert answer.headers["Location"].startswith(CHANGE)
            person.user.refresh_from_db()
            assert person.user.check_password(PASSWORD)

    def test_the_api_says_so_to_the_session_but_not_to_an_api_token(self, newcomer: Person) -> None:
        client = client_of(newcomer)
        answer = client.get("/v1/things")
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "password_change_required"
        assert client.get("/v1/things", headers=bearer(newcomer)).status_code == 200

    def test_streams_say_so_too(self, newcomer: Person) -> None:
        cookie = f"sessionid={client_of(newcomer).cookies['sessionid'].value}"
        with pytest.raises(PasswordChangeRequired):
            credential_of_request([(b"cookie", cookie.encode())])

    def test_signing_out_stays_possible(self, newcomer: Person) -> None:
        client = client_of(newcomer)
        assert 'method="post"' in client.get(SIGN_OUT).content.decode()
        assert client.post(SIGN_OUT).headers["Location"] == SIGN_IN
        assert client.get(CHANGE).headers["Location"].startswith(SIGN_IN)

    def test_after_the_change_every_door_is_open(self, newcomer: Person) -> None:
        client = client_of(newcomer)
        form = {"old_password": PASSWORD, "new_password1": NEW_PASSWORD}
        assert client.post(CHANGE, {**form, "new_password2": NEW_PASSWORD}).status_code == 302
        assert client.get("/admin/").status_code == 200
        assert is_signed_in(client)

    @pytest.mark.urls("chatproject.urls")
    def test_asking_costs_no_query(self, owner: Person, django_assert_num_queries: Any) -> None:
        client = client_of(owner)
        with django_assert_num_queries(2):  # the session and its user, for the page itself
            assert client.get("/").status_code == 200
        with django_assert_num_queries(0):
            assert Client().get("/").status_code == 302


class TestRateLimits:
    def test_the_eleventh_try_at_an_account_is_refused_though_the_password_is_right(
        self, owner: Person
    ) -> None:
        for _ in range(10):
            assert sign_in(Client(), owner.user.email, "guess").status_code == 200
        client = Client()
        response = sign_in(client, owner.user.email)
        assert response.status_code == 429
        assert 1 <= int(response.headers["Retry-After"]) <= 300
        assert "Too many tries" in response.content.decode()
        assert not is_signed_in(client)

    def test_writing_the_address_another_way_gives_no_more_tries(self, owner: Person) -> None:
        email = owner.user.email
        wide = "".join(chr(ord(sign) + 0xFEE0) for sign in email)  # full-width letters
        spellings = [
            email.upper(),
            f" {email} ",
            wide,
            wide.upper(),
            f"\u3000{wide[:3]}{email[3:]}",
        ]
        for spelling in spellings:
            assert sign_in(Client(), spelling).status_code == 302  # each names this account
            sign_in(Client(), spelling, "guess")
        assert [sign_in(Client(), spelling).status_code for spelling in spellings] == [429] * 5

    def test_others_are_not_locked_out(self, owner: Person) -> None:
        for _ in range(40):
            sign_in(Client(), owner.user.email, "guess")
        assert sign_in(Client(), owner.user.email).status_code == 429
        # From elsewhere the owner gets in, and at this address other people do.
        assert sign_in(Client(), owner.user.email, address="192.0.2.99").status_code == 302
        assert sign_in(Client(), make_person("other").user.email).status_code == 302

    def test_one_address_may_not_try_many_accounts(self) -> None:
        for number in range(100):
            assert sign_in(Client(), f"p{number}@example.org", "x" * 1001).status_code == 200
        assert sign_in(Client(), "q@example.org", "x" * 1001).status_code == 429

    def test_who_wants_json_gets_the_shape(self, owner: Person) -> None:
        headers = {"Accept": "application/json"}
        for _ in range(11):
            response = sign_in(Client(), owner.user.email, "guess", headers=headers)
        assert response.status_code == 429
        error = response.json()["error"]
        assert error["code"] == "rate_limited"
        assert str(error["retry_after_s"]) == response.headers["Retry-After"]

    def test_sign_up_is_limited_by_address(self) -> None:
        form = sign_up_form("not an address")
        statuses = [
            Client().post(SIGN_UP, {**form, "email": f"{n}"}).status_code for n in range(31)
        ]
        assert statuses == [200] * 30 + [429]

    def test_a_forwarded_address_counts_only_behind_a_proxy_of_ours(
        self, owner: Person, settings: Any
    ) -> None:
        def tries(count: int) -> list[int]:
            cache.clear()
            return [
                sign_in(
                    Client(),
                    owner.user.email,
                    "guess",
                    headers={"X-Forwarded-For": f"203.0.113.{n}, 198.51.100.7"},
                ).status_code
                for n in range(count)
            ]

        settings.TRUSTED_PROXY_COUNT = 0
        assert tries(11)[-1] == 429  # the header is anybody's to write
        settings.TRUSTED_PROXY_COUNT = 1
        assert tries(11)[-1] == 429  # what stands before our proxy's entry is too
        settings.TRUSTED_PROXY_COUNT = 2
        assert tries(11)[-1] == 200  # now those are twelve clients

    def test_without_redis_people_can_still_sign_in(
        self, owner: Person, caplog: pytest.LogCaptureFixture
    ) -> None:
        gone = f"redis://127.0.0.1:{free_port()}/0"
        away = {"default": {**django_settings.CACHES["default"], "LOCATION": gone}}
        with override_settings(CACHES=away):
            with pytest.raises(RedisError):
                cache.get("x")
            response = sign_in(Client(), owner.user.email)
        assert response.status_code == 302
        assert "rate limits are off" in caplog.text


class TestAdminDoor:
    def test_its_sign_in_page_is_ours(self) -> None:
        client = Client()
        first = client.get("/admin/accounts/user/")
        second = client.get(first.headers["Location"])
        assert second.headers["Location"] == f"{SIGN_IN}?next=/admin/accounts/user/"

    def test_it_takes_no_passwords_itself(self, owner: Person) -> None:
        client = Client()
        form = {"username": owner.user.email, "password": PASSWORD}
        assert client.post("/admin/login/", form).headers["Location"].startswith(SIGN_IN)
        assert not is_signed_in(client)

    def test_an_administrator_gets_in(self) -> None:
        boss = make_person("boss", is_staff=True, is_superuser=True)
        client = Client()
        assert sign_in(client, boss.user.email, next="/admin/").url == "/admin/"
        assert client.get("/admin/").status_code == 200

    def test_somebody_else_is_told_so_and_not_sent_in_circles(self, owner: Person) -> None:
        response = client_of(owner).get("/admin/", follow=True)
        assert response.status_code == 403
        assert len(response.redirect_chain) == 1
