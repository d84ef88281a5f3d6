"""A pool's queue on a real Valkey for tests, and names for runs and users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from redis import Redis

from generation.scheduler import Limits, QueueEntry, SchedulerSync
from generation.scheduler import queue as queue_module
from generation.scheduler.entries import pool_keys

POOL = "queue-test"
LIMITS = Limits(per_pool=5, per_user=2)


@pytest.fixture(name="tickets")
def tickets_fixture(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """The pools and replicas that tickets were published for (publishing has tests of its own)."""
    published: list[tuple[str, str | None]] = []

    def publish(pool: str, replica: str | None = None) -> bool:
        published.append((pool, replica))
        return True

    monkeypatch.setattr(queue_module, "publish_ticket", publish)
    return published


@pytest.fixture(name="redis")
def redis_fixture() -> Iterator[Redis]:
    client = Redis.from_url(settings.REDIS_URL)
    clear(client)
    yield client
    clear(client)
    client.close()


@pytest.fixture(name="scheduler")
def scheduler_fixture(redis: Redis, tickets: list[tuple[str, str | None]]) -> SchedulerSync:
    made = SchedulerSync(redis, LIMITS)
    assert made.rebuild(POOL, list)
    return made


def clear(client: Redis) -> None:
    client.delete(*pool_keys(POOL).all())


def run_of(number: int) -> str:
    return f"g_{number:032x}"


def user_of(number: int) -> str:
    return f"u_{number:032x}"


def entry_of(run: int, user: int, **more: Any) -> QueueEntry:
    return QueueEntry(run_of(run), user_of(user), **{"cost_tokens": 100, **more})


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms
