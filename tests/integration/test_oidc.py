"""Sign-in at an identity provider: a real one on 127.0.0.1, over HTTP."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.core import mail
from django.core.checks import run_checks
from django.test import Client

from accounts.models import User
from accounts.oidc import InvalidProviders, parse_providers
from tests.integration.account_room import (
    ELSEWHERE,
    SECOND_STEP,
    SENT,
    SIGN_IN,
    is_signed_in,
    last_link,
    sign_in,
)
from tests.integration.test_second_factor import next_code, prove, turn_on
from tests.oidc_server import CLIENT_ID, CLIENT_SECRET, OidcProvider, oidc_provider
from tests.people import PASSWORD, Person, client_of, make_person
from tests.phone import PATIENT

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]
LOGIN = "/accounts/oidc/corp/login/"
CONNECTIONS = "/accounts/connections/"
PERSON = {"sub": "s-1", "email": "ada@corp.example", "email_verified": True, "name": "Ada L"}


@pytest.fixture(scope="module")
def server() -> Iterator[OidcProvider]:
    with oidc_provider() as provider:
        yield provider


@pytest.fixture
def provider(server: OidcProvider, settings: Any) -> OidcProvider:
    server.claims = dict(PERSON)
    server.token_changes, server.userinfo_changes = {}, {}
    server.broken, server.signing_key, server.algorithm = "", None, "RS256"
    server.asked.clear()
    configure(settings, server)
    return server


def configure(settings: Any, provider: OidcProvider, **more: Any) -> None:
    settings.OIDC_PROVIDERS = json.dumps([{**entry(provider.url), **more}])
    settings.SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {
            **settings.SOCIALACCOUNT_PROVIDERS["openid_connect"],
            "APPS": parse_providers(settings.OIDC_PROVIDERS),
        }
    }


def entry(url: str = "https://id.example", **more: Any) -> dict[str, Any]:
    return {
        "id": "corp",
        "name": "Corp",
        "server_url": url,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        **more,
    }


def begin(client: Client, **form: str) -> str:
    """Where the browser is sent to."""
    page = client.post(LOGIN, form)
    assert page.status_code == 200, page.content
    found = re.search(r'href="(http://127[^"]+)"', page.content.decode())
    assert found
    return html.unescape(found.group(1))


def way_back(address: str) -> str:
    """The provider's answer, as the browser follows it: path and query of ours."""
    answer = httpx.get(address, **PATIENT)
    assert answer.status_code == 302
    parts = urlsplit(answer.headers["Location"])
    return f"{parts.path}?{parts.query}"


def through(client: Client, **form: str) -> Any:
    return client.get(way_back(begin(client, **form)))


class TestSigningIn:
    def test_a_new_person_gets_an_account_and_is_in(self, provider: OidcProvider) -> None:
        client = Client()
        assert "Sign in with Corp" in client.get(SIGN_IN).content.decode()
        assert through(client, next="/c/c_1").headers["Location"] == "/c/c_1"
        assert is_signed_in(client)
        user = User.objects.get(email="ada@corp.example")
        assert (user.name, user.has_usable_password()) == ("Ada L", False)
        assert EmailAddress.objects.get(user=user).verified
        assert not mail.outbox
        assert CLIENT_SECRET not in str(list(SocialAccount.objects.values()))

    def test_the_second_time_it_is_the_same_account(self, provider: OidcProvider) -> None:
        through(Client())
        provider.claims["email"] = "married@corp.example"  # the person is the sub, no address
        client = Client()
        through(client)
        assert is_signed_in(client)
        assert User.objects.count() == 1

    def test_what_is_asked_for(self, provider: OidcProvider) -> None:
        asked = parse_qs(urlsplit(begin(Client(), scope="all", auth_params="prompt=none")).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert set(asked["scope"][0].split()) == {"openid", "profile", "email"}
        assert len(asked["nonce"][0]) > 20
        assert "prompt" not in asked

    def test_the_address_in_the_browser_adds_nothing(self, provider: OidcProvider) -> None:
        page = Client().post(f"{LOGIN}?scope=all&auth_params=redirect_uri%3Dhttps://evil.example")
        assert "evil" not in page.content.decode()
        assert "scope=all" not in page.content.decode()

    def test_another_site_cannot_begin_it(self, provider: OidcProvider) -> None:
        assert Client(enforce_csrf_checks=True).post(LOGIN).status_code == 403
        page = Client().get(LOGIN)
        assert 'method="post"' in page.content.decode()
        assert provider.url not in page.content.decode()

    @pytest.mark.parametrize("wanted", ELSEWHERE)
    def test_next_leads_nowhere_else(self, provider: OidcProvider, wanted: str) -> None:
        assert through(Client(), next=wanted).headers["Location"] == "/"

    def test_site_url_is_where_people_come_back_to(
        self, provider: OidcProvider, settings: Any
    ) -> None:
        settings.ALLOWED_HOSTS, settings.SITE_URL = ["*"], "https://chat.example.org"
        page = Client().post(LOGIN, headers={"Host": "evil.example"}).content.decode()
        assert "evil" not in page
        assert "https%3A%2F%2Fchat.example.org%2Faccounts%2Foidc%2Fcorp%2Flogin%2Fcallback" in page

    def test_the_second_step_comes_here_too(self, provider: OidcProvider) -> None:
        through(Client())
        user = User.objects.get()
        user.set_password(PASSWORD)
        user.save()
        secret = turn_on(Person(user, None, ""))  # type: ignore[arg-type]
        client = Client()
        assert through(client).headers["Location"] == SECOND_STEP
        assert not is_signed_in(client)
        client.post(SECOND_STEP, {"code": next_code(secret)})
        assert is_signed_in(client)

    def test_a_disabled_person_stays_outside(self, provider: OidcProvider) -> None:
        through(Client())
        User.objects.update(is_active=False)
        client = Client()
        assert through(client).headers["Location"] == "/accounts/inactive/"
        assert not is_signed_in(client)

    def test_an_unknown_provider_is_not_there(self, provider: OidcProvider) -> None:
        for method in (Client().get, Client().post):
            assert method("/accounts/oidc/other/login/").status_code == 404
            assert method("/accounts/oidc/other/login/callback/").status_code == 404


class TestWhoMay:
    def test_a_closed_sign_up_is_closed_here_too(
        self, provider: OidcProvider, settings: Any
    ) -> None:
        settings.SIGN_UP_OPEN = False
        client = Client()
        assert "New accounts are closed" in through(client).content.decode()
        assert not User.objects.exists()
        assert not is_signed_in(client)

    def test_unless_the_provider_s_own_setting_opens_it(
        self, provider: OidcProvider, settings: Any
    ) -> None:
        settings.SIGN_UP_OPEN = False
        configure(settings, provider, sign_up=True)
        client = Client()
        through(client)
        assert is_signed_in(client)

    def test_or_closes_it_where_it_is_open(self, provider: OidcProvider, settings: Any) -> None:
        configure(settings, provider, sign_up=False)
        assert "New accounts are closed" in through(Client()).content.decode()

    def test_an_unproved_address_is_confirmed_by_a_mail(self, provider: OidcProvider) -> None:
        provider.claims["email_verified"] = False
        client = Client()
        assert through(client).headers["Location"] == SENT
        assert not is_signed_in(client)
        client.post(last_link())
        assert is_signed_in(client)

    def test_unless_the_provider_is_trusted_with_it(
        self, provider: OidcProvider, settings: Any
    ) -> None:
        del provider.claims["email_verified"]
        configure(settings, provider, trust_email=["corp.example"])
        client = Client()
        through(client)
        assert is_signed_in(client)

    def test_without_an_address_it_asks_for_one(self, provider: OidcProvider) -> None:
        for name in ("email", "email_verified"):
            del provider.claims[name]
        client = Client()
        sign_up = through(client).headers["Location"]
        assert "One more thing" in client.get(sign_up).content.decode()
        assert client.post(sign_up, {"email": "own@example.org"}).headers["Location"] == SENT
        assert not is_signed_in(client)
        client.post(last_link())
        assert is_signed_in(client)

    def test_somebody_s_address_opens_no_account_of_theirs(self, provider: OidcProvider) -> None:
        """A provider may say what it likes of addresses."""
        owner = make_person("owner")
        provider.claims["email"] = owner.user.email.upper()
        client = Client()
        assert through(client).headers["Location"] == SENT  # as for an unconfirmed one
        assert not is_signed_in(client)
        assert not SocialAccount.objects.exists()
        assert mail.outbox[0].to == [owner.user.email]

    def test_unless_the_operator_gives_them_to_it(
        self, provider: OidcProvider, settings: Any
    ) -> None:
        owner = make_person("owner")
        configure(settings, provider, link_by_email=True)
        provider.claims["email"] = owner.user.email
        client = Client()
        through(client)
        assert is_signed_in(client)
        assert SocialAccount.objects.get().user == owner.user
        assert sign_in(Client(), owner.user.email).status_code == 302  # the password stays

    def test_and_then_only_where_the_provider_has_proved_it(
        self, provider: OidcProvider, settings: Any
    ) -> None:
        owner = make_person("owner")
        configure(settings, provider, link_by_email=True)
        provider.claims |= {"email": owner.user.email, "email_verified": False}
        client = Client()
        through(client)
        assert not is_signed_in(client)


class TestConnections:
    def connect(self, client: Client) -> Any:
        return through(client, process="connect")

    def test_somebody_who_is_in_connects_and_disconnects(self, provider: OidcProvider) -> None:
        owner = make_person("owner")
        client = client_of(owner)
        assert "Connect Corp" in client.get(CONNECTIONS).content.decode()
        assert self.connect(client).headers["Location"].startswith("/accounts/reauthenticate/")
        prove(client)  # … and the connection that waited is made
        assert SocialAccount.objects.get().user == owner.user
        elsewhere = Client()
        through(elsewhere)
        assert elsewhere.get("/v1/things").json()["user"] == owner.user.external_id
        account = SocialAccount.objects.get().pk
        assert client.post(CONNECTIONS, {"account": account}).status_code == 302
        assert not SocialAccount.objects.exists()

    def test_nobody_disconnects_another_s(self, provider: OidcProvider) -> None:
        through(Client())
        other = client_of(make_person("other"))
        prove(other)
        other.post(CONNECTIONS, {"account": SocialAccount.objects.get().pk})
        assert SocialAccount.objects.exists()

    def test_nobody_takes_over_a_connection(self, provider: OidcProvider) -> None:
        through(Client())
        first = SocialAccount.objects.get().user
        other = client_of(make_person("other"))
        prove(other)
        self.connect(other)
        assert SocialAccount.objects.get().user == first


class TestMisbehaviour:
    """Whatever a provider, or somebody in between, answers: a page, no session, no account."""

    def refused(self, client: Client, answer: Any) -> None:
        assert answer.status_code == 401
        assert "did not confirm who you are" in answer.content.decode()
        assert not is_signed_in(client)
        assert not User.objects.exists()

    @pytest.mark.parametrize(
        "changes",
        [
            {"iss": "https://evil.example"},
            {"aud": "another"},
            {"exp": 1},
            {"nonce": "another"},
            {"nonce": None},
            {"sub": "s-2"},  # userinfo is of another person
        ],
    )
    def test_a_token_for_somebody_or_something_else(
        self, provider: OidcProvider, changes: dict[str, Any]
    ) -> None:
        provider.token_changes = changes
        client = Client()
        self.refused(client, through(client))

    def test_a_token_signed_by_another_key(self, provider: OidcProvider) -> None:
        provider.signing_key = OidcProvider().key
        client = Client()
        self.refused(client, through(client))

    @pytest.mark.parametrize(("algorithm", "key"), [("none", ""), ("HS256", "x" * 64)])
    def test_a_token_signed_by_nobody(
        self, provider: OidcProvider, algorithm: str, key: str
    ) -> None:
        provider.algorithm, provider.signing_key = algorithm, key
        client = Client()
        self.refused(client, through(client))

    @pytest.mark.parametrize("where", ["/token", "/userinfo", "/jwks"])
    def test_a_part_of_it_is_broken(self, provider: OidcProvider, where: str) -> None:
        client = Client()
        back = way_back(begin(client))
        provider.broken = where
        self.refused(client, client.get(back))

    def test_it_is_away(self, provider: OidcProvider, settings: Any) -> None:
        with oidc_provider() as gone:
            pass
        configure(settings, gone)
        client = Client()
        self.refused(client, client.post(LOGIN))

    def test_it_describes_itself_wrongly(self, provider: OidcProvider) -> None:
        provider.broken = "/.well-known/openid-configuration"
        client = Client()
        self.refused(client, client.post(LOGIN))

    @pytest.mark.parametrize("query", ["", "?code=x", "?state=x&code=x", "?error=server_error"])
    def test_a_way_back_that_nobody_began(self, provider: OidcProvider, query: str) -> None:
        client = Client()
        answer = client.get(f"{LOGIN}callback/{query}")
        assert answer.status_code in (401, 403)
        assert not is_signed_in(client)

    def test_another_browser_s_way_back_is_of_no_use(self, provider: OidcProvider) -> None:
        """Else somebody could sign others in to an account of his and read what they write."""
        back = way_back(begin(Client()))
        client = Client()
        assert client.get(back).status_code in (401, 403)
        assert not is_signed_in(client)

    def test_twice(self, provider: OidcProvider) -> None:
        client = Client()
        back = way_back(begin(client))
        assert client.get(back).status_code == 302
        assert client.get(back).status_code in (401, 403)

    def test_the_person_turned_back(self, provider: OidcProvider) -> None:
        client = Client()
        state = parse_qs(urlsplit(begin(client)).query)["state"][0]
        answer = client.get(f"{LOGIN}callback/?error=access_denied&state={state}")
        assert "Nothing was changed" in client.get(answer.headers["Location"]).content.decode()


class TestConfiguration:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("{", "not JSON"),
            ("{}", "list"),
            ("[1]", "object"),
            (json.dumps([{**entry(), "colour": 1}]), "unknown field 'colour'"),
            (json.dumps([{**entry(), "client_id": ""}]), "lacks 'client_id'"),
            (json.dumps([{**entry(), "name": 3}]), "'name' must be a str"),
            (json.dumps([entry(), entry()]), "same id"),
            (json.dumps([{**entry(), "id": "a/b"}]), "stands in addresses"),
            (json.dumps([{**entry(), "server_url": "id.example"}]), "https://"),
            (json.dumps([{**entry(), "server_url": "http://id.example"}]), "only on this machine"),
            (json.dumps([{**entry(), "sign_up": "yes"}]), "'sign_up' must be a bool"),
            (json.dumps([{**entry(), "scopes": ["email"]}]), "'openid'"),
            (json.dumps([{**entry(), "token_auth_method": "jwt"}]), "one of"),
            (json.dumps([{**entry(), "client_secret_file": "/nowhere"}]), "cannot be read"),
        ],
    )
    def test_what_is_wrong_is_named_and_stops_the_start(
        self, text: str, told: str, settings: Any
    ) -> None:
        with pytest.raises(InvalidProviders, match=re.escape(told)):
            parse_providers(text)
        settings.OIDC_PROVIDERS = text
        problems = [problem for problem in run_checks() if problem.id == "accounts.E010"]
        assert len(problems) == 1
        assert CLIENT_SECRET not in str(problems[0])

    def test_none_is_fine(self) -> None:
        assert parse_providers("") == []

    def test_a_secret_may_come_from_a_file(self, tmp_path: Any) -> None:
        file = tmp_path / "secret"
        file.write_text("from a file\n")
        wanted = {**entry(), "client_secret_file": str(file)}
        assert parse_providers(json.dumps([wanted]))[0]["secret"] == "from a file"
