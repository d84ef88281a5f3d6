"""How Celery takes tickets from the broker: without acknowledgement.

An acknowledgement of kombu's Redis transport makes a client of its own for each message, twice:
a quarter of a worker's CPU, for a promise that nobody relies on. A ticket that is lost with its
worker costs a second (worker.sweep).
"""

from __future__ import annotations

from typing import Final

from celery.app.amqp import AMQP, Queues
from django.conf import settings
from kombu import Queue

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
