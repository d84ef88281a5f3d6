"""A socket through what can fail: Redis, PostgreSQL, a deploy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from accounts import hints
from chatproject.embedded import EmbeddedValkey
from tests.faults.redis_proxy import RedisProxy
from tests.faults.test_postgres import Database
from tests.phone import Phone, call, post_message, stored_reply
from tests.sockets import Socket
from tests.stack import Stack, directive, wait_for

LOOK_AGAIN = {"kind": "look_again"}


@pytest.fixture
def database(breakable: Stack) -> Iterator[Database]:
    made = Database(breakable)
    yield made
    made.open()


def _rename(stack: Stack, headers: Any, conversation: str) -> float:
    """Rename it; how long that took."""
    began_s = time.monotonic()
    url = f"{stack.webs[0].url}/v1/conversations/{conversation}"
    answer = call("PATCH", url, headers, {"title": "New"})
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began_s


async def test_redis_restarts_under_open_sockets(breakable: Stack, valkey: EmbeddedValkey) -> None:
    """Subscriptions come back by themselves; nobody waits for hints meanwhile, or fails."""
    ada, web = breakable.people["ada"], breakable.webs[1]
    run = await Phone(ada.headers).send(web.url, directive(tokens=1))
    conversation = run.start["conversation"]
    changed = {"kind": "conversation_changed", "conversation": conversation}
    async with Socket.open(web.url, token=ada.token) as before:
        await asyncio.to_thread(_rename, breakable, ada.headers, conversation)
        await before.hinted(changed)
        valkey.kill()
        took_s = await asyncio.to_thread(_rename, breakable, ada.headers, conversation)
        print(f"renamed in {took_s:.2f} s without Redis")
        async with Socket.open(web.url, token=ada.token) as during:
            assert during.hints() == []
            valkey.start()
            for socket in (before, during):
                await socket.hinted(LOOK_AGAIN)
                socket.frames.clear()
            await asyncio.to_thread(_until_hinted, breakable, ada.headers, conversation, before)
            await during.hinted(changed)
            assert before.code is None
            assert during.code is None


def _until_hinted(stack: Stack, headers: Any, conversation: str, socket: Socket) -> None:
    """Each rename may be the one whose hint is lost on a connection that is broken."""

    def renamed() -> bool:
        _rename(stack, headers, conversation)
        return bool(socket.hints())

    wait_for(renamed, "a hint to come through")


async def test_a_request_does_not_wait_for_a_redis_that_hangs(breakable: Stack) -> None:
    """It takes connections and answers nothing: the worst that a Redis can do."""
    ada = breakable.people["ada"]
    url = breakable.webs[0].url
    made = await asyncio.to_thread(call, "POST", f"{url}/v1/conversations", ada.headers, {})
    with RedisProxy(breakable.env["REDIS_URL"]) as proxy:
        web = breakable.start_web(env={"REDIS_URL": proxy.url})
        breakable.wait_ready()
        with proxy.silence():
            path = f"{web.url}/v1/conversations/{made.json()['id']}"
            took_s = []
            for _ in range(3):
                began_s = time.monotonic()
                answer = await asyncio.to_thread(call, "PATCH", path, ada.headers, {"title": "x"})
                took_s.append(time.monotonic() - began_s)
                assert answer.status_code == 200
        web.kill()
        breakable.webs.remove(web)
    print(f"renamed in {took_s}")
    assert min(took_s) < hints.TIMEOUT_S, "the publisher alone waits that long each time"


async def test_postgres_away_under_open_streams_and_sockets(
    breakable: Stack, database: Database
) -> None:
    """Nobody can be asked whether they may stay open: they stay, and the answer goes on."""
    ada, web = breakable.people["ada"], breakable.webs[0]
    phone, hold = Phone(ada.headers), breakable.hold("away")
    content = directive(tokens=80, tokens_per_s=40, hold="away", hold_after=5)
    async with Socket.open(web.url, token=ada.token) as socket:
        task = asyncio.create_task(phone.send(web.url, content))
        await phone.until(lambda p: p.text)
        await socket.say(type="watch", run=phone.run)
        await socket.until(lambda s: s.text(phone.run))
        refused = web.log.read_text().count("credentials_not_checked")
        database.close()
        await asyncio.to_thread(
            wait_for,
            lambda: web.log.read_text().count("credentials_not_checked") > refused,
            "a check that fails",
            web,
        )
        seen = len(socket.text(phone.run))
        hold.unlink()
        await socket.until(lambda s: len(s.text(phone.run)) > seen)
        assert not task.done()
        database.open()
        await socket.until(lambda s: s.done(phone.run))
        await task
        assert (
            socket.text(phone.run) == phone.text == stored_reply(web.url, ada.headers, phone.start)
        )
        assert socket.code is None


async def test_a_deploy_closes_sockets_and_they_go_on_elsewhere(breakable: Stack) -> None:
    ada = breakable.people["ada"]
    web, other = breakable.webs
    hold = breakable.hold("deploy_socket")
    content = directive(tokens=5, hold="deploy_socket", hold_after=2)
    run = await asyncio.to_thread(post_message, other.url, ada.headers, content)
    async with (
        Socket.open(web.url, token=ada.token) as socket,
        Socket.open(web.url, ready=False) as nobody,
    ):
        await socket.say(type="watch", run=run["id"])
        await socket.until(lambda s: s.text(run["id"]) == "w1 w2")
        status = await asyncio.to_thread(web.terminate)
        assert status in (0, -15), web.tail()
        assert (await socket.closed(), await nobody.closed()) == (1012, 1012)
        assert not socket.done(run["id"])
    assert "Traceback" not in web.tail()
    hold.unlink()
    seen = socket.phones[run["id"]]
    async with Socket.open(other.url, token=ada.token) as again:
        shown = again.phones[run["id"]] = Phone({}, run["id"], seen.cursor, seen.text)
        await again.say(type="watch", run=run["id"], after=seen.cursor)
        await again.until(lambda s: s.done(run["id"]))
        assert shown.text == "w1 w2 w3 w4 w5"
