"""The keeper of an engine: real processes and signals, with a stand-in for `vllm serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chatproject.embedded.processes import is_alive, wait_until
from generation.engines import keeper_lock
from generation.engines.keeper_lock import KeeperLock, Place, UnsafeDirectory, holder
from generation.engines.vllm_server import EXIT_HELD, EXIT_UNUSABLE
from tests.stack import ROOT

PATIENCE_S = 60.0
PRETENDER = ROOT / "tests" / "pretend_vllm.py"


class House:
    """A place for an engine, and the keepers that tests start for it."""

    def __init__(self, directory: Path) -> None:
        (directory / "real").mkdir()
        # As /var/run is on many machines.
        (directory / "link").symlink_to(directory / "real")
        self.place = Place(directory / "link" / "e" / "engine.sock")
        self.model = "model"
        self.nice = 0
        self.keepers: list[subprocess.Popen[str]] = []

    def profiles(self) -> dict[str, Any]:
        command = [sys.executable, str(PRETENDER)]
        serve = {"model": self.model, "command": command, "nice": self.nice}
        return {"p": {"kind": "vllm", "url": f"unix://{self.place.socket}", "serve": serve}}

    def keeper(self, *arguments: str) -> subprocess.Popen[str]:
        keeper = subprocess.Popen(
            [
                *(sys.executable, "-m", "generation.engines.vllm_server", "--profile", "p"),
                *arguments,
            ],
            cwd=ROOT,
            env={**os.environ, "ENGINE_PROFILES": json.dumps(self.profiles())},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.keepers.append(keeper)
        return keeper

    def pids(self) -> list[int]:
        """API server, core and worker of the engine that answers."""
        file = self.place.socket.with_name("pids.json")
        pids: list[int] = json.loads(file.read_text()) if file.exists() else []
        return pids

    def running(self, but: list[int] | None = None) -> list[int]:
        """The three of an engine that is not `but`, once they all run."""
        found: list[int] = []

        def there() -> bool:
            found[:] = self.pids()
            return found != (but or []) and len(found) == 3 and all(map(is_alive, found))

        assert wait_until(there, PATIENCE_S), self.said()
        return list(found)

    def said(self) -> str:
        for keeper in self.keepers:
            keeper.kill()
        return "".join(k.communicate()[0] for k in self.keepers)


@pytest.fixture
def house() -> Iterator[House]:
    with tempfile.TemporaryDirectory(prefix="hearth-keeper-") as directory:
        house = House(Path(directory))
        yield house
        for keeper in house.keepers:
            keeper.kill()
            keeper.communicate()
        if house.place.cwd.exists():
            keeper_lock.end_all(house.place, PATIENCE_S)


def none_of(pids: list[int]) -> Callable[[], bool]:
    return lambda: not any(map(is_alive, pids))


@pytest.mark.parametrize("nice", [0, 7])
def test_all_processes_of_the_engine_stand_back_as_far_as_the_profile_says(
    house: House, nice: int
) -> None:
    house.nice = nice
    keeper = house.keeper()
    pids = house.running()
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids} == {max(nice, before)}
    assert os.getpriority(os.PRIO_PROCESS, keeper.pid) == before
    # Where the kernel shares the CPU by sessions: "/autogroup-7 nice 0", else nothing.
    files = [Path(f"/proc/{pid}/autogroup") for pid in pids]

    def told() -> set[str]:
        lines = [file.read_text().strip() for file in files if file.exists()]
        return {line.rpartition(" ")[2] for line in lines if line}

    # It holds for all of a session at once, whenever the keeper comes to say it.
    assert wait_until(lambda: told() <= {str(nice)}, PATIENCE_S), told()


def test_sigterm_ends_the_engine_in_its_own_way_and_leaves_nothing(house: House) -> None:
    keeper = house.keeper()
    pids = house.running()
    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(PATIENCE_S) == 0
    assert none_of(pids)()
    assert not house.place.socket.exists()
    assert holder(house.place) is None


@pytest.mark.parametrize("victim", [0, 1, 2], ids=["API server", "core", "worker"])
def test_an_engine_that_is_killed_is_started_again_with_nothing_left_of_it(
    house: House, victim: int
) -> None:
    house.keeper()
    before = house.running()
    os.kill(before[victim], signal.SIGKILL)
    if victim:  # vLLM's own API server ends when its core has died
        os.kill(before[0], signal.SIGTERM)
    after = house.running(but=before)
    assert none_of(before)()
    assert not set(after) & set(before)


def test_a_ctrl_c_reaches_neither_the_keeper_nor_the_engine(house: House) -> None:
    keeper = house.keeper()
    pids = house.running()
    os.killpg(keeper.pid, signal.SIGINT)
    os.killpg(keeper.pid, signal.SIGHUP)
    assert os.getpgid(pids[0]) == pids[0] != keeper.pid
    assert holder(house.place) is not None
    assert all(map(is_alive, pids))


def test_a_second_keeper_leaves_the_engine_to_the_first(house: House) -> None:
    house.keeper()
    pids = house.running()
    assert house.keeper().wait(PATIENCE_S) == EXIT_HELD
    assert house.running() == pids


def test_a_killed_keeper_takes_its_engine_along_and_the_next_one_starts(house: House) -> None:
    first = house.keeper()
    before = house.running()
    first.kill()
    assert wait_until(none_of(before[:2]), PATIENCE_S)
    house.keeper()
    house.running(but=before)
    assert none_of(before)()


def test_what_a_killed_keeper_and_a_killed_server_left_is_ended_first(house: House) -> None:
    """A core without both its parents would hold the GPU's memory for ever."""
    first = house.keeper()
    before = house.running()
    for pid in (before[0], first.pid):
        os.kill(pid, signal.SIGSTOP)  # neither may notice that the other dies
    os.kill(before[0], signal.SIGKILL)
    first.kill()
    first.wait()
    assert wait_until(none_of(before[:1]), PATIENCE_S)
    assert all(map(is_alive, before[1:])), "the premise: core and worker are left"
    house.keeper()
    house.running(but=before)
    assert none_of(before)()


def test_a_second_sigterm_does_not_wait_for_a_deaf_engine(house: House) -> None:
    house.model = "deaf"
    keeper = house.keeper()
    pids = house.running()
    keeper.send_signal(signal.SIGTERM)
    assert keeper.stdout
    assert any("waiting for vLLM" in line for line in keeper.stdout)
    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(PATIENCE_S) == 0
    assert none_of(pids)()


def test_an_engine_that_keeps_ending_is_tried_again_after_growing_pauses(house: House) -> None:
    house.model = "broken"
    keeper = house.keeper()
    assert keeper.stdout
    pauses = []
    for line in keeper.stdout:
        if "again in" in line:
            pauses.append(line.split("again in ")[1].strip())
        if len(pauses) == 3:
            break
    assert pauses == ["0.5 s", "1 s", "2 s"]


def test_stop_from_elsewhere_waits_for_the_end(house: House) -> None:
    house.keeper()
    pids = house.running()
    assert house.keeper("--stop").wait(PATIENCE_S) == 0
    assert none_of(pids)()
    assert holder(house.place) is None
    assert house.keeper("--stop").wait(PATIENCE_S) == 0  # nobody there: nothing to do


def test_a_recycled_pid_is_never_signalled(house: House) -> None:
    """The record names a process that lives, but began at another time: not the one meant."""
    house.place.make()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    lock = KeeperLock(house.place)
    try:
        assert lock.acquire("x")
        assert holder(house.place) is not None
        house.place.lock.write_text(f"{stranger.pid} 12345 x\n")
        assert not keeper_lock.signal_keeper(house.place, signal.SIGKILL)
        began = keeper_lock.start_time(stranger.pid)
        house.place.lock.write_text(f"{stranger.pid} {began} x\n")
        assert keeper_lock.signal_keeper(house.place, signal.SIGKILL), "the premise"
        assert stranger.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        lock.release()
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("text", ["", "x y z", "1 2", "9999999999 1 x", "-1 1 x"])
def test_a_record_that_is_none_names_nobody(house: House, text: str) -> None:
    house.place.make()
    lock = KeeperLock(house.place)
    assert lock.acquire("x")
    house.place.lock.write_text(text)
    assert not keeper_lock.signal_keeper(house.place, signal.SIGTERM)
    lock.release()


def test_a_directory_that_others_may_write_into_is_refused(house: House) -> None:
    house.place.socket.parent.mkdir(mode=0o700)
    house.place.socket.parent.chmod(0o777)
    with pytest.raises(UnsafeDirectory):
        house.place.make()
    keeper = house.keeper()
    assert keeper.wait(PATIENCE_S) == EXIT_UNUSABLE
    assert keeper.stdout
    assert "nobody else may write" in keeper.stdout.read()


def test_a_lock_that_others_may_have_written_is_not_believed(house: House) -> None:
    """It could have us, perhaps root, signal any process: here one of ours."""
    house.place.make()
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    lock = KeeperLock(house.place)
    try:
        assert lock.acquire("x")
        house.place.lock.write_text(f"{victim.pid} {keeper_lock.start_time(victim.pid)} x\n")
        house.place.socket.parent.chmod(0o777)
        with pytest.raises(UnsafeDirectory):
            keeper_lock.signal_keeper(house.place, signal.SIGKILL)
        assert house.keeper("--stop").wait(PATIENCE_S) == EXIT_UNUSABLE
        assert victim.poll() is None
    finally:
        lock.release()
        victim.kill()
        victim.wait()
