"""A stack that tests may break: its own Valkey, killed and started again with the processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chatproject.embedded import EmbeddedValkey
from tests.conftest import share
from tests.stack import Stack

SLOTS = 8


@pytest.fixture(scope="session")
def valkey() -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey.temporary() as server:
        yield server


@pytest.fixture(scope="session")
def _breakable(request: pytest.FixtureRequest, valkey: EmbeddedValkey) -> Iterator[Stack]:
    # A worker that is told to end has time to finish an answer, on a busy machine too.
    env = {"WORKER_GRACE_S": "30"}
    with Stack.start(redis_url=valkey.url, slots=SLOTS, env=env) as running:
        share(request, running)
        yield running


@pytest.fixture
def breakable(_breakable: Stack, valkey: EmbeddedValkey) -> Iterator[Stack]:
    """Two web processes and a worker, whole again before each test, whatever the last one did."""
    mend(_breakable, valkey)
    yield _breakable
    mend(_breakable, valkey)


def mend(stack: Stack, valkey: EmbeddedValkey) -> None:
    if valkey.process is None:
        valkey.start()
    for process in [*stack.webs, *stack.workers]:
        process.thaw()
    webs = [web for web in stack.webs if web.popen.poll() is None]
    for extra in webs[2:]:  # of a test that failed before it ended its own
        extra.kill()
    stack.webs[:] = webs[:2]
    while len(stack.webs) < 2:
        stack.start_web()
    workers = [worker for worker in stack.workers if worker.popen.poll() is None]
    for extra in workers[1:]:
        extra.kill()
    stack.workers[:] = workers[:1]
    if not workers:
        stack.start_worker(SLOTS)
    stack.wait_ready()
