from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

from chatproject.body_limit import BodyLimit

LIMIT = 10
Message = MutableMapping[str, Any]


class Client:
    """Sends `chunks` as a request body and collects the answer."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)
        self.taken = 0
        self.answer: list[Message] = []

    async def receive(self) -> Message:
        self.taken += 1
        body = self._chunks.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(self._chunks)}

    async def send(self, message: Message) -> None:
        self.answer.append(message)

    @property
    def status(self) -> int:
        return int(self.answer[0]["status"])


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads its whole body."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def ask(client: Client, *headers: tuple[bytes, bytes]) -> None:
    await BodyLimit(echo, LIMIT)({"headers": list(headers)}, client.receive, client.send)


async def test_a_body_up_to_the_limit_passes() -> None:
    client = Client(b"12345", b"67890")
    await ask(client)
    assert client.status == 200


async def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    client = Client(b"x" * 11)
    await ask(client, (b"content-length", b"11"))
    assert client.status == 413
    assert client.taken == 0
    assert json.loads(client.answer[1]["body"])["error"]["code"] == "body_too_large"


async def test_a_body_that_grows_over_the_limit_is_refused_while_it_comes_in() -> None:
    client = Client(b"123456", b"123456", b"never read")
    await ask(client)
    assert client.status == 413
    assert client.taken == 2


async def test_a_length_that_lies_does_not_help() -> None:
    client = Client(b"x" * 11)
    await ask(client, (b"content-length", b"1"))
    assert client.status == 413
