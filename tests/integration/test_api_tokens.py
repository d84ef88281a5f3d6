"""API tokens: what they may do, and who may make, list, rotate and revoke them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.test import Client
from django.utils import timezone

from accounts import scopes, tokens
from accounts.authentication import credential_of_request, credential_of_secret
from accounts.errors import Conflict, InsufficientScope, NotSignedIn, TooManyTokens
from accounts.models import ApiToken
from tests.people import People, Person, bearer, client_of, make_people, make_person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.accounts_urls"),
    pytest.mark.usefixtures("plain_static", "clean_cache"),
]
TOKENS = "/v1/tokens"
THINGS = "/v1/things"
THING = {"title": "x"}


@pytest.fixture
def people() -> People:
    return make_people()


def post(client: Client, url: str, body: object = None, **more: Any) -> Any:
    return client.post(url, {} if body is None else body, content_type="application/json", **more)


def code_of(response: Any) -> str:
    code: str = response.json()["error"]["code"]
    return code


def make(person: Person, **body: object) -> dict[str, Any]:
    response = post(client_of(person), TOKENS, {"name": "laptop", **body})
    assert response.status_code == 201, response.content
    made: dict[str, Any] = response.json()
    return made


def with_secret(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


class TestScopes:
    def test_a_reading_token_reads_and_writes_nothing(self, people: People) -> None:
        headers = with_secret(make(people.owner, scopes=["read"])["secret"])
        assert Client().get(THINGS, headers=headers).status_code == 200
        for method in ("post", "put", "patch", "delete"):
            refused = getattr(Client(), method)(
                THINGS, THING, content_type="application/json", headers=headers
            )
            assert (refused.status_code, code_of(refused)) == (403, "insufficient_scope")

    @pytest.mark.parametrize("held", [["write"], ["read", "write"]])
    def test_write_includes_read(self, people: People, held: list[str]) -> None:
        headers = with_secret(make(people.owner, scopes=held)["secret"])
        assert Client().get(THINGS, headers=headers).status_code == 200
        assert post(Client(), THINGS, THING, headers=headers).status_code == 201

    def test_sessions_have_both(self, people: People) -> None:
        client = client_of(people.owner)
        assert client.get(THINGS).status_code == 200
        assert post(client, THINGS, THING).status_code == 201

    def test_the_scope_counts_before_the_body_is_looked_at(self, people: People) -> None:
        headers = with_secret(make(people.owner, scopes=["read"])["secret"])
        refused = post(Client(), THINGS, {"nonsense": 1}, headers=headers)
        assert code_of(refused) == "insufficient_scope"

    def test_streams_and_sockets_ask_the_same(self, people: People) -> None:
        secret = make(people.owner, scopes=["read"])["secret"]
        headers = [(b"authorization", f"Bearer {secret}".encode())]
        credential = credential_of_request(headers)
        assert credential is not None
        assert scopes.allows(credential, "read")
        assert not scopes.allows(credential, "write")
        with pytest.raises(InsufficientScope):
            credential_of_request(headers, scope="write")
        with pytest.raises(InsufficientScope):
            credential_of_secret(secret, scope="write")
        cookie = f"sessionid={client_of(people.owner).cookies['sessionid'].value}".encode()
        session = credential_of_request([(b"cookie", cookie)], scope="write")
        assert session is not None
        assert scopes.allows(session, "write")

    @pytest.mark.parametrize("wrong", [[], ["admin"], ["read", "admin"]])
    def test_the_database_takes_no_other_scopes(self, people: People, wrong: list[str]) -> None:
        row = ApiToken.objects.filter(id=people.owner.token.id)
        with pytest.raises(IntegrityError), transaction.atomic():
            row.update(scopes=wrong)


class TestMaking:
    def test_a_person_makes_one_and_sees_the_secret_once(self, people: People) -> None:
        made = make(people.owner, scopes=["read"], expires_days=90)
        assert made["name"] == "laptop"
        assert made["scopes"] == ["read"]
        assert made["last_used"] is None
        ends = datetime.fromisoformat(made["expires"]) - timezone.now()
        assert timedelta(days=89) < ends < timedelta(days=91)
        listed = client_of(people.owner).get(TOKENS)
        assert made["secret"] not in listed.content.decode()
        assert {item["id"] for item in listed.json()["items"]} == {
            made["id"],
            people.owner.token.external_id,
        }
        assert "no-store" in listed.headers["Cache-Control"]

    def test_without_choices_it_may_do_both_and_does_not_end(self, people: People) -> None:
        made = make(people.owner)
        assert (made["scopes"], made["expires"]) == (["read", "write"], None)

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            ({}, "name"),
            ({"name": ""}, "name"),
            ({"name": "x" * 101}, "name"),
            ({"name": "a\x00"}, "name"),
            ({"name": "x", "scopes": []}, "scopes"),
            ({"name": "x", "scopes": ["admin"]}, "scopes[0]"),
            ({"name": "x", "scopes": ["read", "read", "read"]}, "scopes"),
            ({"name": "x", "expires_days": 0}, "expires_days"),
            ({"name": "x", "expires_days": 10**9}, "expires_days"),
            ({"name": "x", "expires_days": "9"}, "expires_days"),
            ({"name": "x", "user": "u_1"}, "user"),
        ],
    )
    def test_mistakes_are_named(self, people: People, body: dict[str, object], param: str) -> None:
        response = post(client_of(people.owner), TOKENS, body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param

    def test_nobody_has_more_than_fifty(self, people: People) -> None:
        for number in range(tokens.MAX_LIVE - 1):
            tokens.create(people.owner.user, f"t{number}")
        refused = post(client_of(people.owner), TOKENS, {"name": "one too many"})
        assert (refused.status_code, code_of(refused)) == (409, "too_many_api_tokens")
        make(people.other)  # others are not concerned
        tokens.revoke(people.owner.token)
        make(people.owner)

    @pytest.mark.django_db(transaction=True)
    def test_not_even_at_once(self) -> None:
        user = make_person("ada").user
        for number in range(tokens.MAX_LIVE - 2):
            tokens.create(user, f"t{number}")
        results = at_once(4, lambda: tokens.create(user, "last"))
        assert sum(isinstance(result, TooManyTokens) for result in results) == 3
        assert tokens.live(user).count() == tokens.MAX_LIVE

    def test_a_form_of_another_site_makes_none(self, people: People) -> None:
        client = client_of(people.owner, enforce_csrf_checks=True)
        assert code_of(post(client, TOKENS, {"name": "x"})) == "csrf_failed"


class TestRotation:
    def rotate(self, person: Person, token: str, **body: object) -> Any:
        return post(client_of(person), f"{TOKENS}/{token}:rotate", body)

    def works(self, secret: str) -> bool:
        return Client().get(THINGS, headers=with_secret(secret)).status_code == 200

    def test_at_once_the_old_secret_ends_and_the_new_one_has_its_powers(
        self, people: People
    ) -> None:
        old = make(people.owner, scopes=["read"], expires_days=10)
        response = self.rotate(people.owner, old["id"])
        assert response.status_code == 201
        new = response.json()
        assert new["secret"] != old["secret"]
        assert (new["name"], new["scopes"]) == (old["name"], old["scopes"])
        assert new["expires"] > old["expires"]  # as long a life, from now
        assert self.works(new["secret"])
        refused = Client().get(THINGS, headers=with_secret(old["secret"]))
        assert (refused.status_code, code_of(refused)) == (401, "api_token_revoked")

    def test_for_an_overlap_both_work(self, people: People) -> None:
        old = make(people.owner)
        new = self.rotate(people.owner, old["id"], overlap_s=60).json()
        assert self.works(old["secret"])
        assert self.works(new["secret"])
        with pytest.raises(NotSignedIn) as refused:
            tokens.find(old["secret"], now=timezone.now() + timedelta(seconds=61))
        assert refused.value.code == "api_token_expired"
        items = client_of(people.owner).get(TOKENS).json()["items"]
        assert [item["replaced"] for item in items if item["id"] == old["id"]] == [True]

    def test_an_overlap_prolongs_no_life(self, people: People) -> None:
        made, secret = tokens.create(
            people.owner.user, "short", timezone.now() + timedelta(seconds=30)
        )
        tokens.rotate(made, timedelta(hours=1))
        with pytest.raises(NotSignedIn):
            tokens.find(secret, now=timezone.now() + timedelta(seconds=31))

    @pytest.mark.parametrize("overlap", [-1, 86_401, 1.5, "60", True])
    def test_the_overlap_has_limits(self, people: People, overlap: object) -> None:
        response = self.rotate(people.owner, people.owner.token.external_id, overlap_s=overlap)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "overlap_s")

    def test_one_that_ended_or_was_replaced_is_not_rotated_again(self, people: People) -> None:
        old = make(people.owner)
        assert self.rotate(people.owner, old["id"], overlap_s=60).status_code == 201
        again = self.rotate(people.owner, old["id"], overlap_s=60)
        assert (again.status_code, code_of(again)) == (409, "conflict")
        tokens.revoke(people.owner.token)
        assert self.rotate(people.owner, people.owner.token.external_id).status_code == 409

    def test_it_is_possible_at_the_limit(self, people: People) -> None:
        for number in range(tokens.MAX_LIVE - 1):
            tokens.create(people.owner.user, f"t{number}")
        both = self.rotate(people.owner, people.owner.token.external_id, overlap_s=60)
        assert (both.status_code, code_of(both)) == (409, "too_many_api_tokens")
        assert self.rotate(people.owner, people.owner.token.external_id).status_code == 201
        assert tokens.live(people.owner.user).count() == tokens.MAX_LIVE

    @pytest.mark.django_db(transaction=True)
    def test_of_two_at_once_one_wins(self) -> None:
        person = make_person("ada")
        results = at_once(4, lambda: tokens.rotate(person.token))
        assert sum(isinstance(result, Conflict) for result in results) == 3
        assert tokens.live(person.user).count() == 1


class TestAccess:
    CALLS = (
        ("get", TOKENS),
        ("post", TOKENS),
        ("post", TOKENS + "/{t}:rotate"),
        ("delete", TOKENS + "/{t}"),
    )

    def call(self, client: Client, method: str, url: str, person: Person, **more: Any) -> Any:
        url = url.format(t=person.token.external_id)
        body = {"name": "x"} if url == TOKENS else {}
        if method == "get":
            return client.get(url, **more)
        return getattr(client, method)(url, body, content_type="application/json", **more)

    @pytest.mark.parametrize(("method", "url"), CALLS)
    def test_no_api_token_may_not_even_its_own(self, people: People, method: str, url: str) -> None:
        before = ApiToken.objects.count()
        for client in (Client(), client_of(people.owner)):
            answer = self.call(client, method, url, people.owner, headers=bearer(people.owner))
            assert (answer.status_code, code_of(answer)) == (403, "session_required")
        assert ApiToken.objects.count() == before
        assert not ApiToken.objects.filter(revoked__isnull=False).exists()

    @pytest.mark.parametrize(("method", "url"), CALLS)
    def test_nobody_and_disabled_people_may_not(
        self, people: People, method: str, url: str
    ) -> None:
        for client in (Client(), client_of(people.disabled)):
            assert self.call(client, method, url, people.owner).status_code == 401

    @pytest.mark.parametrize(("method", "url"), CALLS[2:])
    def test_another_s_and_missing_and_nonsense_look_the_same(
        self, people: People, method: str, url: str
    ) -> None:
        client = client_of(people.other)
        answers = [
            getattr(client, method)(url.format(t=name), {}, content_type="application/json")
            for name in (people.owner.token.external_id, f"t_{'0' * 32}", "t_x", "u_1", "%00")
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert len({answer.content for answer in answers}) == 1
        people.owner.token.refresh_from_db()
        assert people.owner.token.revoked is None

    def test_the_list_is_one_s_own(self, people: People) -> None:
        items = client_of(people.other).get(TOKENS).json()["items"]
        assert [item["id"] for item in items] == [people.other.token.external_id]

    def test_revoking_ends_it_at_once_and_twice_is_no_error(self, people: People) -> None:
        client = client_of(people.owner)
        url = f"{TOKENS}/{people.owner.token.external_id}"
        for _ in range(2):
            assert client.delete(url).status_code == 204
        refused = Client().get(THINGS, headers=bearer(people.owner))
        assert code_of(refused) == "api_token_revoked"
        assert client.get(TOKENS).json()["items"] == []


def at_once(count: int, call: Callable[[], object]) -> list[object]:
    """The results, or exceptions, of so many calls that begin together."""
    together = Barrier(count)

    def attempt(_: int) -> object:
        together.wait(60)
        try:
            return call()
        except Exception as error:  # noqa: BLE001 — the test looks at it
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(attempt, range(count)))
