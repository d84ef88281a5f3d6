"""Who gets a socket and who does not, and what no client may do with one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from websockets.exceptions import ConnectionClosed, InvalidStatus

from accounts.aio import in_database
from chatproject.commands import web_module
from generation.gateway import socket as room
from generation.gateway.frame_rate import BURST, PER_S
from generation.gateway.process import close_hub, hub
from generation.gateway.socket import SocketConsumer
from generation.gateway.socket_frames import MAX_FRAME_BYTES
from generation.open_connections import OPEN, Why
from tests.integration import tree_room
from tests.integration.live_people import LivePerson, change, live_people
from tests.people import Person, bearer, make_person
from tests.phone import Connection, call, get_run, post_message, stop
from tests.sockets import Socket
from tests.stack import Process, Stack, directive

READS = "UPDATE accounts_apitoken SET scopes = '{read}' WHERE user_id = %(user)s"
WRITES = "UPDATE accounts_apitoken SET scopes = '{read,write}' WHERE user_id = %(user)s"
MISSING = "g_" + "0" * 32
WRONG_KINDS = [MISSING, "", "x", "c_" + "0" * 32, "g_" + "A" * 32, "g_%00", "\u0000", "x" * 3_000]


@pytest.fixture(scope="module")
def people(stack: Stack) -> dict[str, LivePerson]:
    """By name. Each has an API token and a session, and was then changed as the name says."""
    return live_people(
        stack,
        {
            "ada": "",
            "disabled": "UPDATE accounts_user SET is_active = false WHERE id = %(user)s",
            "revoked": "UPDATE accounts_apitoken SET revoked = now() WHERE user_id = %(user)s",
            "expired": "UPDATE accounts_apitoken SET expires = now() WHERE user_id = %(user)s",
            "signed_out": "DELETE FROM django_session WHERE session_key = %(session)s",
            "one_time": """UPDATE accounts_user SET preferences = '{"password_is_temporary": true}'
                           WHERE id = %(user)s""",
            "reader": READS,
            "crowd": "",
            "root": """UPDATE accounts_user SET is_staff = true, is_superuser = true
                       WHERE id = %(user)s""",
        },
    )


@pytest.fixture(scope="module")
def run(stack: Stack, people: dict[str, LivePerson]) -> Iterator[dict[str, Any]]:
    """A live run of Ada's, longer than all that follows."""
    ada, url = people["ada"], stack.webs[0].url
    made = post_message(url, ada.headers, directive(tokens=1_000, tokens_per_s=1))
    yield made
    stop(url, ada.headers, made["id"])


async def _code(url: str, **options: Any) -> tuple[int, str]:
    async with Socket.open(url, ready=False, **options) as socket:
        await socket.closed()
        assert socket.frames == [], "nothing is said before"
        return socket.code or 0, socket.reason


# --- who ------------------------------------------------------------------------------------------

TOKENS = [
    ("disabled", "account_disabled"),
    ("revoked", "api_token_revoked"),
    ("expired", "api_token_expired"),
]


@pytest.mark.parametrize(("name", "reason"), TOKENS)
async def test_api_tokens_that_are_refused(
    stack: Stack, people: dict[str, LivePerson], name: str, reason: str
) -> None:
    """In the first frame and in the header alike."""
    url = stack.webs[0].url
    assert await _code(url, token=people[name].token) == (4401, reason)
    assert await _code(url, headers=people[name].headers) == (4401, reason)


async def test_strangers(stack: Stack) -> None:
    url = stack.webs[0].url
    for secret in ("", "t_wrong", "\u0000", "t_" + "x" * 3_000, "\U0001f468"):
        async with Socket.open(url, ready=False) as socket:
            await socket.say(type="auth", token=secret)
            assert await socket.closed() == 4401
            assert socket.reason == "invalid_api_token"
    assert await _code(url, headers={"Authorization": "Bearer t_wrong"}) == (
        4401,
        "invalid_api_token",
    )
    assert await _code(url, headers={"Authorization": "Basic eDp5"}) == (4401, "not_signed_in")
    for first in ({"type": "ping"}, {"type": "watch", "run": MISSING}):
        async with Socket.open(url, ready=False) as socket:
            await socket.say(**first)
            assert (await socket.closed(), socket.reason) == (4401, "not_signed_in")


async def test_an_api_token_in_the_address_counts_for_nothing(
    stack: Stack, people: dict[str, LivePerson]
) -> None:
    web, secret = stack.webs[0], people["ada"].token
    async with Socket.open(web.url, ready=False, query=f"?token={secret}") as socket:
        await socket.say(type="ping")
        assert await socket.closed() == 4401
    assert secret not in web.log.read_text(), "and is in no log"


SESSIONS = [
    ("disabled", "not_signed_in"),
    ("signed_out", "not_signed_in"),
    ("one_time", "password_change_required"),
]


@pytest.mark.parametrize(("name", "reason"), SESSIONS)
async def test_sessions_that_are_refused(
    stack: Stack, people: dict[str, LivePerson], name: str, reason: str
) -> None:
    url = stack.webs[0].url
    cookie = {"Cookie": f"sessionid={people[name].session}"}
    assert await _code(url, headers=cookie, origin=url) == (4401, reason)


@pytest.mark.parametrize(
    ("name", "by", "status", "code"),
    [(name, "token", 401, code) for name, code in TOKENS]
    + [(name, "cookie", 403 if name == "one_time" else 401, code) for name, code in SESSIONS],
)
async def test_streams_refuse_whom_sockets_refuse(
    stack: Stack,
    people: dict[str, LivePerson],
    run: dict[str, Any],
    name: str,
    by: str,
    status: int,
    code: str,
) -> None:
    person, url = people[name], stack.webs[0].url
    headers = person.headers if by == "token" else person.cookie
    for asked in (run["id"], MISSING):
        answer = await asyncio.to_thread(call, "GET", f"{url}/v1/runs/{asked}/stream", headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_cursor_of_anothers_run_opens_nothing(
    stack: Stack, people: dict[str, LivePerson], run: dict[str, Any]
) -> None:
    """Neither that run nor one's own: a cursor names the run it belongs to."""
    crowd, url = people["crowd"], stack.webs[0].url
    own = await asyncio.to_thread(post_message, url, crowd.headers, directive(tokens=1))
    headers = {**crowd.headers, "Last-Event-ID": f"{run['id']}:1"}
    for asked, status in ((own["id"], 400), (run["id"], 404), (MISSING, 404)):
        answer = await asyncio.to_thread(call, "GET", f"{url}/v1/runs/{asked}/stream", headers)
        assert answer.status_code == status, answer.text


async def test_a_cookie_counts_only_from_our_own_pages(
    stack: Stack, people: dict[str, LivePerson]
) -> None:
    url, ada = stack.webs[0].url, people["ada"]
    cookie = {"Cookie": f"sessionid={ada.session}"}
    async with Socket.open(url, headers=cookie, origin=url) as socket:
        assert socket.events("ready")[0]["data"] == {"user": ada.id}
    for origin in (None, "null", "https://evil.example", stack.webs[1].url, url + ".evil.example"):
        assert await _code(url, headers=cookie, origin=origin) == (4403, "wrong_origin")
    # What no page can do by itself is not held to it: an API token is nobody's to send along.
    async with Socket.open(url, token=ada.token, origin="https://elsewhere.example"):
        pass
    both = {**cookie, **ada.headers}
    async with Socket.open(url, headers=both, origin="https://elsewhere.example"):
        pass


async def test_other_addresses_have_no_socket(stack: Stack) -> None:
    for path in ("/v1/ws/", "/v1/wss", "/", "/v1/conversations"):
        with pytest.raises(InvalidStatus) as refusal:
            async with Socket.open(stack.webs[0].url, ready=False, path=path):
                pass
        assert refusal.value.response.status_code == 403
    assert "Traceback" not in stack.webs[0].tail()


# --- what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crowd", "root"])
async def test_anothers_run_and_a_missing_one_are_the_same(
    stack: Stack, run: dict[str, Any], people: dict[str, LivePerson], name: str
) -> None:
    """Also for an administrator, who may do more in the admin only."""
    async with Socket.open(stack.webs[0].url, token=people[name].token) as socket:
        for kind in ("watch", "stop"):
            answers = []
            for asked in (run["id"], MISSING, *WRONG_KINDS):
                socket.frames.clear()
                await socket.say(type=kind, run=asked)
                await socket.until(lambda s: s.events("refused"))
                refusal = socket.events("refused")[0]["data"]
                assert (refusal.pop("type"), refusal.pop("run")) == (kind, asked)
                answers.append(refusal)
            assert {json.dumps(answer) for answer in answers} == {json.dumps(answers[0])}
            assert answers[0]["error"]["code"] == "not_found"
        for after in (1, 10**15 - 1):
            socket.frames.clear()
            await socket.say(type="watch", run=run["id"], after=after)
            await socket.until(lambda s: s.events("refused"))
        assert not socket.phones, "not one event of it"
    found = await asyncio.to_thread(get_run, stack.webs[0].url, people["ada"].headers, run["id"])
    assert found["finish"] is None


async def test_a_token_that_may_only_read_stops_nothing(
    stack: Stack, people: dict[str, LivePerson]
) -> None:
    async with Socket.open(stack.webs[0].url, token=people["reader"].token) as socket:
        await socket.say(type="stop", run=MISSING)
        await socket.until(lambda s: s.events("refused"))
        assert socket.events("refused")[0]["data"]["error"]["code"] == "insufficient_scope"
        await socket.say(type="watch", run=MISSING)
        await socket.until(lambda s: len(s.events("refused")) == 2)
        assert socket.events("refused")[1]["data"]["error"]["code"] == "not_found"
        # What it may do is edited while it is open, to and fro.
        for statement, code in ((WRITES, "not_found"), (READS, "insufficient_scope")):
            await asyncio.to_thread(change, stack, people["reader"], statement)
            socket.frames.clear()
            await socket.say(type="stop", run=MISSING)
            await socket.until(lambda s: s.events("refused"))
            assert socket.events("refused")[0]["data"]["error"]["code"] == code


# --- hostile clients ------------------------------------------------------------------------------

SENT_AT_ONCE = 100_000
"""What the buffers of a connection take, so that all of it is sent before anything is answered."""
HOSTILE: list[tuple[object, int]] = [
    (b"\x00" * 100, 4400),
    (b"", 4400),
    ("", 4400),
    ("not json", 4400),
    ("[" * 4_000, 4400),
    ('{"type": "watch", "run": ' + "[" * 2_000 + "]" * 2_000 + "}", 4400),
    ('{"type": "nothing"}', 4400),
    ('{"type": "watch", "run": 7}', 4400),
    ('{"type": "auth", "token": "t_again"}', 4400),
    ("x" * 4_097, 1009),
    ("x" * 1_000_000, 1009),
    (["x" * 3_000, "x" * 3_000], 1009),
]


async def test_hostile_frames(stack: Stack, people: dict[str, LivePerson]) -> None:
    web = stack.webs[0]
    for frame, code in HOSTILE:
        async with Socket.open(web.url, token=people["ada"].token) as socket:
            # Of a frame that is too large only the head is read: to hang up while the rest is on
            # its way may fail the sending, and may cost the close frame, which makes it 1006.
            with contextlib.suppress(ConnectionClosed):
                await socket.connection.send(frame)  # type: ignore[arg-type]
            codes = {code, 1006} if len(frame) > SENT_AT_ONCE else {code}  # type: ignore[arg-type]
            assert await socket.closed() in codes, (str(frame)[:60], socket.reason)
    assert "Traceback" not in web.tail()
    assert call("GET", f"{web.url}/healthz", {}).status_code == 200


async def test_ten_thousand_frames_at_once(stack: Stack, people: dict[str, LivePerson]) -> None:
    web, began_s = stack.webs[0], time.monotonic()
    async with Socket.open(web.url, token=people["ada"].token) as socket:
        frame = json.dumps({"type": "watch", "run": MISSING})
        with contextlib.suppress(ConnectionClosed):
            for _ in range(10_000):
                await socket.connection.send(frame)
        assert await socket.closed() == 1008
        most = BURST + PER_S * (time.monotonic() - began_s)
        assert len(socket.events("refused")) <= most
    assert "Traceback" not in web.tail()


@pytest.fixture(scope="module")
def narrow(stack: Stack) -> Iterator[Process]:
    web = stack.start_web(env={"MAX_SOCKETS_PER_USER": "3", "MAX_STREAMS_PER_USER": "2"})
    try:
        stack.wait_ready()
        yield web
    finally:
        web.kill()
        stack.webs.remove(web)


async def test_more_sockets_than_a_user_may_have(
    stack: Stack, people: dict[str, LivePerson], narrow: Process
) -> None:
    crowd, url = people["crowd"], narrow.url
    async with AsyncExitStack() as opened:
        for _ in range(3):
            await opened.enter_async_context(Socket.open(url, token=crowd.token))
        assert await _code(url, token=crowd.token) == (4409, "too_many_sockets")
        async with Socket.open(url, token=stack.people["bob"].token):
            pass  # they are counted by user
    async with Socket.open(url, token=crowd.token):
        pass  # and who has left does not count


async def test_more_streams_than_a_user_may_have(
    stack: Stack, people: dict[str, LivePerson], narrow: Process
) -> None:
    """Refused before anything is written; what does not stream goes on."""
    crowd, url = people["crowd"], narrow.url
    asks = {"Accept": "text/event-stream", **crowd.headers}
    content = {"content": directive(tokens=1_000, tokens_per_s=2)}
    path = f"{url}/v1/conversations/new/messages"
    before = stack.rows("SELECT count(*) FROM generation_run")[0][0]
    streams = [await Connection.open("POST", path, asks, content) for _ in range(2)]
    assert [stream.status for stream in streams] == [200, 200]
    for stream in streams:
        await anext(stream.chunks())
    refused = await Connection.open("POST", path, asks, content)
    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert json.loads(await refused.body())["error"]["code"] == "too_many_streams"
    await refused.drop()
    assert stack.rows("SELECT count(*) FROM generation_run")[0][0] == before + 2
    runs = stack.rows(
        "SELECT replace(id::text, '-', '') FROM generation_run ORDER BY id DESC LIMIT 2"
    )
    resume = f"{url}/v1/runs/g_{runs[0][0]}/stream"
    answer = await asyncio.to_thread(call, "GET", resume, asks)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_streams")
    assert (await asyncio.to_thread(call, "GET", f"{url}/v1/models", crowd.headers)).is_success
    for stream in streams:
        await stream.drop()
    for (run,) in runs:
        await asyncio.to_thread(stop, url, crowd.headers, f"g_{run}")


# --- one socket alone, in this process ------------------------------------------------------------


@asynccontextmanager
async def _alone(headers: Mapping[str, str] | None = None) -> AsyncIterator[WebsocketCommunicator]:
    pairs = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    communicator = WebsocketCommunicator(SocketConsumer.as_asgi(), "/v1/ws", pairs)
    communicator.scope["scheme"] = "ws"
    connected, _ = await communicator.connect(timeout=30)
    assert connected
    try:
        yield communicator
    finally:
        await communicator.disconnect()
        await close_hub()


async def test_no_first_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FIRST_FRAME_S", 0.0)
    async with _alone() as communicator:
        said = await communicator.receive_output(timeout=30)
        assert (said["type"], said["code"]) == ("websocket.close", 4408)


@pytest.fixture
def owner(transactional_db: None) -> Iterator[Person]:
    with tree_room.empty_queues():
        yield make_person("ada")


async def _said(communicator: WebsocketCommunicator, event: str) -> dict[str, Any]:
    """The next frame of this name; others are passed over."""
    async with asyncio.timeout(30):
        while True:
            frame: dict[str, Any] = await communicator.receive_json_from(timeout=30)
            if frame["event"] == event:
                return frame


async def test_more_watches_than_a_socket_may_have(
    owner: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One too many is refused; one that is watched already may be watched again."""
    monkeypatch.setattr(room, "MAX_WATCHES", 2)
    runs = [await in_database(tree_room.ask, owner.user) for _ in range(3)]
    first, second, third = (run.external_id for run in runs)
    async with _alone(bearer(owner)) as communicator:
        await _said(communicator, "ready")
        for run in (first, second, first):
            await communicator.send_json_to({"type": "watch", "run": run})
            assert (await _said(communicator, "start"))["run"] == run
        await communicator.send_json_to({"type": "watch", "run": third})
        refused = (await _said(communicator, "refused"))["data"]
        assert (refused["run"], refused["error"]["code"]) == (third, "too_many_watches")
        await communicator.send_json_to({"type": "unwatch", "run": first})
        await communicator.send_json_to({"type": "watch", "run": third})
        assert (await _said(communicator, "start"))["run"] == third


class Stalled:
    """A client that takes `taken` messages and then reads no more."""

    def __init__(self, taken: int) -> None:
        self.left = taken
        self.told = asyncio.Event()
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(self, message: dict[str, Any]) -> None:
        self.told.set()
        if not self.left:
            await asyncio.Event().wait()
        self.left -= 1


async def test_a_client_that_does_not_read_is_closed_all_the_same(owner: Person) -> None:
    """Its connection is dropped where it does not even take the close frame."""
    run = await in_database(tree_room.ask, owner.user)
    headers = [(name.lower().encode(), value.encode()) for name, value in bearer(owner).items()]
    client = Stalled(taken=2)  # accept, ready
    scope = {"type": "websocket", "path": "/v1/ws", "scheme": "ws", "headers": headers}
    client.incoming.put_nowait({"type": "websocket.connect"})
    watch = json.dumps({"type": "watch", "run": run.external_id})
    serving = asyncio.create_task(SocketConsumer.as_asgi()(scope, client.incoming.get, client.send))
    async with asyncio.timeout(30):
        while client.left:
            client.told.clear()
            await client.told.wait()
        client.told.clear()
        client.incoming.put_nowait({"type": "websocket.receive", "text": watch})
        await client.told.wait()
        (credential,) = OPEN.credentials()
        assert OPEN.close([credential], Why.SIGNED_OUT) == 1
        await serving
    assert OPEN.credentials() == []
    made = await hub()
    assert made.open_streams == 0
    await close_hub()


async def test_a_client_that_asks_and_never_reads(owner: Person) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in bearer(owner).items()]
    client = Stalled(taken=2)
    scope = {"type": "websocket", "path": "/v1/ws", "scheme": "ws", "headers": headers}
    client.incoming.put_nowait({"type": "websocket.connect"})
    for _ in range(110):
        client.incoming.put_nowait({"type": "websocket.receive", "text": '{"type": "ping"}'})
    async with asyncio.timeout(30):
        await SocketConsumer.as_asgi()(scope, client.incoming.get, client.send)
    await close_hub()


def test_the_frames_limit_stands_where_the_server_is_started() -> None:
    """uvicorn reads up to 16 MiB of one frame unless it is told not to."""
    words = web_module("127.0.0.1", 8000)
    assert words[words.index("--ws-max-size") + 1] == str(MAX_FRAME_BYTES)
