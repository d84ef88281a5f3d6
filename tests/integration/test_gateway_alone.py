"""Parts of the gateway alone, where what goes wrong has to be forced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from django.db import OperationalError

from accounts import live
from accounts.ids import new_id
from accounts.live import LiveCredential
from chatproject import handler
from generation.gateway import closing
from generation.gateway import hub as hub_room
from generation.gateway.process import close_hub, hub
from generation.open_connections import OpenConnections, Why

Message = dict[str, Any]


async def test_the_tick_goes_on_while_postgresql_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that is never answered: heartbeats and renewals go on all the same."""
    asked = asyncio.Event()

    async def never(wanted: Iterable[str]) -> dict[str, Any]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(hub_room, "run_ends", never)
    monkeypatch.setattr(hub_room, "TICK_S", 0.02)
    monkeypatch.setattr(hub_room, "SILENT_S", 0.0)
    monkeypatch.setattr(hub_room, "HEARTBEAT_S", 0.0)
    made = await hub()
    run = f"g_{new_id().hex}"
    viewer = await made.attach(run, "none", 0)
    try:
        async with asyncio.timeout(30):
            await asked.wait()
            for _ in range(3):
                viewer.extra = b""
                registered_at_s = made._feeds[run].registered_at_s
                while not viewer.extra or made._feeds[run].registered_at_s == registered_at_s:
                    await asyncio.sleep(0.01)
    finally:
        made.detach(viewer)
        await close_hub()


# --- what nobody can be asked about ---------------------------------------------------------------


async def test_nothing_is_closed_for_a_while_when_nobody_can_be_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, closed, connections = [], list[Why](), OpenConnections()
    credential = LiveCredential(new_id(), "session", "k" * 32, "hash")
    connections.enter(credential, "socket", closed.append)

    def away(wanted: Iterable[LiveCredential]) -> set[LiveCredential]:
        asked.append(list(wanted))
        raise OperationalError

    monkeypatch.setattr(live, "ended", away)
    monkeypatch.setattr(closing, "CHECK_S", 0.01)
    task = asyncio.create_task(closing.close_ended_forever(connections))
    async with asyncio.timeout(30):
        while len(asked) < 5:
            await asyncio.sleep(0.01)
        assert closed == []
        monkeypatch.setattr(closing, "BLIND_S", 0.0)
        while not closed:
            await asyncio.sleep(0.01)
        assert closed[0] is Why.UNKNOWN
        # And it goes on: what ends later is closed as soon as it can be asked about.
        monkeypatch.setattr(closing, "BLIND_S", 60.0)
        monkeypatch.setattr(live, "ended", lambda wanted: set(wanted))
        while closed[-1] is not Why.SIGNED_OUT:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert asked[0] == [credential]
    assert credential.key not in caplog.text
    assert credential.key not in repr(credential)


def test_who_enters_and_leaves_is_counted() -> None:
    connections, credential = OpenConnections(), LiveCredential(new_id(), "session", "k")
    entries = [connections.enter(credential, "stream", lambda _: None) for _ in range(100)]
    with pytest.raises(Exception, match="too many streams"):
        connections.refuse_more_streams(credential.user_id)
    connections.refuse_more_sockets(credential.user_id)
    connections.refuse_more_streams(new_id())
    connections.leave(entries[0])
    connections.leave(entries[0])
    connections.refuse_more_streams(credential.user_id)
    for entry in entries:
        connections.leave(entry)
    assert connections.credentials() == []
    assert connections._counts == {}


# --- a body that does not come --------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [0, 10_000])
async def test_a_body_that_takes_too_long(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    """One that stands still, and one of which a byte comes now and then."""
    monkeypatch.setattr(handler, "BODY_S", 0.1)
    said: list[Any] = []
    left = iter(range(chunks))

    async def receive() -> Message:
        if next(left, None) is None:
            await asyncio.Event().wait()
        await asyncio.sleep(0.001)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        said.append(message)

    async with asyncio.timeout(30):
        scope = {"type": "http", "method": "POST", "path": "/v1/conversations", "headers": []}
        await handler.GatewayHandler()(scope, receive, send)
    assert said[0]["status"] == 408
    assert json.loads(said[1]["body"])["error"]["code"] == "body_too_slow"
