"""Who may do what: owner, another user, nobody, and a disabled user, at every endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.phone import call, get_run, post_message, stop
from tests.stack import Person, Stack, directive

_MAKE_EVE = """
import json
from accounts import tokens
from accounts.models import User
email = "eve@example.org"
User.objects.filter(email=email).delete()
user = User.objects.create_user(email, "a long enough password", name="Eve")
print(json.dumps({"email": user.email, "token": tokens.create(user, "tests")[1]}))
"""

MISSING = {
    "c": "c_" + "0" * 32,
    "g": "g_" + "0" * 32,
    "m": "m_" + "0" * 32,
    "r": "m_" + "0" * 32,
}
WRONG_KINDS = ["c_", "x" * 32, "g_" + "A" * 32, "c_00000000-0000-0000-0000-000000000000", "%00"]

# (method, path, body); the owner's: {c} conversation, {g} live run, {m} its message, {r} its reply.
OWNED: list[tuple[str, str, object]] = [
    ("GET", "/v1/conversations/{c}", None),
    ("GET", "/v1/conversations/{c}?before={m}", None),
    ("PATCH", "/v1/conversations/{c}", {"title": "mine now"}),
    ("POST", "/v1/conversations/{c}/messages", {"content": "x"}),
    ("POST", "/v1/conversations/{c}/messages", {"content": "x", "parent_id": "{m}"}),
    ("GET", "/v1/runs/{g}", None),
    ("GET", "/v1/runs/{g}/stream", None),
    ("POST", "/v1/runs/{g}:stop", None),
    ("DELETE", "/v1/conversations/{c}", None),
    ("POST", "/v1/conversations/{c}:restore", None),
    ("PUT", "/v1/conversations/{c}/active_leaf", {"message": "{m}"}),
    ("POST", "/v1/conversations/{c}/messages/{m}:regenerate", {}),
    ("POST", "/v1/conversations/{c}/messages/{m}:continue", {}),
    ("POST", "/v1/messages/{m}/feedback", {"rating": "up"}),
    ("POST", "/v1/messages/{r}/feedback", {"rating": None}),
]
OWN: list[tuple[str, str, object]] = [
    ("GET", "/v1/conversations", None),
    ("POST", "/v1/conversations", {}),
    ("POST", "/v1/conversations/new/messages", {"content": "x"}),
    ("GET", "/v1/models", None),
]
ERROR = {"code", "message", "param", "retry_after_s"}


@pytest.fixture(scope="module")
def eve(stack: Stack) -> Person:
    """Somebody who has been disabled."""
    made = json.loads(stack.manage("shell", "--verbosity", "0", "-c", _MAKE_EVE))
    with psycopg.connect(stack.env["DATABASE_URL"]) as connection:
        connection.execute(
            "UPDATE accounts_user SET is_active = false WHERE email = %s", [made["email"]]
        )
    return Person(**made)


@pytest.fixture(scope="module")
def ids(stack: Stack) -> Iterator[dict[str, str]]:
    """A live run of Ada's, with its conversation; its message and reply."""
    ada, url = stack.people["ada"], stack.webs[0].url
    # Never silent, so that the engine is not given up, and longer than all that follows.
    run = post_message(url, ada.headers, directive(tokens=1_000, tokens_per_s=2))
    yield _ids(run)
    stop(url, ada.headers, run["id"])


def _ids(run: dict[str, Any]) -> dict[str, str]:
    return {
        "c": run["conversation"],
        "g": run["id"],
        "m": run["user_msg"],
        "r": run["reply_msg"],
    }


def _ask(
    stack: Stack, headers: dict[str, str], wanted: tuple[str, str, object], ids: dict[str, str]
) -> Any:
    method, path, body = wanted
    filled = json.loads(json.dumps(body).replace("{m}", ids["m"]))
    extra = {"Last-Event-ID": f"{ids['g']}:1", "Accept": "text/event-stream, application/json"}
    url = stack.webs[0].url + path.format(**ids)
    return call(method, url, {**headers, **extra}, filled)


def _assert_error(answer: Any, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    assert answer.json()["error"].keys() == ERROR
    assert answer.json()["error"]["code"] == code
    assert answer.headers["content-type"].startswith("application/json")


def _rows(stack: Stack) -> Any:
    return stack.rows(
        """SELECT (SELECT count(*) FROM generation_run),
           (SELECT count(*) FROM conversations_message WHERE role = 'user'),
           (SELECT count(*) FROM conversations_conversation),
           (SELECT count(*) FROM generation_run WHERE stop_requested_at IS NOT NULL)"""
    )


@pytest.mark.parametrize("wanted", OWNED, ids=lambda wanted: f"{wanted[0]} {wanted[1]}")
def test_anothers_and_missing_are_the_same(
    stack: Stack, ids: dict[str, str], wanted: tuple[str, str, object]
) -> None:
    bob = stack.people["bob"]
    before = _rows(stack)
    foreign = _ask(stack, bob.headers, wanted, ids)
    missing = _ask(stack, bob.headers, wanted, MISSING)
    _assert_error(foreign, 404, "not_found")
    assert foreign.content == missing.content
    own, theirs = dict(foreign.headers), dict(missing.headers)
    own.pop("date"), theirs.pop("date")
    assert own == theirs
    assert _rows(stack) == before
    assert get_run(stack.webs[0].url, stack.people["ada"].headers, ids["g"])["finish"] is None


@pytest.mark.parametrize("wanted", OWNED + OWN, ids=lambda wanted: f"{wanted[0]} {wanted[1]}")
def test_nobody_and_the_disabled_are_401(
    stack: Stack, ids: dict[str, str], eve: Person, wanted: tuple[str, str, object]
) -> None:
    before = _rows(stack)
    strangers = [
        ({}, "not_signed_in"),
        ({"Cookie": "sessionid=x"}, "not_signed_in"),
        ({"Authorization": "Bearer t_wrong"}, "invalid_api_token"),
        (eve.headers, "account_disabled"),
    ]
    for headers, code in strangers:
        answer = _ask(stack, headers, wanted, ids)
        _assert_error(answer, 401, code)
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert _rows(stack) == before


@pytest.mark.parametrize("given", WRONG_KINDS)
@pytest.mark.parametrize("wanted", OWNED, ids=lambda wanted: f"{wanted[0]} {wanted[1]}")
def test_ids_of_the_wrong_kind_are_missing_too(
    stack: Stack, ids: dict[str, str], wanted: tuple[str, str, object], given: str
) -> None:
    kind = next(kind for kind in "cgmr" if f"{{{kind}}}" in wanted[1])
    answer = _ask(stack, stack.people["ada"].headers, wanted, {**ids, kind: given})
    _assert_error(answer, 404, "not_found")


def test_lists_hold_only_ones_own(stack: Stack, ids: dict[str, str]) -> None:
    url = f"{stack.webs[0].url}/v1/conversations?limit=100"
    for name, there in (("ada", True), ("bob", False)):
        items = call("GET", url, stack.people[name].headers).json()["items"]
        assert (ids["c"] in {item["id"] for item in items}) is there


def test_a_parent_of_anothers_conversation(stack: Stack, ids: dict[str, str]) -> None:
    """Bob's own conversation does not take Ada's message as a parent."""
    bob, url = stack.people["bob"], stack.webs[0].url
    own = call("POST", f"{url}/v1/conversations", bob.headers, {}).json()["id"]
    for parent in (ids["m"], MISSING["m"]):
        body = {"content": "x", "parent_id": parent}
        answer = call("POST", f"{url}/v1/conversations/{own}/messages", bob.headers, body)
        _assert_error(answer, 400, "invalid_parent")


def test_an_expired_temporary_conversation_is_gone_with_its_runs(stack: Stack) -> None:
    ada, url = stack.people["ada"], stack.webs[0].url
    made = call("POST", f"{url}/v1/conversations", ada.headers, {"temporary": True}).json()["id"]
    run = post_message(url, ada.headers, directive(tokens=1), made)
    assert stop(url, ada.headers, run["id"]).status_code == 200
    with psycopg.connect(stack.env["DATABASE_URL"]) as connection:
        connection.execute(
            "UPDATE conversations_conversation SET temporary_until = now() - interval '1 second' "
            "WHERE id = (SELECT conversation_id FROM generation_run WHERE id::text = %s)",
            [_uuid(run["id"])],
        )
    ids = _ids(run)
    for wanted in OWNED:
        _assert_error(_ask(stack, ada.headers, wanted, ids), 404, "not_found")


def _uuid(run: str) -> str:
    digits = run.removeprefix("g_")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
