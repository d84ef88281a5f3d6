"""Where sync and async meet: database work called from an event loop.

Django's own `database_sync_to_async` shares one thread, so forty slow queries stand in line; and a
thread that keeps its connection empties the pool. Here a bounded pool of threads runs the call and
gives the connection back when it ends. Beside it stands one thread for what must not wait in line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")

_threads: ThreadPoolExecutor | None = None
_apart: ThreadPoolExecutor | None = None


def _pool() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        # Half of the connections is Django's views', and one the thread's that stands apart.
        size = max(2, settings.DATABASE_POOL_SIZE // 2 - 1)
        _threads = ThreadPoolExecutor(max_workers=size, thread_name_prefix="database")
    return _threads


def _thread_apart() -> ThreadPoolExecutor:
    global _apart
    if _apart is None:
        _apart = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database-apart")
    return _apart


def _call(fn: Callable[[], T]) -> T:
    try:
        return fn()
    finally:
        connections.close_all()


async def in_database(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `fn` in a database thread and return its result; its exceptions are raised here.

    A cancelled caller leaves the call running to its end: a transaction is never cut in half.
    """
    return await _run(_pool(), partial(fn, *args, **kwargs))


async def in_database_apart(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """As `in_database`, but never behind requests, however many there are: one call at a time, for
    the process' own duties. A call that is cancelled before its turn never runs.
    """
    return await _run(_thread_apart(), partial(fn, *args, **kwargs))


async def _run(threads: ThreadPoolExecutor, fn: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, partial(_call, fn))
