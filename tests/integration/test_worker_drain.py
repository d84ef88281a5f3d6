"""A replica that drains: it begins nothing, ends what it has, says so, and comes back."""

from __future__ import annotations

import asyncio

import pytest

from accounts import aio
from generation.models import Replica
from tests.integration.test_worker_move import (
    NAME,
    Heard,
    pools,
    quick,
    running,
    until_row,
    want,
)
from tests.integration.test_worker_service import PATIENCE_S, Answers, start_work, until

__all__ = ["pools", "quick"]

pytestmark = pytest.mark.django_db(transaction=True)


async def drain(is_draining: bool) -> None:
    def write() -> None:
        Replica.objects.filter(name=NAME).update(is_draining=is_draining)

    await aio.in_database(write)


async def test_it_drains_and_comes_back() -> None:
    heard, answers = Heard(), Answers()
    async with running(heard, answers.work_one) as service:
        work = start_work(service)
        await asyncio.wait_for(answers.begun.get(), PATIENCE_S)
        service.context.running["g_1"] = work
        await drain(True)
        row = await until_row(lambda row: not row.healthy)
        assert (row.detail, row.last_healthy) == ("draining: no new answers", None)
        assert not service.watch.healthy.is_set()
        await until(lambda: heard.pools == ["first", None])
        answers.finish.set()
        assert await work is True
        del service.context.running["g_1"]
        row = await until_row(lambda row: row.detail == "drained")
        assert row.is_draining, "its worker writes the row, and not over this"
        await drain(False)
        row = await until_row(lambda row: row.healthy)
        assert row.detail == "simulated"
        await until(lambda: heard.pools == ["first", None, "first"])
    assert list(answers.ended.values()) == ["finished"]


async def test_what_it_was_told_stays_when_it_moves() -> None:
    heard = Heard()
    async with running(heard) as service:
        await drain(True)
        await until_row(lambda row: row.detail == "drained")
        await want("second")
        row = await until_row(lambda row: row.pool_id == "second")
        assert not service.watch.healthy.is_set()
        await drain(False)
        await until_row(lambda row: row.healthy)
        assert row.is_draining
        assert heard.pools == ["first", None, "second"]
