"""Publishing a ticket: what it says, and that it never holds anybody up."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from django.conf import settings

from chatproject.celery import app
from chatproject.embedded import EmbeddedValkey
from chatproject.embedded.ports import free_port
from generation.scheduler import drop_tickets, publish_ticket, queue_name, tickets
from generation.scheduler.broker import TicketAMQP, TicketTransport
from generation.worker.queues import TicketQueues

POOL = "ticket-test"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "_pause", tickets._Pause())


@pytest.fixture
def valkey() -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey.temporary() as server:
        yield server


def use_broker(monkeypatch: pytest.MonkeyPatch, url: str) -> Celery:
    """The product's own Celery settings, with another broker."""
    own = Celery("ticket-test", set_as_current=False, amqp=TicketAMQP)
    own.config_from_object("django.conf:settings", namespace="CELERY")
    own.conf.update(broker_url=url)
    monkeypatch.setattr(tickets, "current_app", own)
    return own


def waiting(valkey: EmbeddedValkey) -> int:
    with redis.Redis.from_url(valkey.url) as client:
        return int(client.llen(queue_name(POOL)))


def test_a_ticket_names_the_pool_and_no_run(
    monkeypatch: pytest.MonkeyPatch, valkey: EmbeddedValkey
) -> None:
    use_broker(monkeypatch, valkey.url)
    assert publish_ticket(POOL)
    with redis.Redis.from_url(valkey.url) as client:
        (raw,) = client.lrange(queue_name(POOL), 0, -1)
    message = json.loads(raw)
    assert message["headers"]["task"] == "generation.run_ticket"
    assert message["headers"]["argsrepr"] == f"['{POOL}']"
    args, kwargs, _embed = json.loads(base64.b64decode(message["body"]))
    assert (args, kwargs) == ([POOL], {})


def test_a_ticket_is_what_celery_itself_would_send(
    monkeypatch: pytest.MonkeyPatch, valkey: EmbeddedValkey
) -> None:
    own = use_broker(monkeypatch, valkey.url)
    assert publish_ticket(POOL)
    assert publish_ticket(POOL)
    own.send_task(
        tickets.TASK, args=[POOL], queue=queue_name(POOL), ignore_result=True, retry=False
    )
    with redis.Redis.from_url(valkey.url) as client:
        sent = [json.loads(raw) for raw in client.lrange(queue_name(POOL), 0, -1)]
    names = [_taken_names(message) for message in sent]
    assert len(set(names)) == 3, "each ticket has a name of its own"
    assert sent[1] == sent[2] == sent[0]


def _taken_names(message: Any) -> str:
    """The ticket's own name, which stands there three times; that and what else differs goes."""
    headers, properties = message["headers"], message["properties"]
    name = headers.pop("id")
    assert headers.pop("root_id") == properties.pop("correlation_id") == name
    properties.pop("delivery_tag")
    properties.pop("reply_to", None)  # who waits for a result: nobody does
    return str(name)


def test_a_channel_publishes_with_one_client(
    monkeypatch: pytest.MonkeyPatch, valkey: EmbeddedValkey
) -> None:
    own = use_broker(monkeypatch, valkey.url)
    with own.connection_for_write() as connection:
        channel: Any = connection.default_channel
        first = channel._create_client()
        assert channel._create_client() is first
        channel._disconnect_pools()
        assert channel._create_client() is not first, "its pool is gone"
        assert channel._create_client().ping()


def test_the_task_is_registered_under_that_name() -> None:
    app.loader.import_default_modules()
    assert {tickets.TASK, "generation.sweep", "generation.forget_idempotency_keys"} <= set(
        app.tasks
    )


def test_what_beat_publishes_exists_and_expires() -> None:
    app.loader.import_default_modules()
    for entry in app.conf.beat_schedule.values():
        assert entry["task"] in app.tasks
        assert 0 < entry["options"]["expires"] <= entry["schedule"]


def test_a_broker_that_is_away_costs_little_and_then_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_broker(monkeypatch, f"redis://:secret-word@127.0.0.1:{free_port()}/0")
    begun_s = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert not publish_ticket(POOL)
        assert not publish_ticket(POOL)
    # Kombu's own way would be a hundred seconds; this is generous for a busy machine.
    assert time.monotonic() - begun_s < 30
    (record,) = [r for r in caplog.records if getattr(r, "action", "") == "ticket_failed"]
    assert "secret-word" not in record.getMessage()


def test_tickets_are_published_again_after_the_broker_forgot_everything(
    monkeypatch: pytest.MonkeyPatch, valkey: EmbeddedValkey
) -> None:
    """Kombu remembers what it declared, and refuses to route by a table that Redis has lost; a
    ticket goes to its queue by name and needs no table."""
    use_broker(monkeypatch, valkey.url)
    assert publish_ticket(POOL)
    valkey.kill()
    assert not publish_ticket(POOL)
    valkey.start()
    assert waiting(valkey) == 0
    monkeypatch.setattr(tickets, "_pause", tickets._Pause())
    assert publish_ticket(POOL) or publish_ticket(POOL)
    assert waiting(valkey) == 1


def test_the_tickets_of_a_replica_that_is_gone_are_dropped(
    monkeypatch: pytest.MonkeyPatch, valkey: EmbeddedValkey
) -> None:
    own = use_broker(monkeypatch, valkey.url)
    monkeypatch.setattr(tickets, "_pause", tickets._Pause())
    assert publish_ticket(POOL)
    assert publish_ticket(POOL, "r-1")
    assert publish_ticket(POOL, "r-2")
    drop_tickets(POOL, "r-1")
    drop_tickets(POOL, "r-1")
    with redis.Redis.from_url(valkey.url) as client:
        left = [name.decode() for name in client.scan_iter("*gpu.*")]
    assert {queue_name(POOL), queue_name(POOL, "r-2")} <= set(left)
    assert not [name for name in left if name.endswith("r-1")]
    # One that comes back by the same name is sent tickets again.
    assert publish_ticket(POOL, "r-1")
    with own.connection() as connection:
        taken: list[Any] = []
        queue = own.amqp.queues[queue_name(POOL, "r-1")]
        with connection.Consumer([queue], on_message=taken.append):
            connection.drain_events(timeout=20)
    assert len(taken) == 1


def test_another_process_drops_the_tickets_of_a_replica_that_it_never_sent_any(
    monkeypatch: pytest.MonkeyPatch, valkey: EmbeddedValkey
) -> None:
    use_broker(monkeypatch, valkey.url)
    assert publish_ticket(POOL, "r-1")
    other = use_broker(monkeypatch, valkey.url)
    # Kombu's connections are shared by all that have the same options: this one declared nothing.
    other.conf.broker_transport_options = {
        **other.conf.broker_transport_options,
        "client_name": "another",
    }
    drop_tickets(POOL, "r-1")
    with redis.Redis.from_url(valkey.url) as client:
        assert [name for name in client.scan_iter("*gpu.*") if name.endswith(b"r-1")] == []


def test_a_moved_worker_takes_its_new_pools_tickets_as_it_took_the_old_ones() -> None:
    """What is selected is what the next connection to the broker consumes from."""
    own = Celery("moved", set_as_current=False, amqp=TicketAMQP)
    own.config_from_object("django.conf:settings", namespace="CELERY")
    own.amqp.queues.select([queue_name(POOL), "chores"])
    serving = TicketQueues(SimpleNamespace(app=own), "r-1")
    serving.serve(None)
    assert list(own.amqp.queues.consume_from) == ["chores"]
    for pool in ("elsewhere", POOL):
        serving.serve(pool)
        names = {queue_name(pool), queue_name(pool, "r-1")}
        assert set(own.amqp.queues.consume_from) == {"chores", *names}
        for name in names:
            assert own.amqp.queues.consume_from[name].no_ack
            assert own.amqp.queues[name].no_ack


def test_tickets_are_taken_without_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Redis only: another broker would give all there are to the first worker that asks."""
    assert app.amqp.queues[queue_name(POOL)].no_ack
    assert not app.amqp.queues["other"].no_ack
    monkeypatch.setattr(settings, "CELERY_BROKER_URL", "amqp://broker")
    assert not app.amqp.queues[queue_name("elsewhere")].no_ack


@pytest.mark.parametrize(("queue", "acknowledged"), [(queue_name(POOL), False), ("chores", True)])
def test_celery_asks_for_no_acknowledgement_and_the_broker_hears_of_none(
    monkeypatch: pytest.MonkeyPatch, valkey: EmbeddedValkey, queue: str, acknowledged: bool
) -> None:
    """Celery acknowledges whatever it takes; kombu would go to Redis for each."""
    own = use_broker(monkeypatch, valkey.url)
    own.send_task("generation.sweep", queue=queue)
    taken: list[Any] = []
    with own.connection() as connection:
        with connection.Consumer([own.amqp.queues[queue]], on_message=taken.append):
            connection.drain_events(timeout=20)
        taken[0].ack()
    with redis.Redis.from_url(valkey.url) as client:
        assert ("cmdstat_zrem" in client.info("commandstats")) == acknowledged


def test_tls_is_spoken_where_the_address_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of its transport kombu decides; in plain text the password would be read."""
    for scheme, tls in (("redis", False), ("rediss", True)):
        own = use_broker(monkeypatch, f"{scheme}://:word@127.0.0.1:1/0")
        with own.connection() as connection:
            assert bool(connection.ssl) == tls
            assert connection.transport_cls.endswith(scheme)
            assert issubclass(connection.get_transport_cls(), TicketTransport)
