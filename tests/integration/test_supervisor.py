"""The supervisor with real processes: restarts, the order of the stop, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from chatproject.embedded.processes import is_alive, wait_until

PATIENCE_S = 60.0

# Tells its name and number, then waits; on SIGTERM writes its name into the file `order` and ends.
PATIENT = """
import os, signal, sys
def end(*_):
    with open("order", "a") as file: file.write(sys.argv[1] + "\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("pid", os.getpid(), flush=True)
while True: signal.pause()
"""
STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid", os.getpid(), flush=True)
while True: signal.pause()
"""
# Leaves a child of its own behind in its process group.
PARENT = """
import os, signal, subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("left", left.pid, flush=True)
print("pid", os.getpid(), flush=True)
signal.pause()
"""

DRIVER = """
import os, signal, sys
from pathlib import Path
from chatproject.embedded.processes import StopStep
from chatproject.supervisor import Command, Supervisor
patience_s, *children = sys.argv[1:]
steps = (StopStep(signal.SIGTERM, float(patience_s)),)
with Supervisor() as supervisor:
    for stage, code in enumerate(children):
        name = f"child{stage}"
        argv = [sys.executable, "-c", code, name]
        supervisor.add(Command(name, argv, dict(os.environ), Path.cwd(), steps), stage)
    supervisor.run()
"""


class Driven:
    """A supervisor in a process of its own, read line by line."""

    def __init__(self, directory: Path, patience_s: float, *children: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(patience_s), *children],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def line_with(self, text: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return line
        pytest.fail(f"it ended without saying {text!r}")

    def number(self, word: str, child: str = "child") -> int:
        while child not in (line := self.line_with(f"{word} ")):
            pass
        return int(line.split()[-1])

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


class Drive(Protocol):
    def __call__(self, *children: str, patience_s: float = PATIENCE_S) -> Driven: ...


@pytest.fixture
def drive(directory: Path) -> Iterator[Drive]:
    started: list[Driven] = []

    def start(*children: str, patience_s: float = PATIENCE_S) -> Driven:
        started.append(Driven(directory, patience_s, *children))
        return started[-1]

    yield start
    for driven in started:
        driven.process.kill()
        driven.process.wait()
        if driven.process.stdout is not None:
            driven.process.stdout.close()


def gone(*pids: int) -> bool:
    return wait_until(lambda: not any(map(is_alive, pids)), PATIENCE_S)


def test_it_starts_a_dead_child_again(drive: Drive) -> None:
    driven = drive(PATIENT)
    first = driven.number("pid")
    os.kill(first, signal.SIGKILL)
    assert "by SIGKILL; again in" in driven.line_with("ended")
    second = driven.number("pid")
    assert second != first
    driven.signal(signal.SIGTERM)
    assert driven.wait() == 0
    assert gone(first, second)


def test_a_child_that_keeps_dying_waits_longer_each_time(drive: Drive) -> None:
    driven = drive("raise SystemExit(3)")
    pauses = [driven.line_with("ended with status 3").split("again in ")[1] for _ in range(3)]
    assert pauses == ["0.5 s\n", "1 s\n", "2 s\n"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_stops_the_highest_stage_first(
    drive: Drive, directory: Path, number: signal.Signals
) -> None:
    driven = drive(PATIENT, PATIENT, PATIENT)
    pids = [driven.number("pid") for _ in range(3)]
    driven.signal(number)
    assert driven.wait() == 0
    assert (directory / "order").read_text().split() == ["child2", "child1", "child0"]
    assert gone(*pids)


def test_each_child_has_a_session_of_its_own(drive: Drive) -> None:
    """So a terminal's Ctrl-C reaches only the supervisor, which decides the order."""
    driven = drive(PATIENT)
    pid = driven.number("pid")
    assert os.getsid(pid) == pid != os.getsid(driven.process.pid)


def test_a_child_that_does_not_want_to_end_is_killed(drive: Drive) -> None:
    driven = drive(STUBBORN, patience_s=0.2)
    pid = driven.number("pid")
    driven.signal(signal.SIGINT)
    driven.line_with("child0 is killed")
    assert driven.wait() == 0
    assert gone(pid)


def test_a_second_signal_kills_at_once(drive: Drive) -> None:
    driven = drive(PATIENT, STUBBORN, patience_s=3600)
    pids = [driven.number("pid") for _ in range(2)]
    driven.signal(signal.SIGINT)
    driven.line_with("Stopping")
    driven.signal(signal.SIGINT)
    assert driven.wait() == 0  # its patience would be an hour
    assert gone(*pids)


def test_kill_9_of_the_supervisor_leaves_nothing(drive: Drive) -> None:
    driven = drive(PATIENT, STUBBORN)
    pids = [driven.number("pid") for _ in range(2)]
    driven.signal(signal.SIGKILL)
    assert gone(*pids)


def test_what_a_dead_child_leaves_behind_is_ended_too(drive: Drive) -> None:
    driven = drive(PARENT)
    left, pid = driven.number("left"), driven.number("pid")
    assert is_alive(left)
    os.kill(pid, signal.SIGKILL)
    driven.line_with("ended by SIGKILL")
    assert gone(left)


def test_it_ends_when_nobody_reads_any_more(drive: Drive) -> None:
    """As in `make run | head`, or when the terminal is closed."""
    driven = drive(PATIENT, "raise SystemExit(1)")
    pid = driven.number("pid", "child0")
    assert driven.process.stdout is not None
    driven.process.stdout.close()
    assert driven.process.wait(PATIENCE_S) == 0
    assert gone(pid)
