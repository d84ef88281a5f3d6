"""One connection that stays subscribed to its Redis channels: raw hiredis receive.

redis-py makes the connection (address, TLS, password, unix socket, Sentinel); from then on its
streams are read here, because parsing each message through the client costs more than everything
else a gateway does with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import hiredis
from redis.exceptions import RedisError, ResponseError

from generation.token_log.tasks import end_task, raise_if_cancelled

logger = logging.getLogger(__name__)

PING_S: Final = 2.0
"""How often Redis is asked for a sign of life."""

DEAF_S: Final = 5.0
"""A connection that has brought nothing, not even an answer to a PING, for this long is dead: a
half-open one (a firewall's time-out, a machine that vanished) reports no error by itself."""

BACKOFF_S: Final = (0.05, 2.0)
"""The first and the longest pause between two attempts; each is drawn at random below it, so that
a fleet does not come back at one moment."""

READ_BYTES: Final = 65_536
MAX_BUFFER_BYTES: Final = 4 * 1_048_576
"""The most that may wait undecoded; a payload is far smaller (limits.MAX_PUSH_BYTES)."""


class RawSubscriber:
    """Hands the payloads of its channels to a function. Made by TokenChannelLayer.subscribe_raw.

    `ready` is set while Redis has confirmed all channels there were when the connection was made;
    `subscriptions` counts how often. Channels may come and go later: `add`, `remove`.
    """

    def __init__(
        self,
        make_connection: Callable[[], Any],
        channels: Iterable[str],
        on_payload: Callable[[bytes], None],
        on_resubscribed: Callable[[], None] | None,
    ) -> None:
        self.ready = asyncio.Event()
        self.subscriptions = 0
        self.deaf_since_s: float | None = time.monotonic()
        """Since when nothing can be heard here (time.monotonic()); None while all is well. May be
        read from any thread."""
        self._make_connection = make_connection
        # Each with the event that says that Redis has confirmed it, on this connection.
        self._channels = {channel.encode(): asyncio.Event() for channel in channels}
        self._on_payload = on_payload
        self._on_resubscribed = on_resubscribed
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._heard_s = 0.0

    def start(self) -> None:
        """Begins to subscribe, in a task of its own."""
        self._task = asyncio.create_task(self._run(), name="token log subscription")

    def add(self, channel: str) -> asyncio.Event:
        """Subscribes to one more channel; the event is set while Redis has confirmed it.

        Away or not: a connection that is made later begins with all channels. Never blocks.
        """
        name = channel.encode()
        if name not in self._channels:
            self._channels[name] = asyncio.Event()
            self._tell(b"SUBSCRIBE", name)
        return self._channels[name]

    def remove(self, channel: str) -> None:
        """Nothing more of this channel is wanted; what is under way may still come."""
        if self._channels.pop(channel.encode(), None) is not None:
            self._tell(b"UNSUBSCRIBE", channel.encode())
            if self._writer is not None:
                self._look_whether_ready()

    def _tell(self, verb: bytes, *channels: bytes) -> None:
        if self._writer is not None and channels:
            self._writer.write(_command(verb, *channels))

    async def aclose(self) -> None:
        """Ends the subscription; nothing is handed over afterwards."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    async def _run(self) -> None:
        failures = 0
        while True:
            before = self.subscriptions
            try:
                await self._subscribe_and_read()
            except (OSError, RedisError, hiredis.HiredisError, EOFError) as problem:
                logger.warning(
                    "token log subscription lost: %s",
                    type(problem).__name__,
                    extra={"action": "subscription_lost"},
                )
            except Exception:
                # uvloop has errors of its own for a transport that has just closed; whatever it
                # was, a process without this subscription is deaf.
                logger.exception(
                    "token log subscription failed", extra={"action": "subscription_lost"}
                )
            finally:
                self._lost()
            raise_if_cancelled()
            failures = 1 if self.subscriptions > before else failures + 1
            first, longest = BACKOFF_S
            pause = min(longest, first * 2 ** min(failures, 10))
            await asyncio.sleep(random.uniform(0, pause))  # noqa: S311  # jitter, no secret

    async def _subscribe_and_read(self) -> None:
        connection = self._make_connection()
        try:
            await connection.connect()
            raise_if_cancelled()
            self._heard_s = asyncio.get_running_loop().time()
            writer: asyncio.StreamWriter = connection._writer
            self._writer = writer
            self._tell(b"SUBSCRIBE", *self._channels)
            self._look_whether_ready()
            ping = asyncio.create_task(self._keep_alive(writer))
            try:
                await self._read(connection._reader)
            finally:
                ping.cancel()
        finally:
            await connection.disconnect(nowait=True)

    def _lost(self) -> None:
        self._writer = None
        if self.deaf_since_s is None:
            self.deaf_since_s = time.monotonic()
        self.ready.clear()
        for confirmed in self._channels.values():
            confirmed.clear()

    async def _keep_alive(self, writer: asyncio.StreamWriter) -> None:
        """Asks for signs of life; cuts a connection that gives none, which ends its _read."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PING_S)
            if loop.time() - self._heard_s > DEAF_S:
                writer.transport.abort()
                return
            writer.write(b"*1\r\n$4\r\nPING\r\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        parser = hiredis.Reader()
        while chunk := await reader.read(READ_BYTES):
            self._heard_s = loop.time()
            parser.feed(chunk)
            self._hand_over(parser)
            if parser.len() > MAX_BUFFER_BYTES:
                raise EOFError("a reply larger than any payload")
        raise EOFError("closed by Redis")

    def _hand_over(self, parser: hiredis.Reader) -> None:
        while (reply := parser.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                raise ResponseError("Redis refused the subscription")
            if reply[0] == b"message":
                self._safely(self._on_payload, reply[2])
            elif reply[0] == b"subscribe" and (confirmed := self._channels.get(reply[1])):
                confirmed.set()
                self._look_whether_ready()

    def _look_whether_ready(self) -> None:
        """Once for each connection: when the last of its first channels is confirmed."""
        if self.ready.is_set() or not all(one.is_set() for one in self._channels.values()):
            return
        self.subscriptions += 1
        self.deaf_since_s = None
        self.ready.set()
        if self.subscriptions > 1 and self._on_resubscribed is not None:
            self._safely(self._on_resubscribed)

    def _safely(self, function: Callable[..., None], *args: object) -> None:
        try:
            function(*args)
        except Exception:
            # One payload's trouble must not make this process deaf for everybody.
            logger.exception("token log subscriber failed", extra={"action": "payload_failed"})


def _command(*words: bytes) -> bytes:
    parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(parts)
