"""Redis connections made for token logs: RESP2, bytes, short time-outs, no retries of their own.

A retry inside the client would hide an outage for seconds; the flusher keeps the batch, backs
off and sends again itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import hiredis
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry as SyncRetry

AsyncRedis = redis.asyncio.Redis
SyncRedis = redis.Redis

TIMEOUT_S: Final = 5.0
"""How long one command may take: longer than any pause of a healthy Redis, shorter than a lease."""

CONNECT_TIMEOUT_S: Final = 2.0

READ_BYTES: Final = 65_536

Words = tuple[str | bytes | int, ...]
"""One command."""


def async_client(url: str) -> AsyncRedis:
    """An asyncio client for token logs. The caller closes it (`aclose`)."""
    return redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **client_options())


def sync_client(url: str) -> SyncRedis:
    """A client for token logs in sync code; it may be shared by threads."""
    # A request can afford one quick second try on a connection that went stale while it was idle.
    return redis.Redis.from_url(url, retry=SyncRetry(NoBackoff(), 1), **client_options())


def client_options() -> dict[str, Any]:
    """Connection arguments that every client here shares."""
    return {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
    }


async def exchange(client: AsyncRedis, commands: Sequence[Words]) -> list[Any]:
    """The replies to `commands`, sent as one pipeline; what Redis refused has its error there.

    redis-py makes the connection; from then on this packs and reads in compiled code. Its own
    pipeline packs in Python and has a timer and four coroutines for each reply, which was half of a
    worker's flush. Raises redis' ConnectionError or TimeoutError where it is undecided what was
    done.
    """
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    try:
        async with asyncio.timeout(connection.socket_timeout):
            return await _exchange(connection, commands)
    except BaseException as problem:
        # uvloop has a RuntimeError of its own for a transport that has just closed.
        broken = isinstance(problem, RuntimeError) and connection._writer.is_closing()
        # A reply that was not read would be taken for the first one of the next pipeline.
        await connection.disconnect(nowait=True)
        if isinstance(problem, TimeoutError):
            raise RedisTimeoutError("no replies in time") from problem
        if isinstance(problem, OSError | EOFError | hiredis.HiredisError) or broken:
            raise RedisConnectionError("the connection broke in a pipeline") from problem
        raise
    finally:
        await pool.release(connection)


async def _exchange(connection: Any, commands: Sequence[Words]) -> list[Any]:
    writer: asyncio.StreamWriter = connection._writer
    pack: Any = hiredis.pack_command  # the stubs take one word
    writer.write(b"".join([pack(command) for command in commands]))
    await writer.drain()
    reader: asyncio.StreamReader = connection._reader
    # redis-py's own table: which error is a refusal, and which says that Redis is not there yet.
    parser = hiredis.Reader(replyError=connection._parser.parse_error)
    replies: list[Any] = []
    while True:
        while (reply := parser.gets()) is not False:
            if isinstance(reply, RedisConnectionError):
                raise reply
            replies.append(reply)
        if len(replies) >= len(commands):
            return replies
        chunk = await reader.read(READ_BYTES)
        if not chunk:
            raise EOFError("closed by Redis")
        parser.feed(chunk)
