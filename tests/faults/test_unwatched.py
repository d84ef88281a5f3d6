"""A free run that nobody watches ends where others wait; in every other case it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.phone import Phone, get_run, post_message, stop, stored_reply
from tests.stack import Person, Process, Stack, directive, wait_for

UNWATCHED_S = 1
LONGER_S = 5
_BOB_PAYS = """
from accounts.models import User
from quotas.models import Plan, Subscription

plan, _ = Plan.objects.get_or_create(slug="paid", defaults={"title": "Paid", "is_paid": True})
Subscription.objects.filter(user=User.objects.get(name="Bob")).update(plan=plan)
"""
ENDLESS = directive(tokens=10_000, tokens_per_s=40)


@pytest.fixture
def ada(breakable: Stack) -> Person:
    return breakable.people["ada"]


@pytest.fixture
def bob(breakable: Stack) -> Iterator[Person]:
    breakable.manage("shell", "--verbosity", "0", "-c", _BOB_PAYS)
    yield breakable.people["bob"]
    breakable.execute("UPDATE quotas_subscription SET plan_id = 'tests' WHERE plan_id = 'paid'")


@pytest.fixture(autouse=True)
def worker(breakable: Stack) -> Iterator[Process]:
    """One with two slots, so that a third run waits."""
    for other in breakable.workers:
        other.kill()
    worker = breakable.start_worker(2, env={"UNWATCHED_S": str(UNWATCHED_S)})
    breakable.wait_ready()
    yield worker
    live = "SELECT id FROM generation_run WHERE status IN ('queued', 'running')"
    for (run_id,) in breakable.rows(live):
        for person in breakable.people.values():
            stop(breakable.webs[0].url, person.headers, f"g_{run_id.hex}")
    wait_for(lambda: not breakable.rows(live), "everything to end", worker)
    worker.kill()


def _begun(stack: Stack, person: Person) -> str:
    url = stack.webs[0].url
    run = str(post_message(url, person.headers, ENDLESS)["id"])
    wait_for(lambda: get_run(url, person.headers, run)["status"] == "running", "the run to begin")
    return run


def _status(stack: Stack, person: Person, run: str) -> tuple[str, str | None]:
    found = get_run(stack.webs[0].url, person.headers, run)
    return found["status"], found["finish"]


GOES_ON = ("running", None)


async def test_nobody_watches_a_free_run_at_peak(breakable: Stack, ada: Person) -> None:
    first, second = [await asyncio.to_thread(_begun, breakable, ada) for _ in range(2)]
    await asyncio.sleep(LONGER_S)
    assert _status(breakable, ada, first) == GOES_ON, "nobody waits: off-peak all go on"
    assert _status(breakable, ada, second) == GOES_ON
    waiting = await Phone(ada.headers).send(breakable.webs[0].url, directive(tokens=2))
    assert waiting.text == "w1 w2", "it has got a slot"
    ended = [run for run in (first, second) if _status(breakable, ada, run)[0] == "stopped"]
    assert ended
    found = get_run(breakable.webs[0].url, ada.headers, ended[0])
    assert (found["finish"], found["error"]) == ("unwatched", None)
    later = await Phone(ada.headers, ended[0]).resume(breakable.webs[1].url)
    assert later.done is not None
    assert later.done["finish"] == "unwatched"
    assert later.text.startswith("w1 w2 w3")
    assert later.text == stored_reply(breakable.webs[0].url, ada.headers, later.start)


async def test_watched_and_paid_runs_go_on_at_peak(
    breakable: Stack, ada: Person, bob: Person
) -> None:
    """Watched by somebody who came back, at another web process than the one that took it."""
    watched = await asyncio.to_thread(_begun, breakable, ada)
    paid = await asyncio.to_thread(_begun, breakable, bob)
    phone = Phone(ada.headers, watched)
    watching = asyncio.create_task(phone.resume(breakable.webs[1].url))
    await phone.until(lambda p: p.text)
    waits = post_message(breakable.webs[0].url, ada.headers, directive(tokens=2))["id"]
    await asyncio.sleep(LONGER_S)
    assert _status(breakable, ada, watched) == GOES_ON
    assert _status(breakable, bob, paid) == GOES_ON
    assert _status(breakable, ada, waits) == ("queued", None)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    # Nobody does any more.
    await Phone(ada.headers, waits).resume(breakable.webs[0].url)
    assert _status(breakable, ada, watched) == ("stopped", "unwatched")
    assert _status(breakable, bob, paid) == GOES_ON
