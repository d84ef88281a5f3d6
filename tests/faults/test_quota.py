"""A worker is killed with reservations open: each is settled once, when its run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.phone import Phone
from tests.stack import Stack, directive, wait_for

TOKENS = 160
SLOTS = 8


@pytest.fixture
def limited(breakable: Stack) -> Iterator[Stack]:
    """Ada's plan counts everything, and has enough of it."""
    limits = "messages = %s, tokens_per_minute = %s, requests_per_minute = %s"
    update = f"UPDATE quotas_plan SET {limits} WHERE slug = 'tests'"  # noqa: S608 — constants
    breakable.execute(update, 1_000, 10_000_000, 1_000)
    yield breakable
    breakable.execute(update, None, None, None)


def _user(stack: Stack) -> str:
    ada = stack.people["ada"]
    ((user_id,),) = stack.rows("SELECT id FROM accounts_user WHERE email = %s", ada.email)
    return str(user_id.hex)


def _counted(stack: Stack) -> tuple[set[str], set[str]]:
    """The runs that hold something, and those whose messages are in the window."""
    with redis.Redis.from_url(stack.env["REDIS_URL"], decode_responses=True) as client:
        tag = f"{{u:{_user(stack)}}}"
        messages: Any = client.zrange(f"{tag}:messages", 0, -1)
        held: Any = client.hkeys(f"{tag}:open")
        return set(held), {member.rpartition("|")[2] for member in messages}


async def test_a_worker_dies_with_reservations_open(limited: Stack) -> None:
    ada, url = limited.people["ada"], limited.webs[0].url
    phones = [Phone(ada.headers) for _ in range(SLOTS + 2)]  # two of them wait in the queue
    content = directive(tokens=TOKENS, tokens_per_s=20)
    tasks = [asyncio.create_task(phone.send(url, content)) for phone in phones]
    await asyncio.gather(*(phone.until(lambda p: bool(p.run)) for phone in phones))
    while sum(len(phone.text.split()) >= 5 for phone in phones) < SLOTS:
        await asyncio.sleep(0.02)
    runs = {phone.run.removeprefix("g_") for phone in phones}
    held, counted = await asyncio.to_thread(_counted, limited)
    assert held >= runs
    assert counted >= runs
    limited.workers[-1].kill()
    limited.start_worker(SLOTS)
    await asyncio.gather(*tasks)
    assert all(phone.done is not None for phone in phones)
    await asyncio.to_thread(
        wait_for, lambda: not runs & _counted(limited)[0], "every reservation to be settled"
    )
    entries = "SELECT run_id FROM quotas_usageentry WHERE run_id = ANY(%s::uuid[])"
    charged = [run_id.hex for (run_id,) in limited.rows(entries, sorted(runs))]
    assert sorted(charged) == sorted(runs), "each once"
    assert _counted(limited)[1] >= runs, "and its message stays in the window"
