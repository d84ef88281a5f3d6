"""More sends than slots: the queue is first in, first out, and everybody sees their place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.phone import Phone, call, get_run, post_message, stop
from tests.stack import Person, Stack, directive, wait_for

SLOTS = 8
WAITING = 5


@pytest.fixture
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


@pytest.fixture
def full(stack: Stack) -> Iterator[Any]:
    """Every slot is taken; calling it frees them all, or the `slots` first."""
    bob, url = stack.people["bob"], stack.webs[0].url
    holds = [f"queue{number}" for number in range(SLOTS)]
    paths = [stack.hold(name) for name in holds]
    contents = [directive(tokens=1, hold=name) for name in holds]
    runs = [post_message(url, bob.headers, content)["id"] for content in contents]
    wait_for(lambda: all(stack.journal(run) for run in runs), "every slot to be taken")

    def free(slots: int = SLOTS) -> None:
        for path in paths[:slots]:
            path.unlink(missing_ok=True)

    yield free
    free()
    for run in runs:
        wait_for(lambda run=run: len(stack.journal(run)) == 2, "the slots to be free")


async def test_positions_and_order(stack: Stack, ada: Person, full: Any) -> None:
    phones = [Phone(ada.headers) for _ in range(WAITING)]
    tasks = []
    for number, phone in enumerate(phones):
        url = stack.webs[number % 2].url
        tasks.append(asyncio.create_task(phone.send(url, directive(tokens=2, tokens_per_s=20))))
        await phone.until(lambda p: p.notices)
    for position, phone in enumerate(phones, 1):
        assert phone.notices[0]["code"] == "queued"
        assert phone.notices[0]["position"] == position
        assert get_run(stack.webs[0].url, ada.headers, phone.run)["position"] == position
        assert all(frame.id is None for frame in phone.frames if frame.name == "notice")
    await asyncio.to_thread(stop, stack.webs[0].url, ada.headers, phones[0].run)
    await phones[-1].until(lambda p: p.notices[-1]["position"] == WAITING - 1)
    # One slot, which they take in turn: several that are free at once are claimed side by side.
    full(slots=1)
    await asyncio.gather(*tasks)
    assert [phone.text for phone in phones] == ["", *["w1 w2"] * (WAITING - 1)]
    claimed = [
        get_run(stack.webs[0].url, ada.headers, phone.run)["claimed_at"] for phone in phones[1:]
    ]
    assert claimed == sorted(claimed), "first in, first out"
    assert get_run(stack.webs[0].url, ada.headers, phones[1].run)["position"] is None


async def test_a_second_device_sees_the_place_too(stack: Stack, ada: Person, full: Any) -> None:
    """On the same web process, long after the place was last told there."""
    phone, tablet = Phone(ada.headers), Phone(ada.headers)
    tasks = [asyncio.create_task(phone.send(stack.webs[0].url, directive(tokens=1)))]
    await phone.until(lambda p: p.notices)
    tablet.run = phone.run
    tasks.append(asyncio.create_task(tablet.resume(stack.webs[0].url)))
    await tablet.until(lambda p: p.notices)
    assert tablet.notices == phone.notices
    full()
    await asyncio.gather(*tasks)
    assert (tablet.text, tablet.done) == (phone.text, phone.done)


def test_a_parent_that_is_still_being_written(stack: Stack, ada: Person, full: Any) -> None:
    """A send below a live answer, or below its message, is a conflict that names the run."""
    url = stack.webs[0].url
    first = post_message(url, ada.headers, directive(tokens=1))
    path = f"{url}/v1/conversations/{first['conversation']}/messages"
    for fields in ({}, {"parent_id": first["reply_msg"]}, {"parent_id": first["user_msg"]}):
        refused = call("POST", path, ada.headers, {"content": "x", **fields})
        assert refused.status_code == 409, fields
        assert refused.json()["error"]["code"] == "run_live"
        assert first["id"] in refused.json()["error"]["message"]
    full()
    wait_for(lambda: get_run(url, ada.headers, first["id"])["status"] == "completed", "the answer")
