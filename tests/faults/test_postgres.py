"""PostgreSQL goes away: answers under way go on, nothing ends twice, and the end comes late."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from chatproject.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.phone import Connection, Phone, call, stored_reply
from tests.stack import Stack, directive

SEND = "/v1/conversations/new/messages"
OUTAGES_MAX = 30
PATHS = ("/v1/models", "/v1/conversations", "/v1/runs/{run}/stream", SEND)


class Database:
    """The breakable stack's own database, which can be closed to everybody."""

    def __init__(self, stack: Stack) -> None:
        self._name = urlsplit(stack.env["DATABASE_URL"]).path.lstrip("/")

    def close(self) -> None:
        self._allow("false")
        with self._admin() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [self._name],
            )

    def open(self) -> None:
        self._allow("true")

    def _allow(self, word: str) -> None:
        statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        with self._admin() as connection:
            connection.execute(statement.format(sql.Identifier(self._name), sql.SQL(word)))

    @staticmethod
    def _admin() -> psycopg.Connection:
        return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


@pytest.fixture
def database(breakable: Stack) -> Iterator[Database]:
    made = Database(breakable)
    yield made
    made.open()


async def test_postgresql_away_at_the_end(breakable: Stack, database: Database) -> None:
    ada = breakable.people["ada"]
    hold = breakable.hold("postgres")
    content = directive(tokens=20, tokens_per_s=40, hold="postgres", hold_after=5)
    phone = Phone(ada.headers)
    task = asyncio.create_task(phone.send(breakable.webs[0].url, content))
    await phone.until(lambda p: p.text.endswith("w5"))
    database.close()
    hold.unlink()
    await phone.until(lambda p: p.text.endswith("w20"))
    await asyncio.sleep(1)  # the finish is tried and refused meanwhile
    assert phone.done is None
    database.open()
    await task
    assert phone.done is not None
    assert phone.done["finish"] == "stop"
    assert phone.text == stored_reply(breakable.webs[0].url, ada.headers, phone.start)
    usage = breakable.rows(
        "SELECT count(*) FROM quotas_usageentry u JOIN generation_run r ON r.id = u.run_id "
        "WHERE replace(r.id::text, '-', '') = %s",
        phone.run.removeprefix("g_"),
    )
    assert usage == [(1,)]


async def test_what_is_asked_while_it_is_away(breakable: Stack, database: Database) -> None:
    """Calls are refused as unavailable; the process is alive, and says so at once, and files of
    the page come too: neither needs one of Django's threads, all of which wait.
    """
    ada, web = breakable.people["ada"], breakable.webs[0]
    first = await Phone(ada.headers).send(web.url, directive(tokens=2))
    database.close()
    began_s = time.monotonic()
    calls = [await Connection.connect(web.url) for _ in PATHS * 3]
    for connection, path in zip(calls, PATHS * 3, strict=True):
        method, body = ("POST", {"content": "x"}) if path == SEND else ("GET", None)
        connection.ask(method, web.url + path.format(run=first.run), ada.headers, body)
    for _ in range(5):
        for path in ("/healthz", "/static/css/base.css"):
            alive = await Connection.open("GET", web.url + path, {})
            assert alive.status == 200
            await alive.drop()
    alive_s = time.monotonic() - began_s
    for connection in calls:
        await connection.read_head()
        assert connection.status == 503
        assert int(connection.headers["retry-after"]) >= 1
        assert json.loads(await connection.body())["error"]["code"] == "unavailable"
        await connection.drop()
    refused_s = time.monotonic() - began_s
    print(f"alive within {alive_s:.2f} s, refused within {refused_s:.1f} s")
    assert alive_s < refused_s / 2
    database.open()
    answer = call("GET", f"{web.url}/v1/models", ada.headers)
    assert answer.status_code == 200, "back with the first call that finds it"


# --- a server that is killed ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.temporary(durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def own(postgres: EmbeddedPostgres) -> Iterator[Stack]:
    """A stack on a server of its own, which may be killed."""
    with EmbeddedValkey.temporary() as valkey:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("DATABASE_URL", postgres.url)
            stack = Stack.start(redis_url=valkey.url)
        with stack as running:
            yield running


async def test_restarts_during_sends_and_during_finishes(
    own: Stack, postgres: EmbeddedPostgres
) -> None:
    """What is refused is refused as unavailable, and nothing of it is written; what was accepted
    ends, once, with all of its text."""
    ada, phones, over = own.people["ada"], [], asyncio.Event()
    whole = "w1 w2 w3 w4 w5 w6 w7 w8"
    refused: list[Phone] = []

    async def talk(number: int) -> None:
        web = own.webs[number % 2]
        for turn in itertools.count():
            if over.is_set():
                return
            phone = Phone(ada.headers)
            content = directive(tokens=8, tokens_per_s=20)
            while not phone.run:
                await phone.send(web.url, content, key=f"{number}-{turn}")
                if not phone.run:
                    assert phone.status == 503, phone.body
                    assert int(phone.answer_headers["retry-after"]) >= 1
                    refused.append(phone)
                    await asyncio.sleep(0.2)
            phones.append(await phone.follow(web.url))

    talking = [asyncio.create_task(talk(number)) for number in range(6)]

    def has_met_both() -> bool:
        return bool(refused) and "finish_retried" in own.workers[0].log.read_text()

    for outage in itertools.count(1):
        await asyncio.sleep(2)
        postgres.kill()
        await asyncio.sleep(1)
        postgres.start()
        if (outage >= 3 and has_met_both()) or outage == OUTAGES_MAX:
            break
    await asyncio.sleep(2)
    over.set()
    await asyncio.gather(*talking)
    print(f"{len(phones)} answers, {len(refused)} sends were refused first")
    assert len(phones) > 12
    assert has_met_both(), "sends and finishes alike"
    for phone in phones:
        assert phone.done is not None
        assert (phone.done["finish"], phone.error) == ("stop", None)
        assert phone.text == whole == stored_reply(own.webs[0].url, ada.headers, phone.start)
    counts = own.rows(
        "SELECT (SELECT count(*) FROM generation_run), (SELECT count(*) FROM quotas_usageentry), "
        "(SELECT count(*) FROM conversations_message), (SELECT count(*) FROM generation_run "
        "WHERE status <> 'completed')"
    )
    assert counts == [(len(phones), len(phones), 2 * len(phones), 0)]
