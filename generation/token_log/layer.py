"""The Channels layer of the token log (`CHANNEL_LAYERS["tokens"]`): pushes in batches, raw receive.

A subclass of channels_redis' pub/sub layer, whose own verbs keep working. Two are added:
`publish_many` sends any number of payloads in one pipeline, and `subscribe_raw` hands every
payload of its channels to a function, without redis-py's parsing and without a queue per consumer
(half the cost per event). Channel names are used as they are, without the layer's prefix.

`CHANNEL_LAYERS["default"]`, which carries hints, is of this class too: its groups are Redis
channels (`accounts.hints` names them), which a gateway receives raw as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from channels_redis.pubsub import RedisPubSubChannelLayer, RedisPubSubLoopLayer
from channels_redis.utils import _wrap_close, create_pool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from generation.token_log.clients import client_options, exchange
from generation.token_log.subscriber import RawSubscriber


class TokenChannelLayer(RedisPubSubChannelLayer):  # type: ignore[misc]  # an untyped package
    """`CONFIG`: {"hosts": [url or kwargs, ...], "prefix": ...}, as for channels_redis."""

    @property
    def prefix(self) -> str:
        """What the names of this layer's groups begin with in Redis."""
        return str(self._kwargs["prefix"])

    async def publish_many(self, payloads: Sequence[tuple[str, bytes]]) -> None:
        """Publishes (channel, payload) pairs in their order, one pipeline per Redis.

        At most once, as with every channel layer. Raises redis' ConnectionError or TimeoutError.
        """
        await self._get_layer().publish_many(payloads)

    async def subscribe_raw(
        self,
        channel: str | None,
        on_payload: Callable[[bytes], None],
        *,
        on_resubscribed: Callable[[], None] | None = None,
    ) -> RawSubscriber:
        """Hands each payload published on `channel` to `on_payload`, in the running event loop.

        Without a channel it begins with none; `subscriber.add` and `remove` change them. Returns
        at once; `await subscriber.ready.wait()` returns once Redis has confirmed. A broken or deaf
        connection is replaced for ever; what was published meanwhile is lost, and
        `on_resubscribed` says so each time. Neither function may block. `aclose()` ends it.
        """
        loop_layer = self._get_layer()
        subscriber = loop_layer.raw_subscriber(channel, on_payload, on_resubscribed)
        subscriber.start()
        return subscriber

    def _get_layer(self) -> TokenLoopLayer:
        loop = asyncio.get_running_loop()
        layer: TokenLoopLayer | None = self._layers.get(loop)
        if layer is None:
            layer = TokenLoopLayer(*self._args, **self._kwargs, channel_layer=self)
            self._layers[loop] = layer
            _wrap_close(self, loop)
        return layer


class TokenLoopLayer(RedisPubSubLoopLayer):  # type: ignore[misc]  # an untyped package
    """The connections of one event loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for shard in self._shards:
            shard.host = _with_limits(shard.host)
        self._raw: list[RawSubscriber] = []

    async def publish_many(self, payloads: Sequence[tuple[str, bytes]]) -> None:
        by_shard: dict[Any, list[tuple[str, bytes]]] = {}
        for channel, payload in payloads:
            by_shard.setdefault(self._get_shard(channel), []).append((channel, payload))
        for shard, group in by_shard.items():
            await _publish(shard, group)

    def raw_subscriber(
        self,
        channel: str | None,
        on_payload: Callable[[bytes], None],
        on_resubscribed: Callable[[], None] | None,
    ) -> RawSubscriber:
        pool = create_pool(self._get_shard(channel or "").host)
        channels = [] if channel is None else [channel]
        subscriber = RawSubscriber(pool.make_connection, channels, on_payload, on_resubscribed)
        self._raw.append(subscriber)
        return subscriber

    async def flush(self) -> None:
        raw, self._raw = self._raw, []
        for subscriber in raw:
            await subscriber.aclose()
        await super().flush()


async def _publish(shard: Any, payloads: Sequence[tuple[str, bytes]]) -> None:
    # The lock is the shard's own: flush() closes the client under it.
    async with shard._lock:
        shard._ensure_redis()
        client = shard._redis
    words = [("PUBLISH", channel, payload) for channel, payload in payloads]
    try:
        replies = await exchange(client, words)
    except RedisConnectionError:
        # Publishing twice is harmless: gateways drop a seq they have.
        replies = await exchange(client, words)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply


def _with_limits(host: dict[str, Any]) -> dict[str, Any]:
    """Connection arguments with time-outs, unless the settings have their own."""
    limits = {**client_options(), "retry": Retry(NoBackoff(), 1)}
    return {**limits, **host, "protocol": 2}
