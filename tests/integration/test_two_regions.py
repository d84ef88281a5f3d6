"""Two regions as two worker groups on one machine: the second one's engine begins later, as a trip
would have it. The first one is held full by a file that its engine waits for.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tests.phone import get_run, post_message, stored_reply
from tests.stack import ROOT, Person, Process, Stack, directive, wait_for

HOME, AWAY = "sim", "sim-us"
SLOTS = 2
TRIP_MS = 200
TOKENS = 20
WHOLE = " ".join(f"w{n}" for n in range(1, TOKENS + 1))

BUILD = "from generation import reaper; reaper.sweep()"

# It moves the row and is killed before it touches a queue: nothing of it can be caught or ended.
DIE = f"""
import os, signal, time
from generation import borrow, fallback
fallback.launch = lambda row: os.kill(os.getpid(), signal.SIGKILL)
by = borrow.borrower({AWAY!r})
while not borrow.borrow(by, 1):
    time.sleep(0.05)  # until it has waited for longer than the trip
"""


@pytest.fixture(scope="module")
def started() -> Iterator[Stack]:
    with Stack.start(webs=1, workers=1, slots=SLOTS, redis_db=12) as stack:
        profiles = json.loads(stack.env["ENGINE_PROFILES"])
        options = {**profiles[HOME]["options"], "ttft_s": TRIP_MS / 1000}
        away = {**profiles[HOME], "options": options}
        stack.env["ENGINE_PROFILES"] = json.dumps({**profiles, AWAY: away})
        stack.manage("ensure_demo")
        change = "UPDATE generation_pool SET region = %s, round_trip_ms = %s WHERE slug = %s"
        stack.execute(change, "eu", TRIP_MS, HOME)
        stack.execute(change, "us", TRIP_MS, AWAY)
        # Admission takes no step by itself: it is the queues that are tried here.
        stack.execute("UPDATE quotas_plan SET ttft_deadline_ms = 600000")
        stack.manage("shell", "--verbosity", "0", "-c", BUILD)
        yield stack


@pytest.fixture
def stack(started: Stack) -> Iterator[Stack]:
    """With no worker in the second region, and nothing at work or waiting in the first."""
    yield started
    for worker in started.workers[1:]:
        worker.kill()
    started.workers[:] = started.workers[:1]
    started.execute("DELETE FROM generation_replica WHERE pool_id = %s", AWAY)


@pytest.fixture
def ada(stack: Stack) -> Person:
    return stack.people["ada"]


@pytest.fixture
def bob(stack: Stack) -> Person:
    return stack.people["bob"]


_numbers = count(1)


@contextmanager
def full_home(stack: Stack, by: Person) -> Iterator[None]:
    """Every slot of the first region is held."""
    name = f"home-{next(_numbers)}"
    hold = stack.hold(name)
    held = [send(stack, by, hold=name) for _ in range(SLOTS)]
    try:
        for run in held:
            wait_for(lambda run=run: stack.journal(run["id"]), "the slot to be taken")
        yield
    finally:
        hold.unlink()
    for run in held:
        ended(stack, by, run)


def send(stack: Stack, by: Person, conversation: str = "new", **script: object) -> dict[str, Any]:
    content = directive(tokens=TOKENS, **script)
    return post_message(stack.webs[0].url, by.headers, content, conversation)


def ended(stack: Stack, by: Person, run: dict[str, Any]) -> dict[str, Any]:
    url = stack.webs[0].url
    wait_for(lambda: get_run(url, by.headers, run["id"])["finish"], f"{run['id']} to end")
    found = get_run(url, by.headers, run["id"])
    assert (found["status"], found["finish"]) == ("completed", "stop")
    assert stored_reply(url, by.headers, {**run, "conversation": run["conversation"]}) == WHOLE
    counted = "SELECT count(*) FROM quotas_usageentry WHERE run_id = %s::uuid"
    assert stack.rows(counted, uuid_of(run)) == [(1,)], "answered once"
    return found


def uuid_of(run: dict[str, Any]) -> str:
    return str(run["id"]).removeprefix("g_")


def place_of(stack: Stack, run: dict[str, Any]) -> tuple[str, str, list[str]]:
    """Its pool, its status, and the codes of its notices."""
    query = "SELECT pool_id, status, notices FROM generation_run WHERE id = %s::uuid"
    ((pool, status, notices),) = stack.rows(query, uuid_of(run))
    return pool, status, [notice["code"] for notice in notices]


def open_second_region(stack: Stack) -> Process:
    worker = stack.start_worker(SLOTS, pool=AWAY)
    healthy = "SELECT 1 FROM generation_replica WHERE name = %s AND healthy"
    wait_for(lambda: stack.rows(healthy, worker.replica), "the second region", worker)
    return worker


@contextmanager
def pinned(stack: Stack, who: Person, region: str) -> Iterator[None]:
    """The person's organisation keeps its text in this region."""
    made = (
        "INSERT INTO accounts_organisation (id, name, residency, no_training, cache_salt, created) "
        "VALUES (gen_random_uuid(), 'Acme', %s, true, '', now())"
    )
    stack.execute(made, region)
    belongs = (
        "UPDATE accounts_user SET organisation_id = "
        "(SELECT id FROM accounts_organisation LIMIT 1) WHERE email = %s"
    )
    stack.execute(belongs, who.email)
    try:
        yield
    finally:
        stack.execute("UPDATE accounts_user SET organisation_id = NULL WHERE email = %s", who.email)
        stack.execute("DELETE FROM accounts_organisation")


def test_a_full_home_lends_and_what_is_pinned_waits(stack: Stack, ada: Person, bob: Person) -> None:
    with pinned(stack, ada, "eu"), full_home(stack, ada):
        stays, goes = send(stack, ada), send(stack, bob)
        assert place_of(stack, goes) == (HOME, "queued", [])
        open_second_region(stack)
        ended(stack, bob, goes)
        assert place_of(stack, goes) == (AWAY, "completed", ["other_region"])
        assert place_of(stack, stays) == (HOME, "queued", [])
        # The conversation stays there: its prefix is in that engine. Home is full besides.
        again = send(stack, bob, goes["conversation"])
        ended(stack, bob, again)
        assert place_of(stack, again)[:2] == (AWAY, "completed")
        assert place_of(stack, stays) == (HOME, "queued", []), "for as long as it takes"
    ended(stack, ada, stays)
    assert place_of(stack, stays) == (HOME, "completed", [])
    warm = send(stack, bob, goes["conversation"])
    ended(stack, bob, warm)
    assert place_of(stack, warm)[:2] == (AWAY, "completed"), "home has room, but here it is warm"
    fresh = send(stack, bob)
    ended(stack, bob, fresh)
    assert place_of(stack, fresh) == (HOME, "completed", [])


def test_a_borrower_that_is_killed_between_the_moves_loses_nothing(
    stack: Stack, ada: Person, bob: Person
) -> None:
    with full_home(stack, ada):
        run = send(stack, bob)
        # Its row is fresh for a while, as that of every worker that is killed.
        stack.execute(
            "INSERT INTO generation_replica "
            "(name, pool_id, slots, healthy, detail, running, started, heartbeat, last_healthy) "
            "VALUES ('killed', %s, 1, true, '', 0, now(), now() + interval '1 min', now())",
            AWAY,
        )
        command = [sys.executable, "manage.py", "shell", "--verbosity", "0", "-c", DIE]
        died = subprocess.run(command, cwd=ROOT, env=stack.env, check=False, timeout=60)
        assert died.returncode == -signal.SIGKILL
        assert place_of(stack, run) == (AWAY, "queued", ["other_region"])
        open_second_region(stack)
        ended(stack, bob, run)
        assert place_of(stack, run) == (AWAY, "completed", ["other_region"])
        depth = "from generation.scheduler import scheduler_sync as s; print(s().depth('sim'))"
        wait_for(
            lambda: stack.manage("shell", "--verbosity", "0", "-c", depth).strip() == "0",
            "the queue at home to forget it",
        )


def test_a_worker_that_is_killed_with_what_it_borrowed_loses_nothing(
    stack: Stack, ada: Person, bob: Person
) -> None:
    with full_home(stack, ada):
        hold = stack.hold("away")
        run = send(stack, bob, hold="away", hold_after=TOKENS // 2)
        worker = open_second_region(stack)
        wait_for(lambda: stack.journal(run["id"]), "the run to be begun", worker)
        assert place_of(stack, run) == (AWAY, "running", ["other_region"])
        worker.kill()
        open_second_region(stack)
        hold.unlink()
        ended(stack, bob, run)
        assert place_of(stack, run)[0] == AWAY
