"""A threads pool whose tasks can be ended from outside (`-P custom`, CELERY_CUSTOM_WORKER_POOL).

Celery's own cannot: a thread cannot be killed. But ours only wait for work that lives in an event
loop, and that can be told to hand over; the thread then ends by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from celery.concurrency import thread
from celery.concurrency.base import apply_target

_here = threading.local()


def _look_again() -> None:
    """Nothing by itself: a loop that was woken asks whether a message may be taken."""


class Job(thread.ApplyResult):  # type: ignore[name-defined,misc]  # the stubs lack it
    """One task in a thread. `terminate` calls what the task gave to `on_terminate`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._on_terminate: Callable[[], None] | None = None
        self._terminated = False

    def start(self, future: Future[Any]) -> None:
        self.f = future
        self.get = future.result

    def terminate(self, signal: int | None = None) -> None:
        """Celery calls this, in any thread, also before the task has begun."""
        with self._lock:
            self._terminated = True
            callback = self._on_terminate
        if callback is not None:
            callback()
        else:
            self.f.cancel()

    def attach(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._on_terminate = callback
            terminated = self._terminated
        if terminated:
            callback()


def on_terminate(callback: Callable[[], None]) -> None:
    """In a task: what to call, from another thread, when Celery wants this task to end.

    Without effect in other pools. A task that was already terminated is called at once.
    """
    job: Job | None = getattr(_here, "job", None)
    if job is not None:
        job.attach(callback)


class TaskPool(thread.TaskPool):
    """Celery's threads pool with jobs that can be terminated, and whose ends are heard at once.

    Celery takes no message while every thread is busy, and looks whether one is free when something
    happens on its connections, else once a second: slots would stand idle for so long.
    """

    executor: ThreadPoolExecutor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Requests hold their job only weakly: without this, terminate would find nothing.
        self._jobs: set[Job] = set()
        self._hub: Any = None

    def register_with_event_loop(self, hub: Any) -> None:
        """Celery's loop, which begins after this."""
        self._hub = hub

    def _ended(self, job: Job) -> None:
        self._jobs.discard(job)
        if self._hub is not None:
            self._hub.call_soon(_look_again)

    def on_apply(  # type: ignore[override]  # the stubs' base takes anything
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> Job:
        job = Job()

        def run() -> Any:
            _here.job = job
            try:
                return apply_target(target, args or (), kwargs, callback, accept_callback)
            finally:
                _here.job = None

        future = self.executor.submit(run)
        job.start(future)
        self._jobs.add(job)
        # Called at once where it has ended already, and for one that is cancelled before it begins.
        future.add_done_callback(lambda _future: self._ended(job))
        return job

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Nothing: `pid` is our own. Celery calls the job's own `terminate` afterwards."""

    def on_terminate(self) -> None:
        for job in list(self._jobs):
            job.terminate()
        self.executor.shutdown(wait=False, cancel_futures=True)
