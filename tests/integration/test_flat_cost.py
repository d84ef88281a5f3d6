"""What a call costs does not grow with the conversation: counted in queries and in rows that
PostgreSQL looks at (EXPLAIN ANALYZE), never in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from accounts.ids import new_id
from tests.integration.conversation_rows import make_conversations, make_messages, make_thread
from tests.integration.test_tree_api import call, run_of
from tests.integration.tree_room import empty_queues, finish, message_id
from tests.people import People, bearer, make_people

pytestmark = pytest.mark.django_db(transaction=True)
SHORT, LONG = 120, 5_000
"""Both above a page of 100: a page of each looks at as much."""


@pytest.fixture(autouse=True)
def queues() -> Iterator[None]:
    with empty_queues():
        yield


@pytest.fixture
def people() -> People:
    return make_people()


@pytest.fixture
def api(people: People) -> Client:
    return Client(headers=bearer(people.owner))


class Looked:
    """The statements of a call, and the rows that those which only read have looked at."""

    def __init__(self) -> None:
        self.statements = 0
        self.rows = 0
        self.answer: Any = None

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        self.statements += 1
        if sql.lstrip().startswith(("SELECT", "WITH", "(")):
            execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params, many, context)
            self.rows += _rows_of(context["cursor"].fetchone()[0][0]["Plan"])
        return execute(sql, params, many, context)


def _rows_of(node: dict[str, Any]) -> int:
    own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    below = sum(map(_rows_of, node.get("Plans", ())))
    return int(own * node["Actual Loops"]) * ("Relation Name" in node) + below


def looked_at(api: Client, method: str, path: str, body: object = None, **more: str) -> Looked:
    found = Looked()
    with connection.execute_wrapper(found):
        found.answer = call(api, method, path, body, **more)
    return found


def assert_alike(one: Looked, other: Looked) -> None:
    """A table of a few rows may be read whole, and old versions of a row are looked at too."""
    assert one.statements == other.statements
    assert abs(one.rows - other.rows) < 30, (one.rows, other.rows)


def _threads(api: Client, people: People) -> list[tuple[str, list[Any]]]:
    """A short and a long one, in one table: in a tiny one PostgreSQL reads all there is."""
    made = []
    for length in (SHORT, LONG):
        conversation, ids = make_thread(people.owner.user, length)
        made.append((f"conversations/c_{conversation.id.hex}", ids))
    _settle(api)
    return made


def _settle(api: Client) -> None:
    """Statistics for the planner; and an API token's first use, which is written down, is over."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    call(api, "GET", "models")


def test_a_page_costs_the_page(api: Client, people: People) -> None:
    costs = [
        looked_at(api, "GET", f"{path}?limit=100{before}")
        for path, ids in _threads(api, people)
        for before in ("", f"&before={message_id(ids[110])}")
    ]
    assert_alike(costs[0], costs[2])
    assert_alike(costs[1], costs[3])
    assert max(found.rows for found in costs) < 1_000


def test_unchanged_costs_less_and_opens_nothing(
    api: Client, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = _threads(api, people)[1]
    etag = call(api, "GET", path).headers["ETag"]
    found = looked_at(api, "GET", path)
    assert found.statements == 7
    monkeypatch.setattr("conversations.sealed.opener", None)  # would be called, and fail
    assert call(api, "GET", path).status_code == 500  # the premise
    found = looked_at(api, "GET", path, **{"If-None-Match": etag})
    assert found.answer.status_code == 304
    assert found.statements == 3
    assert found.rows < 10


def test_send_and_regenerate_cost_the_same_in_a_deep_tree(api: Client, people: People) -> None:
    costs = []
    for path, ids in _threads(api, people):
        sent = looked_at(api, "POST", f"{path}/messages", {"content": "x"})
        finish(run_of(sent.answer))
        again = looked_at(api, "POST", f"{path}/messages/{message_id(ids[-1])}:regenerate", {})
        assert again.answer.status_code == 202
        costs.append((sent, again))
    for short, long in zip(*costs, strict=True):
        assert_alike(short, long)
        assert short.rows < 100


def test_a_switch_costs_what_stands_below(api: Client, people: People) -> None:
    """One of ten thousand versions costs as much as the newest message of a short thread."""
    (path, ids), (deep, deep_ids) = _threads(api, people)
    conversation = people.owner.user.conversations.get(messages=deep_ids[0])
    versions = [new_id() for _ in range(10_000)]
    make_messages(conversation, [(one, deep_ids[0], "assistant") for one in versions])
    _settle(api)

    def cost(where: str, message: Any) -> Looked:
        body = {"message": message_id(message)}
        call(api, "PUT", f"{where}/active_leaf", body)  # there already, the next time
        return looked_at(api, "PUT", f"{where}/active_leaf", body)

    version, leaf = cost(deep, versions[5_000]), cost(deep, deep_ids[-1])
    assert_alike(version, leaf)
    assert_alike(leaf, cost(path, ids[-1]))
    assert version.rows < 50


def test_a_list_page_costs_the_page(api: Client, people: People) -> None:
    costs = []
    for count in (40, 3_000):
        make_conversations(people.owner.user, count)
        _settle(api)
        top = looked_at(api, "GET", "conversations?limit=30")
        cursor = top.answer.json()["next_cursor"]
        rest = looked_at(api, "GET", f"conversations?cursor={cursor}")
        costs.append((top.statements, rest.statements))
        assert max(top.rows, rest.rows) < 100
    assert costs[0] == costs[1]
