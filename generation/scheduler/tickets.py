"""Tickets: Celery messages that say "a run is waiting in pool P". They name no run.

A ticket is a hint. Losing one costs a second, for the workers' sweep compares queue and tickets;
so publishing is quick or not at all, and never the caller's problem.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from functools import lru_cache
from typing import Any, Final

from celery import current_app
from kombu.exceptions import KombuError, OperationalError

logger = logging.getLogger(__name__)

TASK: Final = "generation.run_ticket"

PAUSE_S: Final = 2.0
"""After a failure nobody tries for so long: each try may cost a connect timeout."""


class _Pause:
    """When publishing failed last, for all threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until_s = 0.0

    def is_on(self) -> bool:
        with self._lock:
            return time.monotonic() < self._until_s

    def begin(self) -> None:
        with self._lock:
            self._until_s = time.monotonic() + PAUSE_S


_pause = _Pause()


def queue_name(pool: str, replica: str | None = None) -> str:
    """The Celery queue that the pool's workers consume, or that one of them consumes alone.

    Slugs have no dots: no pool's queue is another one's replica's.
    """
    return f"gpu.{pool}.{replica}" if replica else f"gpu.{pool}"


def publish_ticket(pool: str, replica: str | None = None) -> bool:
    """Publish one ticket, for any replica of the pool or for this one, without retries; False where
    the broker did not take it (logged)."""
    if _pause.is_on():
        return False
    try:
        _publish(pool, replica)
    except (OperationalError, KombuError, OSError) as error:
        _pause.begin()
        logger.warning(
            "The broker took no ticket; the sweep will publish one: %s",
            type(error).__name__,
            extra={"action": "ticket_failed", "pool": pool},
        )
        return False
    return True


def drop_tickets(pool: str, replica: str) -> None:
    """Forget the tickets of a replica that is there no more: its runs go to others, and nobody else
    would ever take them. Where the broker is away they stay (logged)."""
    if _pause.is_on():
        return
    queue = current_app.amqp.queues[queue_name(pool, replica)]
    try:
        with current_app.producer_or_acquire() as producer:
            broker = producer.connection
            try:
                bound = queue(producer.channel)
                # Kombu deletes what this connection has declared, and nothing else.
                bound.declare()
                bound.delete()
            except (*broker.connection_errors, *broker.channel_errors) as error:
                raise OperationalError(type(error).__name__) from error
    except (OperationalError, KombuError, OSError) as error:
        logger.warning(
            "The tickets of %s were not dropped: %s",
            replica,
            type(error).__name__,
            extra={"action": "tickets_not_dropped", "pool": pool},
        )


def _publish(pool: str, replica: str | None) -> None:
    """What `send_task` does, with what is always the same made once: half of its time, and this
    stands between a send and its first token. Raises kombu's OperationalError."""
    ticket = str(uuid.uuid4())
    message = _message(pool)
    queue = current_app.amqp.queues[queue_name(pool, replica)]
    with current_app.producer_or_acquire() as producer:
        broker = producer.connection
        try:
            producer.publish(
                message.body,
                serializer="json",
                exchange="",
                routing_key=queue.name,
                declare=[queue],
                headers={**message.headers, "id": ticket, "root_id": ticket},
                correlation_id=ticket,
                # Kombu would try for a hundred seconds while a person waits for the answer.
                retry=False,
            )
        except (*broker.connection_errors, *broker.channel_errors) as error:
            raise OperationalError(type(error).__name__) from error


@lru_cache(maxsize=256)
def _message(pool: str) -> Any:
    """Celery's message for a ticket of this pool, as a tuple with `headers` and `body`."""
    return current_app.amqp.create_task_message("", TASK, args=[pool], ignore_result=True)
