"""Where sync and async meet: database work called from an event loop.

Django's own `database_sync_to_async` shares one thread, so forty slow queries stand in line; and a
thread that keeps its connection empties the pool. Here a bounded pool of threads runs the call and
gives the connection back when it ends.
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


def _pool() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        size = max(2, settings.DATABASE_POOL_SIZE // 2)
        _threads = ThreadPoolExecutor(max_workers=size, thread_name_prefix="database")
    return _threads


def _call(fn: Callable[[], T]) -> T:
    try:
        return fn()
    finally:
        connections.close_all()


async def in_database(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `fn` in a database thread and return its result; its exceptions are raised here.

    A cancelled caller leaves the call running to its end: a transaction is never cut in half.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_pool(), partial(_call, partial(fn, *args, **kwargs)))
