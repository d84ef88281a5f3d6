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


def queue_name(pool: str) -> str:
    """The Celery queue that the pool's workers consume."""
    return f"gpu.{pool}"


def publish_ticket(pool: str) -> bool:
    """Publish one ticket, without retries; False where the broker did not take it (logged)."""
    if _pause.is_on():
        return False
    try:
        _publish(pool)
    except (OperationalError, KombuError, OSError) as error:
        _pause.begin()
        logger.warning(
            "The broker took no ticket; the sweep will publish one: %s",
            type(error).__name__,
            extra={"action": "ticket_failed", "pool": pool},
        )
        return False
    return True


def _publish(pool: str) -> None:
    """What `send_task` does, with what is always the same made once: half of its time, and this
    stands between a send and its first token. Raises kombu's OperationalError."""
    ticket = str(uuid.uuid4())
    message = _message(pool)
    queue = current_app.amqp.queues[queue_name(pool)]
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
