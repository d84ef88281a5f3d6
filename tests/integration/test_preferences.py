"""Theme, language, default model: on the pages of one's account and over `/v1/me/preferences`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from accounts import passwords, preferences
from accounts.models import User
from generation.catalogue import offer_for
from generation.models import Model, Pool
from tests.api_schema import check_answer
from tests.people import Person, bearer, client_of, make_person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_static", "clean_cache")]
PREFERENCES = "/v1/me/preferences"
LOOK = "/accounts/look/"
USAGE = "/accounts/usage/"
NOTHING = {"theme": "system", "language": None, "default_model": None}


@pytest.fixture
def ada() -> Person:
    return make_person()


@pytest.fixture
def models() -> list[str]:
    """Two models with a pool each; the second is the service's default."""
    Model.objects.update(is_default=False)
    for slug in ("little", "large"):
        model = Model.objects.create(slug=slug, title=slug.title(), is_default=slug == "large")
        Pool.objects.create(slug=slug, model=model, profile="p")
    return ["little", "large"]


def patch(client: Client, body: object) -> Any:
    return client.patch(PREFERENCES, json.dumps(body), content_type="application/json")


def stored(person: Person) -> dict[str, Any]:
    found: dict[str, Any] = User.objects.get(pk=person.user.pk).preferences
    return found


class TestTheApi:
    def test_it_reads_and_changes(self, ada: Person) -> None:
        client = client_of(ada)
        answer = client.get(PREFERENCES)
        assert answer.json() == NOTHING
        check_answer("GET", PREFERENCES, 200, "application/json", answer.content)
        answer = patch(client, {"theme": "dark", "language": "ar"})
        assert answer.json() == {**NOTHING, "theme": "dark", "language": "ar"}
        check_answer("PATCH", PREFERENCES, 200, "application/json", answer.content)
        assert patch(client, {"language": None}).json() == {**NOTHING, "theme": "dark"}
        assert patch(client, {}).json() == {**NOTHING, "theme": "dark"}

    @pytest.mark.parametrize(
        "body",
        [
            {"theme": "pink"},
            {"theme": None},
            {"theme": 1},
            {"theme": ["dark"]},
            {"language": "xx"},
            {"language": ""},
            {"language": True},
            {"default_model": 7},
            {"default_model": "x" * 65},
            {"password_is_temporary": False},
            {"colour": "dark"},
        ],
        ids=str,
    )
    def test_it_refuses_what_it_does_not_know(self, ada: Person, body: dict[str, Any]) -> None:
        answer = patch(client_of(ada), body)
        assert answer.status_code == 400, answer.content
        assert answer.json()["error"]["param"] == next(iter(body))
        assert stored(ada) == {}

    def test_a_model_must_be_of_the_plan(self, ada: Person, models: list[str]) -> None:
        client = client_of(ada)
        answer = patch(client, {"default_model": "huge", "theme": "dark"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_model")
        assert stored(ada) == {}
        assert patch(client, {"default_model": "little"}).json()["default_model"] == "little"

    def test_scopes_hold_and_a_program_gets_no_cookies(self, ada: Person) -> None:
        answer = Client().patch(
            PREFERENCES,
            json.dumps({"theme": "dark"}),
            content_type="application/json",
            headers=bearer(ada),
        )
        assert answer.status_code == 200
        assert not answer.cookies
        assert Client().get(PREFERENCES).status_code == 401

    def test_a_one_time_password_stays_one(self, ada: Person) -> None:
        """Its mark lies in the same object of the row."""
        passwords.mark_as_temporary(ada.user)
        ada.user.save()
        preferences.change_preferences(ada.user, {"theme": "dark", passwords.IS_TEMPORARY: False})
        assert stored(ada) == {passwords.IS_TEMPORARY: True, "theme": "dark"}

    def test_two_changes_at_once_are_both_kept(self, ada: Person) -> None:
        """Each request has read the row before the other wrote."""
        one, other = (User.objects.get(pk=ada.user.pk) for _ in range(2))
        preferences.change_preferences(one, {"theme": "dark"})
        preferences.change_preferences(other, {"language": "hi"})
        assert stored(ada) == {"theme": "dark", "language": "hi"}

    @pytest.mark.parametrize("broken", [[], "x", {"theme": 3, "language": [], "default_model": {}}])
    def test_what_was_written_by_hand_locks_nobody_out(self, ada: Person, broken: object) -> None:
        User.objects.filter(pk=ada.user.pk).update(preferences=broken)
        client = client_of(ada)
        assert client.get(PREFERENCES).json() == NOTHING
        assert client.get("/").status_code == 200


class TestTheDefaultModel:
    def test_it_is_the_default_of_every_call(self, ada: Person, models: list[str]) -> None:
        client = client_of(ada)

        def default() -> list[str]:
            data = client.get("/v1/models").json()["data"]
            return [one["id"] for one in data if one["default"]]

        assert default() == ["large"]
        patch(client, {"default_model": "little"})
        assert default() == ["little"]
        found = offer_for(User.objects.get(pk=ada.user.pk)).find(None)
        assert found
        assert found[0].slug == "little"

    def test_one_that_is_gone_counts_for_nothing(self, ada: Person, models: list[str]) -> None:
        client = client_of(ada)
        patch(client, {"default_model": "little"})
        Model.objects.filter(slug="little").update(enabled=False)
        found = offer_for(User.objects.get(pk=ada.user.pk)).find(None)
        assert found
        assert found[0].slug == "large"
        assert client.get(USAGE).status_code == 200


class TestThePages:
    def test_the_theme_is_in_the_first_byte_of_every_page(self, ada: Person) -> None:
        client = client_of(ada)
        assert 'data-theme="system"' in client.get("/").content.decode()
        assert client.post(LOOK, {"theme": "dark", "language": ""}).status_code == 302
        for path in ("/", LOOK, "/nothing-here"):
            page = client.get(path).content.decode()
            assert 'data-theme="dark"' in page, path
            assert '<meta name="color-scheme" content="dark">' in page
            assert page.count('name="theme-color"') == 1

    def test_the_language_is_the_persons_then_the_cookies_then_the_browsers(
        self, ada: Person
    ) -> None:
        hindi = {"Accept-Language": "hi"}
        client = client_of(ada)

        def head(client: Client, path: str) -> str:
            found = re.search(r"<html[^>]*>", client.get(path, headers=hindi).content.decode())
            assert found
            return found[0]

        assert 'lang="hi" dir="ltr"' in head(client, "/")
        client.post(LOOK, {"theme": "system", "language": "ar"})
        assert 'lang="ar" dir="rtl"' in head(client, "/")
        client.post("/accounts/sign-out/")
        assert 'lang="ar" dir="rtl"' in head(client, "/accounts/sign-in/")  # the cookie
        assert 'lang="hi"' in head(Client(), "/accounts/sign-in/")
        client = client_of(ada)  # another browser: the person's goes before its own
        assert 'lang="ar"' in head(client, "/")
        client.post(LOOK, {"theme": "system", "language": ""})
        assert 'lang="hi"' in head(client, "/")
        client.post("/accounts/sign-out/")
        assert 'lang="hi"' in head(client, "/accounts/sign-in/")

    def test_the_language_of_whoever_was_here_before_is_not_the_next_ones(
        self, ada: Person
    ) -> None:
        browser = client_of(ada)
        browser.cookies["django_language"] = "ar"
        assert 'lang="en"' in browser.get("/").content.decode()
        browser.post("/accounts/sign-out/")
        assert 'lang="ar"' in browser.get("/accounts/sign-in/").content.decode()

    def test_the_api_speaks_to_programs(self, ada: Person) -> None:
        """No look at the session for it, and no other language either."""
        client = client_of(ada)
        patch(client, {"language": "ar"})
        assert client.get("/v1/nothing-here").json()["error"]["message"].isascii()

    def test_a_wrong_choice_is_told_at_its_field(self, ada: Person) -> None:
        page = client_of(ada).post(LOOK, {"theme": "pink", "language": ""}).content.decode()
        assert re.search(r'<fieldset aria-describedby="id_theme_error">', page)
        assert 'id="id_theme_error"' in page
        assert stored(ada) == {}

    def test_a_name_is_saved_and_bounded(self, ada: Person) -> None:
        client = client_of(ada)
        assert client.post("/accounts/", {"name": "Ada <b>L</b>"}).status_code == 302
        page = client.get("/accounts/").content.decode()
        assert 'value="Ada &lt;b&gt;L&lt;/b&gt;"' in page
        page = client.post("/accounts/", {"name": "x" * 151}).content.decode()
        field = re.search(r'<input type="text" name="name"[^>]*>', page)
        assert field
        for part in ('aria-invalid="true"', "id_name_error", "autofocus"):
            assert part in field[0]
        assert User.objects.get(pk=ada.user.pk).name == "Ada <b>L</b>"

    def test_the_first_wrong_field_has_the_keyboard(self) -> None:
        page = Client().post("/accounts/sign-in/", {"username": "a@example.org"}).content.decode()
        fields = re.findall(r"<input type=\"(?:email|password)\"[^>]*>", page)
        assert ["autofocus" in one for one in fields] == [False, True]

    def test_usage_says_what_is_left_and_takes_a_default(
        self, ada: Person, models: list[str]
    ) -> None:
        client = client_of(ada)
        page = client.get(USAGE).content.decode()
        assert "<strong>Free</strong>" in page
        assert page.count("40 of 40 left") == 2
        assert client.post(USAGE, {"default_model": "huge"}).status_code == 200
        assert stored(ada) == {}
        assert client.post(USAGE, {"default_model": "little"}).status_code == 302
        assert stored(ada) == {"default_model": "little"}
        assert re.search(r'value="little"[^>]*checked', client.get(USAGE).content.decode())
        client.post(USAGE, {"default_model": ""})
        assert stored(ada) == {"default_model": None}

    def test_usage_without_its_counters_is_still_a_page(
        self, ada: Person, models: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from redis.exceptions import ConnectionError as Away

        def away(user: User) -> None:
            raise Away

        monkeypatch.setattr("generation.usage_page.usage", away)
        page = client_of(ada).get(USAGE)
        assert page.status_code == 200
        assert "cannot be counted at the moment" in page.content.decode()

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            ("/accounts/", "Profile"),
            ("/accounts/email/", "Profile"),
            ("/accounts/change-password/", "Profile"),
            (LOOK, "Look and language"),
            (USAGE, "Models and usage"),
            ("/accounts/tokens/", "API tokens"),
            ("/accounts/sessions/", "Devices"),
            ("/accounts/security/", "Second step and passkeys"),
        ],
    )
    def test_the_way_between_them_marks_where_one_is(
        self, ada: Person, path: str, words: str
    ) -> None:
        page = client_of(ada).get(path).content.decode()
        assert re.findall(r'aria-current="page">([^<]*)<', page) == [words]
        assert page.count("<h1") == 1

    def test_strangers_are_sent_to_sign_in(self) -> None:
        for path in (LOOK, USAGE, "/accounts/"):
            assert Client().get(path).status_code == 302
            assert Client().post(path, {"theme": "dark"}).status_code == 302
