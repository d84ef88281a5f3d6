from __future__ import annotations

import asyncio

from generation.worker_context import FENCED, STOP, cancel_once, reason_of


async def test_a_second_telling_does_not_cut_the_first() -> None:
    """The clean-up of an engine's request awaits; a second cancellation would end it there."""
    cleaned: list[str] = []

    async def work() -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            for _ in range(5):
                await asyncio.sleep(0)
            cleaned.append(reason_of(cancelled))
        return True

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    assert cancel_once(task, STOP)
    await asyncio.sleep(0)
    assert cancel_once(task, FENCED)

    assert await task
    assert cleaned == [STOP]


async def test_an_ended_task_is_not_cancelled() -> None:
    async def work() -> bool:
        return True

    task = asyncio.create_task(work())
    await task
    assert not cancel_once(task, STOP)
