"""Ending a task for sure.

Before Python 3.12, asyncio.wait_for swallows a cancellation that arrives in the moment its inner
work is done, and redis-py sends every command through it: one cancel() is not always heard.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

_AGAIN_S: Final = 0.05


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancels `task` until it has ended. Its result, or its error, is dropped."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_AGAIN_S)
    if not task.cancelled():
        task.exception()


def raise_if_cancelled() -> None:
    """Raises CancelledError where this task was asked to end and something swallowed that."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
