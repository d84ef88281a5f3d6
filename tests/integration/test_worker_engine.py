"""A GPU worker and the engine that its profile starts: started once, attached to ever after."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatproject.embedded.processes import is_alive, wait_until
from generation.engines import parse_profiles
from generation.engines.keeper_lock import (
    KeeperLock,
    Place,
    UserLock,
    at_work,
    end_all,
    holder,
)
from generation.worker.engine_process import EngineGuard, is_kept
from tests.stack import ROOT

PATIENCE_S = 60.0
_guards: list[EngineGuard] = []  # of the test that runs


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="hearth-guard-") as directory:
        place = Place(Path(directory) / "e" / "engine.sock")
        yield place
        while _guards:
            end_keeper(_guards.pop())
        assert not place.cwd.exists() or end_all(place, PATIENCE_S)


def end_keeper(guard: EngineGuard) -> None:
    """The one that it has started, also where another one has the engine."""
    if (pid := guard._started) is not None:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        guard._started = None


@pytest.fixture
def guard(place: Place, settings: Any) -> EngineGuard:
    return make_guard(place, settings)


def make_guard(place: Place, settings: Any, **serve: object) -> EngineGuard:
    pretender = [sys.executable, str(ROOT / "tests" / "pretend_vllm.py")]
    whole = {"model": "m", "command": pretender, **serve}
    profiles = {
        "mine": {"kind": "vllm", "url": f"unix://{place.socket}", "serve": whole},
        "other": {"kind": "openai", "url": "http://h", "api_key": "somebody-elses-key"},
    }
    settings.ENGINE_PROFILES = json.dumps(profiles)
    _guards.append(EngineGuard(parse_profiles(settings.ENGINE_PROFILES)["mine"]))
    return _guards[-1]


def wait_for_engine(place: Place) -> list[int]:
    assert wait_until(lambda: place.socket.exists() and len(at_work(place)) == 3, PATIENCE_S)
    return at_work(place)


def test_the_first_worker_starts_it_and_the_next_ones_attach(
    place: Place, guard: EngineGuard, settings: Any
) -> None:
    assert not guard.look()
    processes = wait_for_engine(place)
    keeper = holder(place)
    assert keeper is not None
    for after in (guard, make_guard(place, settings)):
        assert after.look()
    assert (holder(place), at_work(place)) == (keeper, processes)
    # A session of its own: what a terminal or a worker's end sends to our group is not for it.
    assert os.getsid(keeper.pid) == keeper.pid != os.getsid(0)


def test_two_workers_that_start_at_once_have_one_engine(
    place: Place, guard: EngineGuard, settings: Any
) -> None:
    twin = make_guard(place, settings)
    assert not guard.look()
    twin.look()  # nearly always before the other's keeper can be seen
    wait_for_engine(place)
    assert wait_until(lambda: guard.look() and twin.look(), PATIENCE_S)
    assert len(at_work(place)) == 3


def test_a_guard_whose_keeper_came_second_does_not_miss_it(
    place: Place, guard: EngineGuard, settings: Any
) -> None:
    """Its own child has ended; the engine is the other one's, and no third is started."""
    twin = make_guard(place, settings)
    assert not guard.look()
    twin.look()  # nearly always before the other's keeper can be seen
    wait_for_engine(place)
    assert wait_until(lambda: guard.look() and twin.look() and one_alone(guard, twin), PATIENCE_S)


def one_alone(*guards: EngineGuard) -> bool:
    return sum(guard._started is not None for guard in guards) == 1


def test_a_killed_keeper_is_replaced(place: Place, guard: EngineGuard) -> None:
    guard.look()
    before = wait_for_engine(place)
    keeper = holder(place)
    assert keeper is not None
    os.kill(keeper.pid, signal.SIGKILL)
    assert wait_until(lambda: guard.look() and holder(place) not in (None, keeper), PATIENCE_S)
    assert wait_until(lambda: not set(before) & set(at_work(place)), PATIENCE_S)
    wait_for_engine(place)
    assert not any(map(is_alive, before))


def test_a_keeper_that_has_only_just_begun_is_stopped_too(place: Place, guard: EngineGuard) -> None:
    guard.look()
    keeper = guard._started
    assert keeper is not None
    guard.stop()  # nearly always before it has taken the lock
    assert not is_alive(keeper)
    assert (holder(place), at_work(place)) == (None, [])


def test_only_the_last_of_its_workers_stops_it(
    place: Place, guard: EngineGuard, settings: Any
) -> None:
    guard.look()
    before = wait_for_engine(place)
    twin = make_guard(place, settings)
    assert twin.look()
    guard.stop()
    assert at_work(place) == before, "the other one needs it"
    assert guard.look(), "it may come back"
    guard.leave()
    users = UserLock(place)
    assert users.join()
    users.leave()
    twin.stop()
    assert (holder(place), at_work(place)) == (None, [])


def test_nobody_starts_it_while_the_last_one_stops_it(place: Place, guard: EngineGuard) -> None:
    place.make()
    last = UserLock(place)
    assert last.is_last()
    assert not guard.look()
    assert (holder(place), guard._started) == (None, None)
    last.leave()
    assert not guard.look()
    assert guard._started is not None


def test_an_engine_with_other_options_is_left_alone_and_told_of(
    place: Place, guard: EngineGuard, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    guard.look()
    before = wait_for_engine(place)
    with caplog.at_level(logging.WARNING):
        changed = make_guard(place, settings, dtype="float16")
        assert changed.look()
        assert changed.look()
    assert [r.getMessage() for r in caplog.records if "other options" in r.getMessage()]
    assert sum("other options" in r.getMessage() for r in caplog.records) == 1
    assert at_work(place) == before


def test_a_keeper_knows_no_other_profile_and_no_secret_of_ours(
    place: Place, guard: EngineGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "a-secret-of-ours")
    guard.look()
    wait_for_engine(place)
    keeper = holder(place)
    assert keeper is not None
    for pid in (keeper.pid, *at_work(place)):
        environment = Path(f"/proc/{pid}/environ").read_text()
        assert "a-secret-of-ours" not in environment
        assert "somebody-elses-key" not in environment


async def test_a_directory_that_others_may_write_into_is_told_and_nothing_started(
    place: Place, guard: EngineGuard, caplog: pytest.LogCaptureFixture
) -> None:
    place.socket.parent.mkdir()
    place.socket.parent.chmod(0o777)
    guarding = asyncio.create_task(guard.run())
    while "nobody else may write" not in caplog.text:
        await asyncio.sleep(0.01)
    guarding.cancel()
    assert not place.lock.exists()
    assert not place.log.exists()


def test_nothing_is_attached_to_where_others_may_write(
    place: Place, guard: EngineGuard, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the engine runs already: it may be anybody's, and so may what the lock names."""
    place.make()
    stranger = KeeperLock(place)
    assert stranger.acquire("x")
    assert guard.look(), "the premise"
    place.socket.parent.chmod(0o777)
    assert not guard.look()
    guard.stop()
    assert not is_kept(guard._profile)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 2
    assert all("nobody else may write into it" in line for line in told)
    stranger.release()
