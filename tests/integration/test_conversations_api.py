"""`/v1/conversations`: list, create, rename; bad input; other people; the admin without text."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.ids import external_id, new_id
from accounts.models import User
from conversations.models import Conversation
from conversations.services import add_user_message, create_conversation, title_of
from tests.integration.conversation_rows import make_conversations, make_thread
from tests.people import People, bearer, client_of, make_people

pytestmark = pytest.mark.django_db

LIST = "/v1/conversations"
PLANTED = "planted-word-of-a-person"


@pytest.fixture
def people() -> People:
    return make_people()


@pytest.fixture
def api(people: People) -> Client:
    return Client(headers=bearer(people.owner))


def send_json(client: Client, method: str, path: str, body: object) -> Any:
    return client.generic(method, path, json.dumps(body), content_type="application/json")


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message", "param", "retry_after_s"}
    error: dict[str, Any] = body["error"]
    return error


def path_of(conversation: Conversation) -> str:
    return f"{LIST}/{external_id('c', conversation.pk)}"


# --- create ---------------------------------------------------------------------------------------


def test_a_conversation_is_made_and_listed(api: Client, people: People) -> None:
    made = send_json(api, "POST", LIST, {"title": "נסיעה 👩‍👩‍👧‍👦"})
    assert made.status_code == 201
    item = made.json()
    assert item.keys() == {"id", "title", "active_leaf", "last_activity", "created"}
    assert (item["title"], item["active_leaf"]) == ("נסיעה 👩‍👩‍👧‍👦", None)
    assert item["created"].endswith("Z")
    assert len(item["created"]) == len("2026-11-29T12:00:00.000000Z")
    assert api.get(LIST).json() == {"items": [item], "next_cursor": None}


def test_no_body_at_all_makes_an_untitled_one(api: Client) -> None:
    assert api.generic("POST", LIST).json()["title"] == ""


def test_a_temporary_one_lasts_a_day_and_is_not_listed(api: Client) -> None:
    made = send_json(api, "POST", LIST, {"temporary": True})
    assert made.status_code == 201
    row = Conversation.objects.get()
    assert row.temporary_until is not None
    assert timedelta(hours=23) < row.temporary_until - timezone.now() <= timedelta(hours=24)
    assert api.get(LIST).json()["items"] == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"titel": "x"}, "titel"),
        ({"title": 7}, "title"),
        ({"title": None}, "title"),
        ({"title": ["x"]}, "title"),
        ({"title": "  "}, "title"),
        ({"title": "a\x00b"}, "title"),
        ({"title": "\ud800"}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"title": "x" * 65_536}, "title"),
        ({"temporary": "yes"}, "temporary"),
        ({"temporary": 1}, "temporary"),
        ({"temporary": None}, "temporary"),
        ({"owner": "u_" + "0" * 32}, "owner"),
        ([], None),
        ("title", None),
    ],
)
def test_a_bad_body_is_refused_and_nothing_made(
    api: Client, body: object, param: str | None
) -> None:
    assert error_of(send_json(api, "POST", LIST, body), 400)["param"] == param
    assert not Conversation.objects.exists()


# --- list -----------------------------------------------------------------------------------------


def test_the_list_comes_in_pages(api: Client, people: People) -> None:
    ids = [external_id("c", one) for one in make_conversations(people.owner.user, 35)]
    first = api.get(LIST).json()
    second = api.get(LIST, {"cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in first["items"]] == ids[:30]
    assert [item["id"] for item in second["items"]] == ids[30:]
    assert second["next_cursor"] is None
    assert len(api.get(LIST, {"limit": 100}).json()["items"]) == 35


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"limit": "9" * 5_000}, "limit"),
        ({"limit": ""}, "limit"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "A" * 64}, "cursor"),
        ({"cursor": "x" * 10_000}, "cursor"),
        ({"cursor": "\x00"}, "cursor"),
        ({"offset": "10"}, "offset"),
    ],
)
def test_a_bad_query_is_refused(api: Client, query: dict[str, str], param: str) -> None:
    assert error_of(api.get(LIST, query), 400)["param"] == param


def test_a_cursor_of_another_person_is_refused(api: Client, people: People) -> None:
    make_conversations(people.other.user, 2)
    cursor = client_of(people.other).get(LIST, {"limit": 1}).json()["next_cursor"]
    assert error_of(api.get(LIST, {"cursor": cursor}), 400)["param"] == "cursor"


def test_only_ones_own_are_listed(people: People) -> None:
    create_conversation(people.owner.user)
    assert len(client_of(people.owner).get(LIST).json()["items"]) == 1
    assert client_of(people.other).get(LIST).json()["items"] == []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nobody_and_the_disabled_are_told_to_sign_in(people: People, method: str) -> None:
    for client in (Client(), client_of(people.disabled), Client(headers=bearer(people.disabled))):
        error_of(send_json(client, method, LIST, {}), 401)
    assert not Conversation.objects.exists()


# --- rename ---------------------------------------------------------------------------------------


def test_a_person_renames_a_conversation(api: Client, people: People) -> None:
    row = create_conversation(people.owner.user)
    answer = send_json(api, "PATCH", path_of(row), {"title": " क्षत्रिय \n 1 "})
    assert answer.status_code == 200
    assert answer.json()["title"] == "क्षत्रिय 1"
    row.refresh_from_db()
    assert (title_of(row), row.title_source) == ("क्षत्रिय 1", "user")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "title"),
        ({"title": ""}, "title"),
        ({"title": " "}, "title"),
        ({"title": None}, "title"),
        ({"title": 1}, "title"),
        ({"title": "x" * 65_536}, "title"),
        ({"title": "x", "active_leaf": None}, "active_leaf"),
    ],
)
def test_a_bad_rename_changes_nothing(
    api: Client, people: People, body: object, param: str
) -> None:
    row = create_conversation(people.owner.user, title="Kept")
    assert error_of(send_json(api, "PATCH", path_of(row), body), 400)["param"] == param
    row.refresh_from_db()
    assert (title_of(row), row.revision) == ("Kept", 0)


def test_a_foreign_conversation_is_renamed_by_nobody_else(people: People) -> None:
    row = create_conversation(people.owner.user, title="Kept")
    missing = f"{LIST}/{external_id('c', new_id())}"
    other = Client(headers=bearer(people.other))
    # A wrong body tells nothing about the row either.
    answers = [
        error_of(send_json(other, "PATCH", path, body), 404)
        for path in (path_of(row), missing, f"{LIST}/c_nonsense")
        for body in ({"title": "Mine"}, {"wrong": 1})
    ]
    assert all(answer == answers[0] for answer in answers)
    row.refresh_from_db()
    assert title_of(row) == "Kept"


# --- administrators -------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_static")
def test_administrators_see_when_and_how_many_and_no_text(people: People) -> None:
    boss = User.objects.create_superuser("boss@example.org", "correct horse battery")
    client = Client()
    client.force_login(boss)
    row = create_conversation(people.owner.user, title=PLANTED)
    message = add_user_message(row, None, [{"type": "text", "text": PLANTED}])
    make_thread(people.other.user, 3)
    pages = [
        "/admin/conversations/conversation/",
        f"/admin/conversations/conversation/?q={external_id('c', row.pk)}",
        f"/admin/conversations/conversation/{row.pk}/change/",
        "/admin/conversations/message/",
        f"/admin/conversations/message/?q={external_id('m', message.pk)}",
        f"/admin/conversations/message/{message.pk}/change/",
    ]
    for page in pages:
        answer = client.get(page)
        assert answer.status_code == 200, page
        of_message = "/message/" in page
        shown = external_id("m", message.pk) if of_message else external_id("c", row.pk)
        assert shown in answer.text
        assert people.owner.user.email in answer.text
        assert PLANTED not in answer.text
        assert 'name="_save"' not in answer.text
    assert client.get("/admin/conversations/conversation/add/").status_code == 403
