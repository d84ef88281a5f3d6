"""Celery's side of a slot: jobs in threads that can be told to end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from generation.worker.pool import TaskPool, on_terminate

PATIENCE_S = 30.0


@pytest.fixture
def pool() -> Iterator[TaskPool]:
    made = TaskPool(2)
    made.start()
    yield made
    made.stop()


class Ended:
    """What Celery hears of a task's end."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def __call__(self, value: object) -> None:
        self.heard.append(value)


def test_a_job_runs_and_reports(pool: TaskPool) -> None:
    ended, accepted = Ended(), threading.Event()
    job = pool.apply_async(
        lambda a, b: a + b,
        args=(1,),
        kwargs={"b": 2},
        callback=ended,
        accept_callback=lambda _pid, _time: accepted.set(),
    )
    job.wait(PATIENCE_S)
    assert ended.heard == [3]
    assert accepted.is_set()


def test_terminate_calls_what_the_task_named(pool: TaskPool) -> None:
    ended, waiting, told = Ended(), threading.Event(), threading.Event()

    def task() -> str:
        on_terminate(told.set)
        waiting.set()
        assert told.wait(PATIENCE_S)
        return "handed over"

    job = pool.apply_async(task, callback=ended)
    assert waiting.wait(PATIENCE_S)
    job.terminate(15)
    job.wait(PATIENCE_S)
    assert ended.heard == ["handed over"]


def test_a_task_terminated_before_it_could_name_anything_is_told_at_once(pool: TaskPool) -> None:
    begun, go, told = threading.Event(), threading.Event(), threading.Event()

    def task() -> None:
        begun.set()
        assert go.wait(PATIENCE_S)
        on_terminate(told.set)

    job = pool.apply_async(task, callback=Ended())
    assert begun.wait(PATIENCE_S)
    job.terminate(15)
    assert not told.is_set()
    go.set()
    job.wait(PATIENCE_S)
    assert told.is_set()


def test_a_task_that_waits_for_a_thread_is_dropped(pool: TaskPool) -> None:
    go, ended = threading.Event(), Ended()
    busy = [pool.apply_async(go.wait, args=(PATIENCE_S,), callback=Ended()) for _ in range(2)]
    waiting = pool.apply_async(lambda: "ran", callback=ended)
    waiting.terminate(15)
    go.set()
    for job in busy:
        job.wait(PATIENCE_S)
    with pytest.raises(CancelledError):
        waiting.get(PATIENCE_S)
    assert ended.heard == []


def test_the_next_task_of_a_thread_is_not_told_for_the_last_one() -> None:
    pool = TaskPool(1)
    pool.start()
    told: list[str] = []
    first = pool.apply_async(lambda: on_terminate(lambda: told.append("first")), callback=Ended())
    first.wait(PATIENCE_S)
    second = pool.apply_async(lambda: on_terminate(lambda: told.append("second")), callback=Ended())
    second.wait(PATIENCE_S)
    second.terminate(15)
    assert told == ["second"]
    pool.stop()


def test_a_cold_end_tells_every_task(pool: TaskPool) -> None:
    waiting, told = threading.Barrier(3), threading.Barrier(3)

    def task() -> None:
        called = threading.Event()
        on_terminate(called.set)
        waiting.wait(PATIENCE_S)
        assert called.wait(PATIENCE_S)
        told.wait(PATIENCE_S)

    jobs = [pool.apply_async(task, callback=Ended()) for _ in range(2)]
    waiting.wait(PATIENCE_S)
    pool.terminate()
    told.wait(PATIENCE_S)
    for job in jobs:
        job.wait(PATIENCE_S)
        job.get()


def test_outside_of_the_pool_there_is_nothing_to_be_told() -> None:
    told: list[str] = []
    on_terminate(lambda: told.append("called"))
    assert told == []
