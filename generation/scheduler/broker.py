"""How Celery takes tickets from the broker: without acknowledgement.

An acknowledgement of kombu's Redis transport makes a client of its own for each message, twice:
a quarter of a worker's CPU, for a promise that nobody relies on. A ticket that is lost with its
worker costs a second (worker.sweep).
"""

from __future__ import annotations

from typing import Any, Final

from celery.app.amqp import AMQP, Queues
from django.conf import settings
from kombu import Queue
from kombu.transport import redis

from generation.scheduler.tickets import queue_name

PREFIX: Final = queue_name("")


class TicketQueues(Queues):
    """Celery's queues; those of tickets are consumed without acknowledgement."""

    def new_missing(self, name: str) -> Queue:
        queue: Queue = super().new_missing(name)
        # Another broker would send all there are to the first worker that asks: what is not
        # acknowledged has no prefetch limit.
        if name.startswith(PREFIX) and settings.CELERY_BROKER_URL.startswith(("redis", "valkey")):
            queue.no_ack = True
        return queue


class TicketAMQP(AMQP):
    """Celery's view of the broker, with these queues."""

    queues_cls = TicketQueues


class TicketChannel(redis.Channel):
    """A channel that tells its messages who took them, and publishes with one client.

    Celery acknowledges every message. One whose consumer wants no acknowledgements passes over
    that, if it knows its consumer; those of kombu's Redis transport do not.
    """

    _publisher: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.no_ack_consumers: set[str] = set()

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return self._new_client(asynchronous=True)
        # Kombu makes one for each message, which takes longer than sending it. A channel that was
        # disconnected has a new pool.
        if self._publisher is None or self._publisher.connection_pool is not self.pool:
            self._publisher = self._new_client(asynchronous=False)
        return self._publisher

    def _new_client(self, asynchronous: bool) -> Any:
        base: Any = super()  # kombu has no types
        return base._create_client(asynchronous)

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str | None, **kwargs: Any
    ) -> str:
        def named(message: Any) -> Any:
            message.delivery_info["consumer_tag"] = consumer_tag
            return callback(message)

        if no_ack and consumer_tag is not None:
            self.no_ack_consumers.add(consumer_tag)
        tag: str = super().basic_consume(queue, no_ack, named, consumer_tag, **kwargs)
        return tag


class TicketTransport(redis.Transport):
    """Kombu's Redis transport, with these channels; chatproject/celery.py names it."""

    Channel = TicketChannel
