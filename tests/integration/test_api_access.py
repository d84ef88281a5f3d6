"""Who may do what: owner, another user, an administrator, nobody, a disabled user, everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from tests.api_schema import calls, operation_of
from tests.phone import PATIENT, call, get_run, post_message, stop, stopped
from tests.stack import Stack, directive, wait_for

_MAKE_PEOPLE = """
import json
from django.test import Client
from accounts import tokens
from accounts.models import User

def cookie(user):
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value

ada, bob = (User.objects.get(email=f"{name}@example.org") for name in ("ada", "bob"))
User.objects.filter(email="eve@example.org").delete()
eve = User.objects.create_user("eve@example.org", "a long enough password", name="Eve")
User.objects.filter(email="root@example.org").delete()
root = User.objects.create_superuser("root@example.org", "a long enough password", name="Root")
print(json.dumps({
    "root": tokens.create(root, "tests")[1],
    "eve": tokens.create(eve, "tests")[1],
    "reader": tokens.create(ada, "reads", scopes=["read"])[1],
    "t": tokens.create(ada, "to be looked at")[0].external_id,
    "sessions": {"ada": cookie(ada), "bob": cookie(bob), "eve": cookie(eve), "root": cookie(root)},
}))
"""
CSRF = "a" * 32

NOTHING = "0" * 32
MISSING = {kind: f"{kind}_{NOTHING}" for kind in "cgmt"} | {"r": f"m_{NOTHING}"}
WRONG_KINDS = ["c_", "x" * 32, "g_" + "A" * 32, "c_00000000-0000-0000-0000-000000000000"]
WRONG_KINDS += ["%00", "%ff%fe", "%zz", "%", "%2e%2e", "%E2%80%AE"]

# (method, path, body). {c} conversation, {g} live run, {m} its message, {r} its reply, {t} token.
Row = tuple[str, str, object]
OWNED: list[Row] = [
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
OWN: list[Row] = [
    ("GET", "/v1/conversations", None),
    ("POST", "/v1/conversations", {}),
    ("POST", "/v1/conversations/new/messages", {"content": "x"}),
    ("GET", "/v1/models", None),
    ("GET", "/v1/usage", None),
    ("GET", "/v1/me/preferences", None),
    ("PATCH", "/v1/me/preferences", {"theme": "system"}),
]
OF_SESSIONS: list[Row] = [
    ("GET", "/v1/tokens", None),
    ("POST", "/v1/tokens", {"name": "x"}),
    ("POST", "/v1/tokens/{t}:rotate", {}),
    ("DELETE", "/v1/tokens/{t}", None),
]
TO_ALL: list[Row] = [("GET", "/v1/schema", None)]
# Ids of others inside a conversation of one's own.
INSIDE: list[Row] = [
    ("GET", "/v1/conversations/{own}?before={m}", None),
    ("POST", "/v1/conversations/{own}/messages", {"content": "x", "parent_id": "{m}"}),
    ("POST", "/v1/conversations/{own}/messages", {"content": "x", "parent_id": "{r}"}),
    ("PUT", "/v1/conversations/{own}/active_leaf", {"message": "{m}"}),
    ("PUT", "/v1/conversations/{own}/active_leaf", {"message": "{r}"}),
    ("POST", "/v1/conversations/{own}/messages/{m}:regenerate", {}),
    ("POST", "/v1/conversations/{own}/messages/{r}:regenerate", {}),
    ("POST", "/v1/conversations/{own}/messages/{r}:continue", {}),
]


def name_of(row: Row) -> str:
    return f"{row[0]} {row[1]}"


ERROR = {"code", "message", "param", "retry_after_s"}


@pytest.fixture(scope="module")
def made(stack: Stack) -> dict[str, Any]:
    """Sessions, and API tokens that are not everybody's; Eve has been disabled since."""
    people: dict[str, Any] = json.loads(
        stack.manage("shell", "--verbosity", "0", "-c", _MAKE_PEOPLE)
    )
    with psycopg.connect(stack.env["DATABASE_URL"]) as connection:
        connection.execute(
            "UPDATE accounts_user SET is_active = false WHERE email = 'eve@example.org'"
        )
    return people


def session(made: dict[str, Any], name: str, csrf: str = CSRF) -> dict[str, str]:
    """The headers of a browser in which this person is signed in."""
    cookie = f"sessionid={made['sessions'][name]}; csrftoken={CSRF}"
    return {"Cookie": cookie, "X-CSRFToken": csrf}


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture(scope="module")
def ids(stack: Stack, made: dict[str, Any]) -> Iterator[dict[str, str]]:
    """A live run of Ada's, with its conversation; its message and reply; a token of hers."""
    ada, url = stack.people["ada"], stack.webs[0].url
    # Never silent, so that the engine is not given up, and longer than all that follows.
    run = post_message(url, ada.headers, directive(tokens=1_000, tokens_per_s=1))
    yield {**_ids(run), "t": made["t"]}
    stop(url, ada.headers, run["id"])


def _ids(run: dict[str, Any]) -> dict[str, str]:
    return {
        "c": run["conversation"],
        "g": run["id"],
        "m": run["user_msg"],
        "r": run["reply_msg"],
    }


def _ask(stack: Stack, headers: dict[str, str], wanted: Row, ids: dict[str, str]) -> Any:
    method, path, body = wanted
    filled = json.loads(json.dumps(body).replace("{m}", ids["m"]).replace("{r}", ids["r"]))
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


def test_every_call_has_a_row() -> None:
    rows = [*OWNED, *OWN, *OF_SESSIONS, *TO_ALL]
    assert {operation_of(row[0], row[1])[0] for row in rows} == set(calls())


@pytest.mark.parametrize("wanted", OWNED + OF_SESSIONS[2:], ids=name_of)
def test_anothers_and_missing_are_the_same(
    stack: Stack, ids: dict[str, str], made: dict[str, Any], wanted: Row
) -> None:
    # Root may do everything in the admin, and nothing more than Bob here.
    credentials = [session(made, "bob"), session(made, "root")]
    if wanted in OWNED:
        credentials += [stack.people["bob"].headers, bearer(made["root"])]
    before = _rows(stack)
    for headers in credentials:
        _assert_alike(_ask(stack, headers, wanted, ids), _ask(stack, headers, wanted, MISSING))
    assert _rows(stack) == before
    assert get_run(stack.webs[0].url, stack.people["ada"].headers, ids["g"])["finish"] is None


def _assert_alike(foreign: Any, missing: Any, status: int = 404, code: str = "not_found") -> None:
    """Nothing tells whose it is: neither body nor headers."""
    _assert_error(foreign, status, code)
    assert foreign.status_code == missing.status_code
    assert foreign.content == missing.content
    own, theirs = dict(foreign.headers), dict(missing.headers)
    for clock in ("date", "expires"):
        own.pop(clock, None), theirs.pop(clock, None)
    assert own == theirs


@pytest.mark.parametrize("wanted", INSIDE, ids=name_of)
def test_messages_of_others_inside_ones_own_conversation(
    stack: Stack, ids: dict[str, str], wanted: Row
) -> None:
    bob, url = stack.people["bob"].headers, stack.webs[0].url
    own = call("POST", f"{url}/v1/conversations", bob, {}).json()["id"]
    before = _rows(stack)
    foreign = _ask(stack, bob, wanted, {**ids, "own": own})
    missing = _ask(stack, bob, wanted, {**MISSING, "own": own})
    is_parent = "parent_id" in json.dumps(wanted[2])
    _assert_alike(foreign, missing, *((400, "invalid_parent") if is_parent else ()))
    assert _rows(stack) == before


def test_a_cursor_of_another_list(stack: Stack, ids: dict[str, str]) -> None:
    url, ada, bob = stack.webs[0].url, stack.people["ada"].headers, stack.people["bob"].headers
    call("POST", f"{url}/v1/conversations", ada, {})
    cursor = call("GET", f"{url}/v1/conversations?limit=1", ada).json()["next_cursor"]
    assert cursor
    assert call("GET", f"{url}/v1/conversations?cursor={cursor}", ada).status_code == 200
    foreign = call("GET", f"{url}/v1/conversations?cursor={cursor}", bob)
    invented = call("GET", f"{url}/v1/conversations?cursor={'A' * 64}", bob)
    _assert_alike(foreign, invented, 400, "invalid_request")


def test_an_idempotency_key_of_another_person(stack: Stack) -> None:
    """Keys are each person's own: Bob learns nothing of Ada's, and gets a run of his own."""
    url, body = stack.webs[0].url, {"content": directive(tokens=1)}
    path, key = f"{url}/v1/conversations/new/messages", {"Idempotency-Key": "one of Ada's"}
    runs = {
        name: call("POST", path, {**stack.people[name].headers, **key}, body).json()
        for name in ("ada", "bob")
    }
    assert runs["ada"]["id"] != runs["bob"]["id"]
    other = call("POST", path, {**stack.people["bob"].headers, **key}, {"content": "y"})
    _assert_error(other, 422, "idempotency_key_reused")


def test_a_last_event_id_of_anothers_run(stack: Stack, ids: dict[str, str]) -> None:
    bob, url = stack.people["bob"].headers, stack.webs[0].url
    run = post_message(url, bob, directive(tokens=1))["id"]
    path = f"{url}/v1/runs/{run}/stream"
    foreign, missing = (
        call("GET", path, {**bob, "Last-Event-ID": f"{other}:1"})
        for other in (ids["g"], MISSING["g"])
    )
    _assert_alike(foreign, missing, 400, "invalid_request")


@pytest.mark.parametrize("wanted", OWNED + OWN + OF_SESSIONS, ids=name_of)
def test_nobody_and_the_disabled_are_401(
    stack: Stack, ids: dict[str, str], made: dict[str, Any], wanted: Row
) -> None:
    before = _rows(stack)
    strangers = [
        ({}, "not_signed_in"),
        ({"Cookie": "sessionid=x"}, "not_signed_in"),
        ({"Authorization": "Bearer t_wrong"}, "invalid_api_token"),
        ({**session(made, "ada"), "Authorization": "Bearer t_wrong"}, "invalid_api_token"),
        (bearer(made["eve"]), "account_disabled"),
        (session(made, "eve"), "not_signed_in"),
    ]
    for headers, code in strangers:
        answer = _ask(stack, headers, wanted, ids)
        _assert_error(answer, 401, code)
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert _rows(stack) == before


@pytest.mark.parametrize("wanted", OWNED + OWN, ids=name_of)
def test_a_token_that_may_only_read(
    stack: Stack, ids: dict[str, str], made: dict[str, Any], wanted: Row
) -> None:
    """It is told so before anything is looked at: no id, no body."""
    if wanted[0] == "GET":
        if not wanted[1].endswith("stream"):  # this one would stream for long
            assert _ask(stack, bearer(made["reader"]), wanted, ids).status_code == 200
        return
    before = _rows(stack)
    own, missing = (_ask(stack, bearer(made["reader"]), wanted, given) for given in (ids, MISSING))
    _assert_alike(own, missing, 403, "insufficient_scope")
    assert _rows(stack) == before


@pytest.mark.parametrize("wanted", OF_SESSIONS, ids=name_of)
def test_no_token_reaches_tokens(
    stack: Stack, ids: dict[str, str], made: dict[str, Any], wanted: Row
) -> None:
    ada = stack.people["ada"].headers
    own, missing = (_ask(stack, ada, wanted, given) for given in (ids, MISSING))
    _assert_alike(own, missing, 403, "session_required")


@pytest.mark.parametrize(
    "wanted", [row for row in OWNED + OWN + OF_SESSIONS if row[0] != "GET"], ids=name_of
)
def test_a_session_changes_nothing_without_its_csrf_token(
    stack: Stack, ids: dict[str, str], made: dict[str, Any], wanted: Row
) -> None:
    before = _rows(stack)
    for csrf in ("", "b" * 32):
        answer = _ask(stack, session(made, "ada", csrf), wanted, ids)
        _assert_error(answer, 403, "csrf_failed")
    assert _rows(stack) == before


@pytest.mark.parametrize("how", ["session", "token"])
def test_these_rows_are_open_to_their_owner(stack: Stack, made: dict[str, Any], how: str) -> None:
    """The premise of all the refusals above; each call works, or does not fit the state (409)."""
    ada, url = stack.people["ada"].headers, stack.webs[0].url
    headers = session(made, "ada") if how == "session" else ada
    run = post_message(url, ada, directive(tokens=1))
    wait_for(lambda: get_run(url, ada, run["id"])["finish"], "the answer")
    token = call("POST", f"{url}/v1/tokens", session(made, "ada"), {"name": "x"}).json()["id"]
    own = {**_ids(run), "t": token}
    rows = [row for row in OWNED if "/messages" not in row[1] or "parent_id" not in str(row[2])]
    deleted = ("DELETE", "/v1/conversations/{c}", None)
    rows = [row for row in rows if row not in (deleted, OWNED[9])] + [deleted, OWNED[9]]
    if how == "session":
        rows += OF_SESSIONS[:3]
    for row in [*OWN, *rows]:
        status = _ask(stack, headers, row, own).status_code
        allowed = {409} if row[1].endswith(":continue") else {200, 201, 202, 204, 404}
        # Feedback to a user's own message is 404 to everybody.
        assert status in allowed - ({404} if "{m}/feedback" not in row[1] else set()), row


@pytest.mark.parametrize("given", WRONG_KINDS)
@pytest.mark.parametrize("wanted", OWNED, ids=name_of)
def test_ids_of_the_wrong_kind_are_missing_too(
    stack: Stack, ids: dict[str, str], wanted: Row, given: str
) -> None:
    kind = next(kind for kind in "cgmr" if f"{{{kind}}}" in wanted[1])
    answer = _ask(stack, stack.people["ada"].headers, wanted, {**ids, kind: given})
    _assert_error(answer, 404, "not_found")


def test_lists_hold_only_ones_own(stack: Stack, ids: dict[str, str]) -> None:
    url = f"{stack.webs[0].url}/v1/conversations?limit=100"
    for name, there in (("ada", True), ("bob", False)):
        items = call("GET", url, stack.people[name].headers).json()["items"]
        assert (ids["c"] in {item["id"] for item in items}) is there


def test_an_expired_temporary_conversation_is_gone_with_its_runs(stack: Stack) -> None:
    ada, url = stack.people["ada"], stack.webs[0].url
    made = call("POST", f"{url}/v1/conversations", ada.headers, {"temporary": True}).json()["id"]
    run = post_message(url, ada.headers, directive(tokens=1), made)
    stopped(url, ada.headers, run["id"])
    with psycopg.connect(stack.env["DATABASE_URL"]) as connection:
        connection.execute(
            "UPDATE conversations_conversation SET temporary_until = now() - interval '1 second' "
            "WHERE id = (SELECT conversation_id FROM generation_run WHERE id::text = %s)",
            [_uuid(run["id"])],
        )
    ids = _ids(run)
    for wanted in OWNED:
        _assert_error(_ask(stack, ada.headers, wanted, ids), 404, "not_found")


def test_a_deleted_conversation_is_gone_with_its_runs(stack: Stack) -> None:
    """For its owner too, by every call, until it is restored."""
    ada, url = stack.people["ada"], stack.webs[0].url
    run = post_message(url, ada.headers, directive(tokens=1))
    wait_for(lambda: get_run(url, ada.headers, run["id"])["finish"], "the answer")
    path = f"{url}/v1/conversations/{run['conversation']}"
    assert call("DELETE", path, ada.headers).status_code == 204
    before = _rows(stack)
    restore = ("POST", "/v1/conversations/{c}:restore", None)
    for wanted in OWNED:
        if wanted != restore:
            gone = _ask(stack, ada.headers, wanted, _ids(run))
            _assert_alike(gone, _ask(stack, ada.headers, wanted, MISSING))
    assert _rows(stack) == before
    assert _ask(stack, ada.headers, restore, _ids(run)).status_code == 200
    assert call("GET", path, ada.headers).status_code == 200


HEADED = [row for row in OWNED + OWN + TO_ALL if row[0] == "GET" and not row[1].endswith("stream")]


@pytest.mark.parametrize("wanted", HEADED, ids=name_of)
def test_head_is_get_without_its_body(stack: Stack, wanted: Row) -> None:
    """A stream alone has no HEAD: its length and its end are not known."""
    ada, url = stack.people["ada"].headers, stack.webs[0].url
    run = post_message(url, ada, directive(tokens=1))
    wait_for(lambda: get_run(url, ada, run["id"])["finish"], "the answer")
    for ids in (_ids(run), MISSING):
        own = _ask(stack, ada, wanted, ids)
        # The schema describes no HEAD: it is GET's.
        path = stack.webs[0].url + wanted[1].format(**ids)
        head = httpx.head(path, headers=ada, **PATIENT)
        assert (head.status_code, head.content) == (own.status_code, b"")
        assert head.headers["content-type"] == own.headers["content-type"]


def test_a_walk_while_thirty_jump_to_the_top_sees_each_once(stack: Stack) -> None:
    bob, url = stack.people["bob"].headers, stack.webs[0].url
    listed = f"{url}/v1/conversations"
    made = {call("POST", listed, bob, {}).json()["id"] for _ in range(40)}
    page = call("GET", f"{listed}?limit=7", bob).json()
    seen = [item["id"] for item in page["items"]]
    for one in sorted(made - set(seen))[:30]:
        post_message(url, bob, directive(tokens=1), one)
    top = call("GET", f"{listed}?limit=100", bob).json()["items"][:30]
    assert not {item["id"] for item in top} & set(seen)  # the premise: they did jump
    while page["next_cursor"]:
        page = call("GET", f"{listed}?limit=7&cursor={page['next_cursor']}", bob).json()
        seen += [item["id"] for item in page["items"]]
    assert len(seen) == len(set(seen))
    assert made <= set(seen)


def _uuid(run: str) -> str:
    digits = run.removeprefix("g_")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
