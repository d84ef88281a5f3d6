"""Regenerate, continue, switch, delete, restore and feedback as the API does them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from accounts.ids import new_id
from conversations.models import Conversation, Feedback, Message
from conversations.services import create_conversation
from generation import chores, runs
from generation.models import IdempotencyKey, Model, Run
from generation.run_response import GatewayResponse
from generation.scheduler import scheduler_sync
from generation.scheduler.calls import Limits
from generation.tasks import purge
from tests.api_schema import check_answer
from tests.integration.conversation_rows import make_messages, make_thread
from tests.integration.tree_room import (
    answered,
    ask,
    claim,
    conversation_id,
    empty_queues,
    finish,
    leaf_of,
    message_id,
    names,
    stored,
)
from tests.people import People, bearer, make_people

pytestmark = pytest.mark.django_db(transaction=True)


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


def call(client: Client, method: str, path: str, body: object = None, **headers: str) -> Any:
    content = b"" if body is None else json.dumps(body).encode()
    kind = "application/json"
    answer: Any = client.generic(method, f"/v1/{path}", content, content_type=kind, headers=headers)
    given = answer.headers.get("Content-Type", "")
    if isinstance(answer, GatewayResponse):
        return answer  # a plan; the gateway would write the body
    check_answer(method, f"/v1/{path}", answer.status_code, given, answer.content)
    return answer


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"code", "message", "param", "retry_after_s"}
    return error


def thread_of(client: Client, run: Run) -> dict[str, Any]:
    answer = client.get(f"/v1/conversations/{conversation_id(run)}")
    assert answer.status_code == 200
    thread: dict[str, Any] = answer.json()
    return thread


def path_of(run: Run, what: str = "") -> str:
    return f"conversations/{conversation_id(run)}{what}"


def of_message(run: Run, row_id: Any, what: str) -> str:
    return path_of(run, f"/messages/{message_id(row_id)}:{what}")


def run_of(answer: Any) -> Run:
    assert answer.status_code == 202, answer.content
    return Run.objects.get(id=answer.json()["id"].removeprefix("g_"))


# --- regenerate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["parent_id", "reply_id"])
@pytest.mark.parametrize("model", [None, "tree", "other"])
def test_regenerate(api: Client, people: People, target: str, model: str | None) -> None:
    first = finish(ask(people.owner.user, model="other"))
    body = {} if model is None else {"model": model}
    path = of_message(first, getattr(first, target), "regenerate")
    run = run_of(call(api, "POST", path, body))
    assert (run.parent_id, run.model_used) == (first.parent_id, model or "other")
    assert leaf_of(first) == first.parent_id
    thread = thread_of(api, first)
    assert [message["id"] for message in thread["messages"]] == [message_id(first.parent_id)]
    (live,) = thread["live_runs"]
    assert live["reply_id"] == message_id(run.reply_id)
    assert live["versions"] == {
        "index": 2,
        "count": 2,
        "previous": message_id(first.reply_id),
        "next": None,
    }
    finish(run, "Another")
    shown = thread_of(api, first)["messages"][-1]
    assert shown["id"] == message_id(run.reply_id)
    assert shown["versions"]["previous"] == message_id(first.reply_id)


def test_regenerate_needs_no_body_and_takes_a_live_reply(api: Client, people: People) -> None:
    first = ask(people.owner.user)
    run = run_of(call(api, "POST", of_message(first, first.reply_id, "regenerate")))
    assert run.parent_id == first.parent_id
    assert {live.id for live in runs.live_runs_of(first.conversation_id)} == {first.id, run.id}


def test_a_model_that_is_gone_gives_way_to_the_default(api: Client, people: People) -> None:
    first = finish(ask(people.owner.user, model="other"))
    Model.objects.filter(slug="other").update(enabled=False)
    path = of_message(first, first.reply_id, "regenerate")
    assert run_of(call(api, "POST", path)).model_used == "tree"
    assert error_of(call(api, "POST", path, {"model": "other"}), 400)["code"] == "unknown_model"


def test_a_reply_that_no_run_wrote_can_be_regenerated(api: Client, people: People) -> None:
    conversation, ids = make_thread(people.owner.user, 2)
    path = f"conversations/c_{conversation.id.hex}/messages/{message_id(ids[1])}:regenerate"
    assert run_of(call(api, "POST", path)).parent_id == ids[0]
    orphan = create_conversation(people.owner.user)
    make_messages(orphan, [(root := new_id(), None, "assistant")])
    path = f"conversations/c_{orphan.id.hex}/messages/{message_id(root)}:regenerate"
    assert error_of(call(api, "POST", path), 400)["code"] == "invalid_parent"


def test_keys_of_regenerate(api: Client, people: People) -> None:
    first = answered(people.owner.user)
    path = of_message(first, first.reply_id, "regenerate")
    run = run_of(call(api, "POST", path, {}, **{"Idempotency-Key": "k"}))
    finish(run)
    assert run_of(call(api, "POST", path, {}, **{"Idempotency-Key": "k"})) == run
    for other in (
        (path, {"model": "other"}),
        (of_message(first, first.parent_id, "regenerate"), {}),
        (of_message(first, first.reply_id, "continue"), {}),
        (path_of(first, "/messages"), {"content": "x"}),
    ):
        refused = call(api, "POST", *other, **{"Idempotency-Key": "k"})
        assert error_of(refused, 422)["code"] == "idempotency_key_reused"
    assert IdempotencyKey.objects.count() == 1
    bad = call(api, "POST", path, {}, **{"Idempotency-Key": "k" * 201})
    assert error_of(bad, 400)["param"] == "Idempotency-Key"


def test_the_same_key_of_another_user_is_another_key(people: People) -> None:
    made = []
    for person in (people.owner, people.other):
        run = answered(person.user)
        client = Client(headers=bearer(person))
        path = of_message(run, run.reply_id, "regenerate")
        made.append(run_of(call(client, "POST", path, {}, **{"Idempotency-Key": "k"})))
    assert made[0].owner != made[1].owner


def test_too_many_waiting_answers(
    api: Client, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = answered(people.owner.user)
    monkeypatch.setattr(scheduler_sync(), "_limits", Limits(per_pool=100, per_user=2))
    path = of_message(first, first.reply_id, "regenerate")
    for _ in range(2):
        run_of(call(api, "POST", path))
    refused = call(api, "POST", path)
    assert error_of(refused, 429)["code"] == "too_many_live_runs"
    assert refused.headers["Retry-After"]


# --- continue -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["length", "user_stopped", "interrupted", "error"])
def test_continue_begins_with_the_text(api: Client, people: People, how: Any) -> None:
    first = answered(people.owner.user, "Once upon", how)
    run = run_of(call(api, "POST", of_message(first, first.reply_id, "continue")))
    assert (run.parent_id, run.continues_id) == (first.parent_id, first.reply_id)
    assert names(run) == [(1, "start"), (2, "snapshot")]
    assert leaf_of(first) == first.parent_id
    assert claim(run).partial == "Once upon"
    finish(run, "Once upon a time")
    assert (stored(first), stored(run)) == ("Once upon", "Once upon a time")
    assert leaf_of(first) == run.reply_id


def test_a_continued_answer_that_is_stopped_in_the_queue(api: Client, people: People) -> None:
    """What the client was shown is what is stored."""
    first = answered(people.owner.user, "Once upon", "length")
    run = run_of(call(api, "POST", of_message(first, first.reply_id, "continue")))
    runs_path = f"runs/{run.external_id}"
    assert call(api, "POST", f"{runs_path}:stop").status_code == 200
    assert names(run) == [(1, "start"), (2, "snapshot"), (3, "done")]
    assert stored(run) == "Once upon"


def test_an_empty_reply_is_continued_by_a_fresh_answer(api: Client, people: People) -> None:
    first = answered(people.owner.user, "", "user_stopped")
    run = run_of(call(api, "POST", of_message(first, first.reply_id, "continue")))
    assert run.continues_id is None
    assert names(run) == [(1, "start")]


def test_what_cannot_be_continued(api: Client, people: People) -> None:
    first = answered(people.owner.user)
    for row_id in (first.reply_id, first.parent_id):
        refused = call(api, "POST", of_message(first, row_id, "continue"))
        assert error_of(refused, 409)["code"] == "not_continuable"
    live = ask(people.owner.user)
    refused = call(api, "POST", of_message(live, live.reply_id, "continue"))
    error = error_of(refused, 409)
    assert error["code"] == "run_live"
    assert live.external_id in error["message"]
    path = of_message(first, first.reply_id, "continue")
    assert error_of(call(api, "POST", path, {"model": "other"}), 400)["param"] == "model"
    assert Run.objects.count() == 2


# --- switch ---------------------------------------------------------------------------------------


def test_switch_to_the_newest_leaf_below(api: Client, people: People) -> None:
    first = answered(people.owner.user)
    below = finish(ask(people.owner.user, first.conversation, parent_id=first.reply_id))
    second = finish(run_of(call(api, "POST", of_message(first, first.reply_id, "regenerate"))))
    assert leaf_of(first) == second.reply_id
    answer = call(
        api, "PUT", path_of(first, "/active_leaf"), {"message": message_id(first.reply_id)}
    )
    assert answer.status_code == 200
    assert answer.json()["active_leaf"] == message_id(below.reply_id)
    thread = thread_of(api, first)
    assert len(thread["messages"]) == 4
    assert thread["messages"][1]["versions"] == {
        "index": 1,
        "count": 2,
        "previous": None,
        "next": message_id(second.reply_id),
    }
    assert thread["messages"][3]["versions"] is None


def test_a_live_reply_is_not_chosen(api: Client, people: People) -> None:
    run = ask(people.owner.user)
    answer = call(api, "PUT", path_of(run, "/active_leaf"), {"message": message_id(run.reply_id)})
    error = error_of(answer, 409)
    assert (error["code"], error["param"]) == ("run_live", "message")
    assert run.external_id in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "message"),
        ({"message": None}, "message"),
        ({"message": 7}, "message"),
        ({"message": "m_" * 40}, "message"),
        ({"message": "m_", "x": 1}, "x"),
    ],
)
def test_a_switch_that_says_nothing(api: Client, people: People, body: Any, param: str) -> None:
    run = answered(people.owner.user)
    assert error_of(call(api, "PUT", path_of(run, "/active_leaf"), body), 400)["param"] == param


def test_messages_of_other_conversations_are_missing(api: Client, people: People) -> None:
    own, second, foreign = (
        answered(person.user) for person in (people.owner, people.owner, people.other)
    )
    strange = [message_id(row) for row in (second.reply_id, foreign.reply_id, new_id())]
    live = [message_id(ask(person.user).reply_id) for person in (people.owner, people.other)]
    told = set()
    for message in (*strange, *live, "m_", "c_" + "0" * 32):
        for answer in (
            call(api, "PUT", path_of(own, "/active_leaf"), {"message": message}),
            call(api, "POST", path_of(own, f"/messages/{message[:34]}:regenerate")),
            call(api, "POST", path_of(own, f"/messages/{message[:34]}:continue")),
        ):
            error_of(answer, 404)
            told.add(answer.content)
    assert len(told) == 1
    assert leaf_of(own) == own.reply_id
    for parent in strange:
        body = {"content": "x", "parent_id": parent}
        refused = call(api, "POST", path_of(own, "/messages"), body)
        assert error_of(refused, 400)["code"] == "invalid_parent"


# --- flat cost ------------------------------------------------------------------------------------


def test_ten_thousand_versions_and_a_tree_five_thousand_deep(
    api: Client, people: People, django_assert_max_num_queries: Any
) -> None:
    conversation, ids = make_thread(people.owner.user, 5_000)
    versions = [new_id() for _ in range(10_000)]
    make_messages(conversation, [(one, ids[0], "assistant") for one in versions])
    path = f"conversations/c_{conversation.id.hex}"
    leaf = f"{path}/active_leaf"
    with django_assert_max_num_queries(14):
        chosen = call(api, "PUT", leaf, {"message": message_id(versions[5_000])})
    assert chosen.json()["active_leaf"] == message_id(versions[5_000])
    with django_assert_max_num_queries(14):
        chosen = call(api, "PUT", leaf, {"message": message_id(ids[1])})
    assert chosen.json()["active_leaf"] == message_id(ids[-1])
    with django_assert_max_num_queries(30):
        run = run_of(call(api, "POST", f"{path}/messages/{message_id(versions[7])}:regenerate"))
    with django_assert_max_num_queries(12):
        thread = thread_of(api, run)
    assert thread["live_runs"][0]["versions"]["count"] == 10_002
    assert thread["live_runs"][0]["versions"]["index"] == 10_002
    finish(run)
    assert thread_of(api, run)["messages"][-1]["versions"]["count"] == 10_002


@pytest.mark.parametrize("length", [500, 2_000])
def test_a_long_conversation_opens_in_pages(
    api: Client, people: People, length: int, django_assert_max_num_queries: Any
) -> None:
    conversation, ids = make_thread(people.owner.user, length)
    path, before = f"/v1/conversations/c_{conversation.id.hex}", ""
    seen: list[str] = []
    while True:
        with django_assert_max_num_queries(12):
            page = api.get(f"{path}?limit=100{before and f'&before={before}'}").json()
        assert len(page["messages"]) <= 100
        seen[:0] = [message["id"] for message in page["messages"]]
        before = page["before"]
        if not page["has_more_before"]:
            break
    assert seen == [message_id(one) for one in ids]


# --- delete and restore ---------------------------------------------------------------------------


def test_delete_is_gone_everywhere_and_restore_brings_it_back(api: Client, people: People) -> None:
    run = answered(people.owner.user)
    items = api.get("/v1/conversations").json()
    deleted = call(api, "DELETE", path_of(run))
    assert (deleted.status_code, deleted.content) == (204, b"")
    gone = [
        call(api, "GET", path_of(run)),
        call(api, "PATCH", path_of(run), {"title": "x"}),
        call(api, "DELETE", path_of(run)),
        call(api, "POST", path_of(run, "/messages"), {"content": "x"}),
        call(api, "POST", of_message(run, run.reply_id, "regenerate")),
        call(api, "POST", of_message(run, run.reply_id, "continue")),
        call(api, "PUT", path_of(run, "/active_leaf"), {"message": message_id(run.reply_id)}),
        call(api, "GET", f"runs/{run.external_id}"),
        call(api, "POST", f"runs/{run.external_id}:stop"),
        call(api, "POST", f"messages/{message_id(run.reply_id)}/feedback", {"rating": "up"}),
    ]
    assert {answer.status_code for answer in gone} == {404}
    assert len({answer.content for answer in gone}) == 1
    assert api.get("/v1/conversations").json()["items"] == []
    for _ in range(2):  # to undo twice changes nothing
        assert call(api, "POST", path_of(run, ":restore")).json() == items["items"][0]
    assert api.get("/v1/conversations").json() == items
    assert thread_of(api, run)["messages"][1]["content"] == [{"type": "text", "text": "Answer"}]


def test_a_known_key_leads_into_no_deleted_conversation(api: Client, people: People) -> None:
    body = {"content": "Hello"}
    run = run_of(call(api, "POST", "conversations/new/messages", body, **{"Idempotency-Key": "k"}))
    call(api, "DELETE", path_of(run))
    again = call(api, "POST", "conversations/new/messages", body, **{"Idempotency-Key": "k"})
    error_of(again, 404)


@pytest.mark.parametrize("method", ["PATCH", "DELETE", "PUT"])
def test_conditional_writes(api: Client, people: People, method: str) -> None:
    run = answered(people.owner.user)
    path, body = path_of(run), None
    if method == "PATCH":
        body = {"title": "mine"}
    if method == "PUT":
        path, body = path_of(run, "/active_leaf"), {"message": message_id(run.reply_id)}
    etag = api.get(f"/v1/{path_of(run)}").headers["ETag"]
    finish(run_of(call(api, "POST", of_message(run, run.reply_id, "regenerate"))))
    for stale in (etag, f'{etag}, "x"', f"W/{etag}"):
        error = error_of(call(api, method, path, body, **{"If-Match": stale}), 412)
        assert (error["code"], error["param"]) == ("precondition_failed", "If-Match")
    for bad in ("17", '"', '"1" "2"', ""):
        assert error_of(call(api, method, path, body, **{"If-Match": bad}), 400)
    fresh = api.get(f"/v1/{path_of(run)}").headers["ETag"]
    assert fresh != etag
    done = call(api, method, path, body, **{"If-Match": f'"x", {fresh}'})
    assert done.status_code == (204 if method == "DELETE" else 200)


def test_conditional_reads(api: Client, people: People) -> None:
    """304 as long as the page would show the same, and never longer."""
    run = answered(people.owner.user)
    path = path_of(run)

    def read(etag: str = "") -> tuple[int, str]:
        answer = call(api, "GET", path, **({"If-None-Match": etag} if etag else {}))
        assert bool(answer.content) is (answer.status_code == 200)
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.status_code, answer.headers["ETag"]

    etag = read()[1]
    for same in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        assert read(same) == (304, etag)
    for other in ('"x"', "nonsense", '"', ""):
        assert read(other or '""') == (200, etag)
    again: list[Run] = []
    begin = of_message(run, run.parent_id, "regenerate")
    changes: list[Callable[[], Any]] = [
        lambda: call(api, "POST", f"messages/{message_id(run.reply_id)}/feedback", UP),
        lambda: call(api, "POST", f"messages/{message_id(run.reply_id)}/feedback", NONE),
        lambda: call(api, "PATCH", path, {"title": "mine"}),
        lambda: again.append(run_of(call(api, "POST", begin))),
        lambda: claim(again[0]),
        lambda: finish(again[0]),
        lambda: call(api, "PUT", f"{path}/active_leaf", {"message": message_id(run.reply_id)}),
    ]
    for change in changes:
        change()
        status, fresh = read(etag)
        assert (status, fresh != etag) == (200, True), change
        etag = fresh
        assert read(etag) == (304, etag)
        # Also while an answer is written, it can be written back to what was seen.
        assert call(api, "PATCH", path, {"title": ""}, **{"If-Match": etag}).status_code == 400
    stranger = Client(headers=bearer(people.other))
    assert call(stranger, "GET", path, **{"If-None-Match": etag}).status_code == 404


def test_an_answer_is_as_new_as_its_tag(
    api: Client, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename that comes while the conversation is read is in the answer, or not in its tag."""
    path = path_of(answered(people.owner.user))
    read = runs.standing

    def renamed_before(conversation: Any) -> runs.Standing:
        monkeypatch.setattr(runs, "standing", read)
        assert call(api, "PATCH", path, {"title": "new"}).status_code == 200
        return read(conversation)

    monkeypatch.setattr(runs, "standing", renamed_before)
    answer = call(api, "GET", path)
    assert answer.json()["title"] == "new"
    assert answer.headers["ETag"] == call(api, "GET", path).headers["ETag"]


UP, NONE = {"rating": "up"}, {"rating": None}


def test_a_title_of_64_kib(api: Client, people: People) -> None:
    run = answered(people.owner.user)
    refused = call(api, "PATCH", path_of(run), {"title": "x" * 65_536})
    assert error_of(refused, 400)["param"] == "title"


# --- purge ----------------------------------------------------------------------------------------


def _age(run: Run, days: float) -> None:
    then = timezone.now() - timedelta(days=days)
    Conversation.objects.filter(id=run.conversation_id).update(deleted_at=then)


def test_the_purge_destroys_what_was_deleted_long_ago(api: Client, people: People) -> None:
    old, fresh, kept = (answered(people.owner.user, "planted") for _ in range(3))
    for run in (old, fresh):
        path = f"messages/{message_id(run.reply_id)}/feedback"
        assert call(api, "POST", path, {"rating": "up", "reason": "planted"}).status_code == 200
    _age(old, settings.PURGE_AFTER_DAYS + 0.01)
    _age(fresh, settings.PURGE_AFTER_DAYS - 0.01)
    assert purge() == 1
    row = Conversation.objects.get(id=old.conversation_id)
    assert bytes(row.title) == b""
    assert row.purged_at is not None
    for message in Message.objects.filter(conversation=row):
        assert bytes(message.content) == b""
        assert message.tombstoned_at is not None
    assert not Feedback.objects.filter(message__conversation=row).exists()
    error_of(call(api, "POST", path_of(old, ":restore")), 404)
    assert call(api, "POST", path_of(fresh, ":restore")).status_code == 200
    assert [stored(run) for run in (fresh, kept)] == ["planted", "planted"]
    assert purge() == 0


def test_an_expired_temporary_conversation_is_purged(people: People) -> None:
    run = answered(people.owner.user, "planted")
    row = Conversation.objects.filter(id=run.conversation_id)
    row.update(temporary_until=timezone.now() + timedelta(minutes=1))
    assert purge() == 0
    row.update(temporary_until=timezone.now() - timedelta(seconds=1))
    assert purge() == 1
    assert stored(run) == ""


def test_more_than_one_batch(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "PURGE_BATCH", 2)
    for _ in range(5):
        _age(answered(people.owner.user), 31)
    assert purge() == 5


# --- feedback -------------------------------------------------------------------------------------


def test_feedback_is_replaced_and_taken_back(api: Client, people: People) -> None:
    run = answered(people.owner.user)
    path = f"messages/{message_id(run.reply_id)}/feedback"
    assert thread_of(api, run)["messages"][1]["feedback"] is None
    for said in (
        {"rating": "up"},
        {"rating": "down", "reason": "Wrong 👩‍👩‍👧‍👦"},
        {"rating": "down"},
    ):
        told = {"reason": "", **said}
        for _ in range(2):
            answer = call(api, "POST", path, said)
            assert (answer.status_code, answer.json()) == (200, told)
        assert thread_of(api, run)["messages"][1]["feedback"] == told
        assert Feedback.objects.count() == 1
    for _ in range(2):
        taken = call(api, "POST", path, {"rating": None})
        assert (taken.status_code, taken.json()) == (200, {"rating": None, "reason": ""})
    assert not Feedback.objects.exists()
    assert thread_of(api, run)["messages"][1]["feedback"] is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "rating"),
        ({"rating": "sideways"}, "rating"),
        ({"rating": 1}, "rating"),
        ({"rating": "up", "reason": "x" * 2_001}, "reason"),
        ({"rating": "up", "reason": "\0"}, "reason"),
        ({"rating": "up", "reason": None}, "reason"),
        ({"rating": None, "reason": "x"}, "reason"),
        ({"rating": "up", "text": "x"}, "text"),
    ],
)
def test_feedback_that_says_nothing(api: Client, people: People, body: Any, param: str) -> None:
    run = answered(people.owner.user)
    path = f"messages/{message_id(run.reply_id)}/feedback"
    assert error_of(call(api, "POST", path, body), 400)["param"] == param


def test_feedback_to_what_is_no_stored_reply(api: Client, people: People) -> None:
    live = ask(people.owner.user)
    path = f"messages/{message_id(live.reply_id)}/feedback"
    error = error_of(call(api, "POST", path, {"rating": "up"}), 409)
    assert error["code"] == "run_live"
    assert live.external_id in error["message"]
    foreign, foreign_live = answered(people.other.user), ask(people.other.user)
    missing = [foreign.reply_id, foreign_live.reply_id, live.parent_id, new_id()]
    told = {
        call(api, "POST", f"messages/{message}/feedback", {"rating": "up"}).content
        for message in (*map(message_id, missing), "m_", "x" * 34)
    }
    assert len(told) == 1
    assert b"not_found" in told.pop()
    assert not Feedback.objects.exists()
