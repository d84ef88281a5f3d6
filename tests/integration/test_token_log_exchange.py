"""A pipeline that is packed and read by hand: what it does where something is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import BusyLoadingError, NoScriptError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from generation.token_log.clients import async_client, exchange
from tests.integration.token_log_room import redis_fixture, valkey_fixture  # noqa: F401  # fixtures


async def test_replies_come_in_order_and_refusals_stand_among_them(redis: Any) -> None:
    replies = await exchange(
        redis,
        [
            ("SET", "a", b"1"),
            ("INCRBY", b"a", 2),
            ("EVALSHA", "0" * 40, 0),
            ("LPUSH", "a", "x"),
            ("GET", "a"),
        ],
    )
    assert replies[:2] == [b"OK", 3]
    assert [type(reply) for reply in replies[2:4]] == [NoScriptError, ResponseError]
    assert replies[4] == b"3"


async def test_more_than_the_buffers_hold(redis: Any) -> None:
    large = b"x" * 2_000_000
    replies = await exchange(redis, [("ECHO", large)] * 10)
    assert replies == [large] * 10


class Server:
    """Answers each connection with what it is given, then says nothing more."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)
        self.connections = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"redis://127.0.0.1:{port}/0"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = self.answers[min(self.connections, len(self.answers) - 1)]
        self.connections += 1
        while chunk := await reader.read(65_536):
            # What the client says when it connects is answered, once for each command.
            writer.write(b"+OK\r\n" * chunk.count(b"SETINFO"))
            if b"ECHO" in chunk:
                writer.write(answer)
                if not answer.endswith(b"\n"):
                    break
        writer.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", BusyLoadingError),
        (b"$3\r\none\r\n$3\r\nt", RedisConnectionError),
        (b"$3\r\none\r\n", RedisTimeoutError),
    ],
)
async def test_what_was_not_read_is_never_the_next_ones(answer: bytes, error: type) -> None:
    """Half a pipeline's replies, or none: the connection is not used again."""
    words = [("ECHO", "one"), ("ECHO", "two")]
    both = b"$3\r\none\r\n$3\r\ntwo\r\n"
    async with Server([answer, both]) as url:
        client = async_client(f"{url}?socket_timeout=0.5")
        with pytest.raises(error):
            await exchange(client, words)
        assert await exchange(client, words) == [b"one", b"two"]
        await client.aclose()
