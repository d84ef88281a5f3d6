"""Two at once in a forced order: a step that meets another one's lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone


class Second:
    """A step in another thread and connection, begun while the first holds the row."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._began = threading.Event()
        self._pid = 0

    def start(self, step: Callable[[], Any]) -> Future[Any]:
        future = self._pool.submit(self._run, step)
        assert self._began.wait(30)
        return future

    def _run(self, step: Callable[[], Any]) -> Any:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                self._pid = cursor.fetchone()[0]
            self._began.set()
            return step()
        finally:
            connections.close_all()

    def wait_blocked(self) -> None:
        """Until it waits for the first one's lock: from here on the order is decided."""
        deadline = timezone.now() + timedelta(seconds=30)
        while timezone.now() < deadline:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_blocking_pids(%s)", [self._pid])
                if cursor.fetchone()[0]:
                    return
        raise AssertionError("the second step never met the first")

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture(name="second")
def second_fixture() -> Iterator[Second]:
    made = Second()
    yield made
    made.close()
