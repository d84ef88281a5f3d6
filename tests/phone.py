"""A client as phones are: it loses its connection anywhere and goes on from its cursor elsewhere.

    phone = Phone(person.headers)
    await phone.send(web.url, "Hello", events=3)      # drops after three events
    await phone.resume(other.url)                     # … and goes on there to the end
    assert phone.text == stored_text(...)

Every event is checked as it comes: seqs rise by one, and jump only to `snapshot`, `retract` or
`done`; nothing follows `done`; no event belongs to another run.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from tests.api_schema import check_answer, check_event
from tests.stack import wait_for

PATIENCE_S = 45.0
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loading certificates takes longer than a call
PATIENT: Mapping[str, Any] = {"verify": NO_TLS, "timeout": PATIENCE_S}
"""How httpx is to ask: the five seconds it waits by itself are too few on a busy machine."""

JUMPS = frozenset({"snapshot", "retract", "done"})
WITHOUT_ID = frozenset({"notice", "snapshot", "error", "start"})
Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Frame:
    """One event as it came: `id` is None where there was none."""

    name: str
    data: dict[str, Any]
    id: str | None = None


class FrameParser:
    """The event stream format of the HTML standard, over any cut of the bytes."""

    def __init__(self) -> None:
        self.comments = 0
        self.retry_ms: int | None = None
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that are complete now; the rest is kept."""
        self._rest += chunk
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            yield from self._line(line.removesuffix(b"\r").decode())

    def _line(self, line: str) -> Iterator[Frame]:
        assert "\r" not in line, "a bare CR ends a line for the standard"
        name, _, value = line.partition(":")
        if line.startswith(":"):
            self.comments += 1
        elif name == "retry":
            self.retry_ms = int(value)
        elif line:
            self._fields.setdefault(name, []).append(value.removeprefix(" "))
        elif self._fields:
            fields, self._fields = self._fields, {}
            assert {len(values) for values in fields.values()} == {1}, fields
            assert fields.keys() <= {"id", "event", "data"}, fields
            yield Frame(fields["event"][0], json.loads(fields["data"][0]), *fields.get("id", ()))


class Connection:
    """One HTTP/1.1 exchange over a bare socket, which can be dropped or read slowly anywhere.

    `ended` tells a whole body from one that was cut.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False

    @classmethod
    async def open(
        cls,
        method: str,
        url: str,
        headers: Headers,
        body: object = None,
        *,
        receive_buffer_bytes: int = 0,
    ) -> Self:
        """Ask, and read the head of the answer. `body` is sent as JSON."""
        self = await cls.connect(url, receive_buffer_bytes)
        self.ask(method, url, headers, body)
        await self.read_head()
        return self

    @classmethod
    async def connect(cls, url: str, receive_buffer_bytes: int = 0) -> Self:
        parts = urlsplit(url)
        sock = socket.socket()
        if receive_buffer_bytes:
            # Before the connection is made: from then on the kernel's buffers only grow.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            sock.connect((str(parts.hostname), parts.port or 80))
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        limit = receive_buffer_bytes or 2**16
        try:
            return cls(*await asyncio.open_connection(sock=sock, limit=limit))
        except BaseException:
            sock.close()  # cancelled before a transport had it
            raise

    def ask(self, method: str, url: str, headers: Headers, body: object = None) -> None:
        parts = urlsplit(url)
        content = b"" if body is None else json.dumps(body).encode()
        lines = {
            "Host": parts.netloc,
            "Connection": "close",
            **({"Content-Type": "application/json"} if content else {}),
            "Content-Length": str(len(content)),
            **headers,
        }
        head = [f"{method} {parts.path}{'?' + parts.query if parts.query else ''} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in lines.items()]
        self.writer.write("\r\n".join([*head, "", ""]).encode() + content)

    async def read_head(self) -> None:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)).decode()
        first, *lines = head.strip().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes; ends where the server ends it, or cuts it."""
        try:
            if self.headers.get("transfer-encoding") != "chunked":
                yield await self.reader.readexactly(int(self.headers.get("content-length", "0")))
            else:
                while size := int(await self.reader.readuntil(b"\r\n"), 16):
                    yield (await self.reader.readexactly(size + 2))[:-2]
            self.ended = True
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def body(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def drop(self) -> None:
        """Gone without a word, as in a tunnel."""
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


@dataclass(slots=True)
class Phone:
    """What one person's screen holds of one run."""

    headers: Headers
    run: str = ""
    cursor: int = 0
    text: str = ""
    done: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    start: dict[str, Any] = field(default_factory=dict)
    notices: list[dict[str, Any]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    status: int = 0
    body: bytes = b""
    answer_headers: dict[str, str] = field(default_factory=dict)
    retry_ms: int | None = None
    comments: int = 0
    cut: bool = False
    anchor: str | None = None  # the text at the cursor, under a snapshot without id
    news: asyncio.Event = field(default_factory=asyncio.Event)

    # --- what the screen shows --------------------------------------------------------------------

    @property
    def told(self) -> list[str]:
        """The codes of its notices but `queued`: whether a run waits a moment first is chance."""
        return [code for notice in self.notices if (code := notice["code"]) != "queued"]

    def take(self, frame: Frame) -> None:
        """One event, by the rules every client can rely on."""
        assert self.done is None, f"{frame} after done"
        if frame.id is None:
            assert frame.name in WITHOUT_ID, frame
        else:
            self._move(frame)
        self.frames.append(frame)
        self._check(frame)
        match frame.name:
            case "start":
                self.start = frame.data
                self.run = frame.data["run"]
            case "delta":
                self.text += frame.data["text"]
            case "snapshot":
                if frame.id is None and self.anchor is None:
                    self.anchor = self.text
                self.text = frame.data["text"]
            case "retract":
                self.text = ""
            case "notice":
                self.notices.append(frame.data)
            case "error":
                self.error = frame.data
            case "done":
                self.done = frame.data
            case other:
                raise AssertionError(f"unknown event {other}")
        self.news.set()

    @staticmethod
    def _check(frame: Frame) -> None:
        if frame.name != "delta":  # there are thousands, and all they hold is a text
            check_event(frame.name, frame.data)

    def _move(self, frame: Frame) -> None:
        run, _, digits = str(frame.id).partition(":")
        seq = int(digits)
        assert run == (self.run or frame.data.get("run")), frame
        assert seq > self.cursor, f"{frame.id} after {self.cursor}"
        assert seq == self.cursor + 1 or frame.name in JUMPS, f"{frame.id} after {self.cursor}"
        self.cursor = seq
        self.seqs.append(seq)
        if frame.name == "delta" and self.anchor is not None:
            self.text = self.anchor
        self.anchor = None

    # --- connections ------------------------------------------------------------------------------

    async def send(
        self,
        url: str,
        content: str,
        *,
        conversation: str = "new",
        key: str | None = None,
        events: int | None = None,
        **fields: object,
    ) -> Self:
        """POST a message and read its stream, `events` of them at most."""
        headers = {"Idempotency-Key": key} if key else {}
        body = {"content": content, **fields}
        path = f"/v1/conversations/{conversation}/messages"
        await self._exchange("POST", url + path, headers, body, events=events)
        return self

    async def resume(
        self, url: str, *, events: int | None = None, max_bytes: int | None = None
    ) -> Self:
        """Go on from the cursor; dropped after `events`, or after `max_bytes` of the body."""
        headers = {"Last-Event-ID": f"{self.run}:{self.cursor}"} if self.cursor else {}
        path = f"/v1/runs/{self.run}/stream"
        await self._exchange("GET", url + path, headers, events=events, max_bytes=max_bytes)
        return self

    async def follow(self, *urls: str, events: int | None = None) -> Self:
        """Resume at one address after the other until the end."""
        for url in cycle(urls):
            if self.done is not None or self.status == 204:
                return self
            try:
                await self.resume(url, events=events)
            except (ConnectionError, EOFError):
                self.status = 0
            if self.status != 200:
                await asyncio.sleep(0.05)  # nobody listens there (yet, or any more)
        return self

    async def until(self, condition: Any) -> None:
        """Wait, while another task reads, until what is on the screen fulfils `condition`."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition(self):
                self.news.clear()
                await self.news.wait()

    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Headers,
        body: object = None,
        *,
        events: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        asked = {"Accept": "text/event-stream", **self.headers, **headers}
        connection = await Connection.open(method, url, asked, body)
        try:
            self.status, self.answer_headers = connection.status, connection.headers
            if connection.headers.get("content-type") == "text/event-stream":
                await self._read(connection, events, max_bytes)
            else:
                self.body = await connection.body()
        finally:
            await connection.drop()

    async def _read(
        self, connection: Connection, events: int | None, max_bytes: int | None
    ) -> None:
        parser = FrameParser()
        left_bytes = 2**62 if max_bytes is None else max_bytes
        left_events = 2**62 if events is None else events
        async for chunk in connection.chunks():
            frames = list(parser.feed(chunk[:left_bytes]))
            left_bytes -= len(chunk)
            self.comments, self.retry_ms = parser.comments, parser.retry_ms
            for frame in frames[:left_events]:
                self.take(frame)
            left_events -= len(frames)
            if left_bytes <= 0 or left_events <= 0:
                return
            self.news.set()
        self.cut = not connection.ended


# --- everything else a client asks ----------------------------------------------------------------


def call(
    method: str, url: str, headers: Headers, body: object = None, **options: Any
) -> httpx.Response:
    """One ordinary API call; its answer is as `/v1/schema` says."""
    content: dict[str, Any] = {} if body is None else {"json": body}
    answer = httpx.request(method, url, headers=headers, **PATIENT, **content, **options)
    path = answer.request.url.raw_path.decode()
    if path.startswith("/v1/") and answer.status_code != 405:
        kind = answer.headers.get("content-type", "")
        check_answer(method, path, answer.status_code, kind, answer.content)
    return answer


def post_message(
    url: str, headers: Headers, content: str, conversation: str = "new", **fields: object
) -> dict[str, Any]:
    """Send without reading the stream; the run as 202 tells it."""
    path = f"/v1/conversations/{conversation}/messages"
    answer = call("POST", url + path, headers, {"content": content, **fields})
    assert answer.status_code == 202, answer.text
    run: dict[str, Any] = answer.json()
    return run


def get_thread(url: str, headers: Headers, conversation: str) -> dict[str, Any]:
    """The conversation's detail."""
    answer = call("GET", f"{url}/v1/conversations/{conversation}", headers)
    assert answer.status_code == 200, answer.text
    thread: dict[str, Any] = answer.json()
    return thread


def text_of(message: Mapping[str, Any]) -> str:
    return "\n\n".join(part["text"] for part in message["content"])


def stored_reply(url: str, headers: Headers, run: Mapping[str, Any]) -> str:
    """The text of the run's reply as the conversation has it. `run` holds `start`'s ids."""
    thread = get_thread(url, headers, run["conversation"])
    by_id = {message["id"]: message for message in thread["messages"]}
    return text_of(by_id[run["reply_msg"]])


def get_run(url: str, headers: Headers, run: str) -> dict[str, Any]:
    answer = call("GET", f"{url}/v1/runs/{run}", headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def stop(url: str, headers: Headers, run: str) -> httpx.Response:
    return call("POST", f"{url}/v1/runs/{run}:stop", headers)


def stopped(url: str, headers: Headers, run: str) -> dict[str, Any]:
    """Stop the run and wait for its end: what it is then.

    (202 says that it had not ended after two seconds, which a busy machine may need.)
    """
    answer = stop(url, headers, run)
    assert answer.status_code in (200, 202), answer.text
    wait_for(lambda: get_run(url, headers, run)["finish"], "the stopped run to end")
    found = get_run(url, headers, run)
    assert answer.status_code == 202 or answer.json() == found
    return found
