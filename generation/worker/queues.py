"""Which Celery queues this worker takes tickets from: its pool's, and its own in that pool; changed
while it runs."""

from __future__ import annotations

from typing import Any, Final

from generation.scheduler import queue_name

PREFIX: Final = queue_name("")


class TicketQueues:
    """See `move.Queues`. Queues of other kinds (chores) are let be.

    What is selected holds for every connection to the broker that comes; the one that stands is
    told by Celery's own thread, for its consumer is no other thread's business.
    """

    def __init__(self, worker: Any, replica: str) -> None:
        self._worker = worker
        self._replica = replica
        self._pool: str | None = None

    def serve(self, pool: str | None) -> None:
        self._pool = pool
        self._select()
        consumer = getattr(self._worker, "consumer", None)
        if consumer is not None:
            consumer.call_soon(self._apply, consumer)

    def _select(self) -> None:
        queues = self._worker.app.amqp.queues
        queues.deselect(self._others(queues.consume_from))
        for name in self._wanted():
            if name not in queues.consume_from:
                # The queue itself: by its name Celery would make one that acknowledges.
                queues.select_add(queues[name])

    def _wanted(self) -> list[str]:
        if self._pool is None:
            return []
        # Kombu takes from them in turns, whatever their order.
        return [queue_name(self._pool, self._replica), queue_name(self._pool)]

    def _others(self, names: Any) -> list[str]:
        wanted = self._wanted()
        return [name for name in list(names) if name.startswith(PREFIX) and name not in wanted]

    def _apply(self, consumer: Any) -> None:
        tickets = consumer.task_consumer
        if tickets is None:
            return  # no connection: the next one takes what is selected
        for name in self._others([queue.name for queue in tickets.queues]):
            tickets.cancel_by_queue(name)
        missing = [name for name in self._wanted() if not tickets.consuming_from(name)]
        for name in missing:
            tickets.add_queue(consumer.app.amqp.queues[name])
        if missing:
            tickets.consume()
