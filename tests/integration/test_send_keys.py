"""One key, one send: whatever is repeated, raced or lost on the way back."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import psycopg
import pytest

from tests.phone import Connection, Phone, call, stored_reply
from tests.stack import Person, Stack, directive, wait_for

TWINS = 20


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


def _written(stack: Stack, key: str) -> tuple[int, int, int]:
    """(runs, user messages, usage entries) behind a key's conversation."""
    return stack.rows(
        """
        SELECT (SELECT count(*) FROM generation_run r WHERE r.conversation_id = c.id),
               (SELECT count(*) FROM conversations_message m
                WHERE m.conversation_id = c.id AND m.role = 'user'),
               (SELECT count(*) FROM quotas_usageentry u JOIN generation_run r ON u.run_id = r.id
                WHERE r.conversation_id = c.id)
        FROM generation_idempotencykey k
        JOIN generation_run first ON first.id = k.run_id
        JOIN conversations_conversation c ON c.id = first.conversation_id
        WHERE k.key = %s
        """,
        key,
    )[0]


async def test_twenty_at_once_are_one_send(stack: Stack, ada: Person, key: str) -> None:
    content = directive(tokens=30, tokens_per_s=60)
    conversations = stack.rows("SELECT count(*) FROM conversations_conversation")
    phones = [Phone(ada.headers) for _ in range(TWINS)]
    await asyncio.gather(
        *(
            phone.send(stack.webs[number % 2].url, content, key=key)
            for number, phone in enumerate(phones)
        )
    )
    assert {phone.status for phone in phones} == {200}
    assert len({phone.run for phone in phones}) == 1
    assert {phone.text for phone in phones} == {" ".join(f"w{n}" for n in range(1, 31))}
    assert all(phone.done == phones[0].done and phone.start == phones[0].start for phone in phones)
    assert stored_reply(stack.webs[0].url, ada.headers, phones[0].start) == phones[0].text
    assert _written(stack, key) == (1, 1, 1)
    after = stack.rows("SELECT count(*) FROM conversations_conversation")
    assert after[0][0] == conversations[0][0] + 1, "the losers' conversations are not left behind"


async def test_the_race_held_open(stack: Stack, ada: Person, key: str) -> None:
    """The first send has taken the key and waits for the conversation; its twin must wait too."""
    first = await Phone(ada.headers).send(stack.webs[0].url, directive(tokens=1))
    conversation = first.start["conversation"]
    content = directive(tokens=5)
    twins = [Phone(ada.headers) for _ in range(2)]
    with psycopg.connect(stack.env["DATABASE_URL"]) as holder:
        holder.execute(
            "SELECT 1 FROM conversations_conversation WHERE id = %s FOR UPDATE",
            [uuid.UUID(conversation.removeprefix("c_"))],
        )
        tasks = []
        for waiting, (twin, web) in enumerate(zip(twins, stack.webs, strict=True), 1):
            sending = twin.send(web.url, content, key=key, conversation=conversation)
            tasks.append(asyncio.create_task(sending))
            await _until_blocked(stack, waiting)
        holder.rollback()
        await asyncio.gather(*tasks)
    assert twins[0].run == twins[1].run != first.run
    assert twins[0].text == twins[1].text == "w1 w2 w3 w4 w5"
    assert _written(stack, key) == (2, 2, 2)


async def _until_blocked(stack: Stack, count: int) -> None:
    """Until `count` statements of the product wait for a lock."""
    query = """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    await asyncio.to_thread(
        wait_for, lambda: stack.rows(query)[0][0] >= count, f"{count} sends to wait"
    )


async def test_client_repeats_a_send(stack: Stack, ada: Person, key: str) -> None:
    """Gone before a byte of the answer came; the same key leads to the same run."""
    url = f"{stack.webs[0].url}/v1/conversations/new/messages"
    headers = {**ada.headers, "Idempotency-Key": key, "Accept": "text/event-stream"}
    content = directive(tokens=12, tokens_per_s=40)
    connection = await Connection.connect(url)
    connection.ask("POST", url, headers, {"content": content})
    await connection.writer.drain()
    saved = "SELECT run_id FROM generation_idempotencykey WHERE key = %s"
    await asyncio.to_thread(wait_for, lambda: stack.rows(saved, key), "the send to be saved")
    await connection.drop()
    phone = await Phone(ada.headers).send(stack.webs[1].url, content, key=key)
    assert phone.run == f"g_{stack.rows(saved, key)[0][0].hex}"
    assert phone.text == " ".join(f"w{n}" for n in range(1, 13))
    assert _written(stack, key) == (1, 1, 1)


async def test_a_key_known_for_an_ended_run_streams_it_from_its_start(
    stack: Stack, ada: Person, key: str
) -> None:
    first = await Phone(ada.headers).send(stack.webs[0].url, directive(tokens=3), key=key)
    again = await Phone(ada.headers).send(stack.webs[1].url, directive(tokens=3), key=key)
    assert (again.start, again.text, again.done) == (first.start, first.text, first.done)
    accepted = _post(stack, ada.headers, key, {"content": directive(tokens=3)})
    assert accepted.status_code == 202
    assert accepted.json()["id"] == first.run
    assert accepted.json()["status"] == "completed"


OTHER_BODIES: list[dict[str, Any]] = [
    {"content": directive(tokens=2) + " "},
    {"content": directive(tokens=2), "model": "sim"},
    {"content": directive(tokens=2), "parent_id": None},
    {"content": [{"type": "text", "text": directive(tokens=2)}, {"type": "text", "text": "x"}]},
]


def test_the_same_key_with_another_body(stack: Stack, ada: Person, key: str) -> None:
    model = stack.rows("SELECT slug FROM generation_model WHERE is_default")[0][0]
    assert _post(stack, ada.headers, key, {"content": directive(tokens=2)}).status_code == 202
    for body in OTHER_BODIES:
        body = {**body, **({"model": model} if "model" in body else {})}
        refused = _post(stack, ada.headers, key, body)
        assert refused.status_code == 422, body
        assert refused.json()["error"]["code"] == "idempotency_key_reused"
        assert refused.json()["error"]["param"] == "Idempotency-Key"
    assert _written(stack, key)[:2] == (1, 1)


def test_a_key_belongs_to_its_user(stack: Stack, ada: Person, key: str) -> None:
    bob = stack.people["bob"]
    runs = [
        _post(stack, person.headers, key, {"content": directive(tokens=1)}).json()["id"]
        for person in (ada, bob, ada, bob)
    ]
    assert runs[0] == runs[2] != runs[1] == runs[3]


def test_a_refused_send_does_not_use_its_key(stack: Stack, ada: Person, key: str) -> None:
    assert _post(stack, ada.headers, key, {"content": ""}).status_code == 400
    assert _post(stack, ada.headers, key, {"content": "x", "model": "no"}).status_code == 400
    assert _post(stack, ada.headers, key, {"content": directive(tokens=1)}).status_code == 202


def _post(stack: Stack, headers: dict[str, str], key: str, body: dict[str, Any]) -> Any:
    url = f"{stack.webs[0].url}/v1/conversations/new/messages"
    return call("POST", url, {**headers, "Idempotency-Key": key}, body)
