"""Parts of the gateway alone, where what goes wrong has to be forced."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
import uvicorn
from django.conf import settings
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.utils import translation

from accounts import live
from accounts.aio import in_database
from accounts.ids import new_id
from accounts.live import LiveCredential
from chatproject import handler
from generation.gateway import closing, stream
from generation.gateway import hub as hub_room
from generation.gateway.hub import Hub
from generation.gateway.process import close_hub, hub
from generation.open_connections import OPEN, OpenConnections, Why
from generation.run_response import StreamPlan
from generation.token_log.tasks import end_task
from tests.phone import Connection

Message = dict[str, Any]


async def test_the_tick_goes_on_while_postgresql_is_asked(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """A question that is never answered: heartbeats and renewals go on all the same."""
    asked = asyncio.Event()

    async def never(wanted: Iterable[str]) -> dict[str, Any]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(hub_room, "run_ends", never)
    monkeypatch.setattr(hub_room, "TICK_S", 0.02)
    monkeypatch.setattr(hub_room, "SILENT_S", 0.0)
    settings.STREAM_HEARTBEAT_S = 0.0
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
        connections.enter(credential, "stream", closed.append)
        while closed[-1] is not Why.SIGNED_OUT:
            await asyncio.sleep(0.01)
    await end_task(task)
    assert closed == [Why.UNKNOWN, Why.SIGNED_OUT], "each is asked once, however long it takes"
    assert asked[0] == [credential]
    assert credential.key not in caplog.text
    assert credential.key not in repr(credential)


@pytest.fixture
def hang() -> Iterator[Callable[..., Any]]:
    """A question to a PostgreSQL that takes it and never answers."""
    over = threading.Event()
    yield lambda *_: over.wait(60)
    over.set()


async def test_everything_is_closed_where_the_question_hangs(
    monkeypatch: pytest.MonkeyPatch, hang: Callable[..., Any]
) -> None:
    closed, connections = list[Why](), OpenConnections()
    connections.enter(LiveCredential(new_id(), "session", "k" * 32), "stream", closed.append)
    monkeypatch.setattr(live, "ended", hang)
    monkeypatch.setattr(closing, "CHECK_S", 0.01)
    monkeypatch.setattr(closing, "ANSWER_S", 0.05)
    monkeypatch.setattr(closing, "BLIND_S", 0.2)
    task = asyncio.create_task(closing.close_ended_forever(connections))
    async with asyncio.timeout(30):
        while not closed:
            await asyncio.sleep(0.01)
    await end_task(task)
    assert closed == [Why.UNKNOWN]


async def test_the_question_does_not_stand_in_line_behind_requests(
    monkeypatch: pytest.MonkeyPatch, hang: Callable[..., Any]
) -> None:
    """Anybody can fill the threads of the requests, with API tokens that are none."""
    closed, connections = list[Why](), OpenConnections()
    connections.enter(LiveCredential(new_id(), "session", "k" * 32), "stream", closed.append)
    monkeypatch.setattr(live, "ended", set)
    requests = [asyncio.create_task(in_database(hang)) for _ in range(settings.DATABASE_POOL_SIZE)]
    try:
        await asyncio.sleep(0)
        await closing.close_ended(connections)
        assert closed == [Why.SIGNED_OUT]
        assert not any(request.done() for request in requests)
    finally:
        for request in requests:
            await end_task(request)


# --- a client that does not read ------------------------------------------------------------------


class Unread:
    """A connection whose client stops reading after some messages, and never leaves."""

    def __init__(self, taken: int) -> None:
        self.messages: list[Any] = []
        self.full = asyncio.Event()
        self._taken = taken

    async def send(self, message: Any) -> None:
        if len(self.messages) >= self._taken:
            self.full.set()
            await asyncio.Event().wait()
        self.messages.append(message)

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


def _close(made: Hub) -> None:
    OPEN.close_all(Why.SIGNED_OUT)


@pytest.mark.parametrize("end", [_close, Hub.drain])
@pytest.mark.parametrize("taken", [0, 1, 2])
async def test_a_stream_ends_though_its_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[Hub], Any], taken: int
) -> None:
    """Wherever it stands: in its head, at its first event, at any other."""
    monkeypatch.setattr(stream, "CLOSE_S", 0.05)
    client, made = Unread(taken), await hub()
    credential = LiveCredential(new_id(), "session", "k" * 32)
    plan = StreamPlan(f"g_{new_id().hex}", 0, b"{}", "none", credential)
    writing = asyncio.create_task(stream.write_stream(made, plan, client.receive, client.send))
    try:
        async with asyncio.timeout(30):
            while not (made.open_streams or client.full.is_set()):
                await asyncio.sleep(0.01)
            for viewer in made._feeds[plan.run].viewers if taken == 2 else ():
                viewer.say(b": one more\n\n")
            await client.full.wait()
            assert OPEN.credentials() == [credential]
            end(made)
            await writing
        assert OPEN.credentials() == []
        assert made.open_streams == 0
        assert len(client.messages) == taken, "nothing is written after the end"
    finally:
        await end_task(writing)
        await close_hub()


@pytest.fixture
async def narrow_server() -> AsyncIterator[tuple[str, StreamPlan]]:
    """uvicorn itself, with next to no room in the kernel; it writes the stream of this plan."""
    plan = StreamPlan(
        f"g_{new_id().hex}", 0, b"{}", "none", LiveCredential(new_id(), "session", "k" * 32)
    )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await stream.write_stream(await hub(), plan, receive, send)

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", plan
    finally:
        server.should_exit = server.force_exit = True
        await serving
        listening.close()
        await close_hub()


async def test_a_connection_that_is_not_read_is_cut(
    narrow_server: tuple[str, StreamPlan],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(stream, "CLOSE_S", 0.5)
    monkeypatch.setattr(closing, "CHECK_S", 0.05)
    monkeypatch.setattr(live, "ended", lambda _: set())
    url, plan = narrow_server
    made = await hub()
    async with asyncio.timeout(60):
        client = await Connection.open("GET", url, {}, receive_buffer_bytes=2_048)
        while not made.open_streams:
            await asyncio.sleep(0.01)
        (viewer,) = made._feeds[plan.run].viewers
        for frame in (b": early\n" * 100_000, b": held back\n"):
            viewer.say(frame)
            while viewer.extra:  # not taken yet
                await asyncio.sleep(0.01)
        monkeypatch.setattr(live, "ended", set)
        while made.open_streams:
            await asyncio.sleep(0.01)
        assert OPEN.credentials() == []
        body = await client.body()
        assert not client.ended, "it was cut"
        await client.drop()
    assert body.endswith(b": early\n"), "and nothing after what was on its way"
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert (actions.count("credentials_ended"), actions.count("stream_cut")) == (1, 1)


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


# --- Django in a thread ---------------------------------------------------------------------------


def _whose_thread(request: HttpRequest) -> HttpResponse:
    """Names the thread, and the language that the request before may have left."""
    language = translation.get_language()
    translation.activate("de")
    return HttpResponse(f"{threading.get_ident()} {language}")


def _streams(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter([b"a", b"b"]))


_served: list[str] = []
_may_end = threading.Event()
_begun = threading.Event()


def _slow(request: HttpRequest) -> HttpResponse:
    _served.append(request.GET["who"])
    _begun.set()
    assert _may_end.wait(30)
    return HttpResponse()


def _busy(request: HttpRequest) -> HttpResponse:
    _served.append("busy")
    error = {"code": "busy", "message": "Later.", "param": None, "retry_after_s": 9}
    return JsonResponse({"error": error}, status=429, headers={"Retry-After": "9"})


_at_once: list[int] = []
_hold = threading.Event()


def _busy_slowly(request: HttpRequest) -> HttpResponse:
    """Refuses once it may; how many were there at once is in `_at_once`."""
    _at_once.append(1 + sum(_at_once[-1:]))
    _begun.set()
    assert _hold.wait(30)
    _at_once.append(_at_once[-1] - 1)
    return _busy(request)


urlpatterns = [
    path("v1/busy", _busy),
    path("v1/busy-slowly", _busy_slowly),
    path("thread", _whose_thread),
    path("streams", _streams),
    path("slow", _slow),
]


async def _asked(
    asked: handler.GatewayHandler,
    path: str,
    query: str = "",
    left: asyncio.Event | None = None,
    method: str = "GET",
    headers: dict[str, str] | None = None,
) -> list[Any]:
    """What was sent to a client that leaves when `left` is set."""
    said: list[Any] = []
    coming: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if coming:
            return coming.pop()
        await (left or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [
            (b"host", b"testserver"),
            *((name.encode(), value.encode()) for name, value in (headers or {}).items()),
        ],
    }
    async with asyncio.timeout(30):
        await asked(scope, receive, send)
    return said


KEYED: dict[str, str] = {"authorization": "ada", "idempotency-key": "k"}
"""Each must come to Django: it may be the retry of one that was accepted."""


@pytest.mark.urls(__name__)
async def test_threads_are_used_again_and_nothing_is_left_in_them(settings: Any) -> None:
    settings.WEB_THREADS, settings.MIDDLEWARE = 2, []
    asked = handler.GatewayHandler()
    answers = [(await _asked(asked, "/thread"))[1]["body"].split() for _ in range(6)]
    assert len({thread for thread, _ in answers}) <= 2
    assert {language for _, language in answers} == {settings.LANGUAGE_CODE.encode()}


@pytest.mark.urls(__name__)
async def test_a_storm_of_retries_takes_one_thread_once(settings: Any) -> None:
    """Whoever was told to wait and asks again at once never comes to Django: nobody whose turn it
    is stands behind them in the line for a thread."""
    settings.WEB_THREADS, settings.MIDDLEWARE = 1, []
    _served.clear()
    asked = handler.GatewayHandler()
    first = await _asked(asked, "/v1/busy", method="POST")
    again = await asyncio.gather(*(_asked(asked, "/v1/busy", method="POST") for _ in range(1_000)))
    assert _served == ["busy"]
    for start, body in [first, *again]:
        assert start["status"] == 429
        told = {name.lower(): value for name, value in start["headers"]}
        assert 1 <= int(told[b"retry-after"]) <= 9
        assert json.loads(body["body"])["error"]["code"] == "busy"


@pytest.mark.urls(__name__)
async def test_whoever_was_refused_stands_behind_those_who_were_not(settings: Any) -> None:
    """Twenty retries that must be looked up, and one of two threads is free for others; nor do
    those of them who leave take another."""
    settings.WEB_THREADS, settings.MIDDLEWARE = 2, []
    _at_once.clear()
    _hold.clear()
    _begun.clear()
    asked, gone = handler.GatewayHandler(), asyncio.Event()
    await _asked(asked, "/v1/busy", method="POST", headers=KEYED)
    slow = partial(_asked, asked, "/v1/busy-slowly", method="POST", headers=KEYED)
    leaving = asyncio.create_task(slow(left=gone))
    assert await asyncio.to_thread(_begun.wait, 30)
    storm = [asyncio.create_task(slow()) for _ in range(20)]
    await asyncio.sleep(0)  # all of them are in line
    gone.set()
    assert await leaving == []
    other = await _asked(asked, "/v1/busy", method="POST", headers={"authorization": "bob"})
    assert other[0]["status"] == 429, "and not a time-out"
    assert _at_once == [1]
    _hold.set()
    assert {(await one)[0]["status"] for one in storm} == {429}
    assert max(_at_once) == 1


@pytest.mark.urls(__name__)
async def test_a_view_cannot_stream(settings: Any) -> None:
    """It would hold up every stream of the process; what streams is a run."""
    settings.MIDDLEWARE = []
    with pytest.raises(RuntimeError, match="/streams: only a run may stream"):
        await _asked(handler.GatewayHandler(), "/streams")


@pytest.mark.urls(__name__)
async def test_who_leaves_in_line_takes_no_thread_and_who_has_one_keeps_it(settings: Any) -> None:
    settings.WEB_THREADS, settings.MIDDLEWARE = 1, []
    _served.clear()
    asked, gone = handler.GatewayHandler(), asyncio.Event()
    first = asyncio.create_task(_asked(asked, "/slow", "who=first", gone))
    assert await asyncio.to_thread(_begun.wait, 30)
    second = asyncio.create_task(_asked(asked, "/slow", "who=second", gone))
    third = asyncio.create_task(_asked(asked, "/slow", "who=third"))
    await asyncio.sleep(0)  # all three stand in line
    gone.set()
    assert (await first, await second) == ([], [])
    _may_end.set()
    assert (await third)[0]["status"] == 200
    assert _served == ["first", "third"]
