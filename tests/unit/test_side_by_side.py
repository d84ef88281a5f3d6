"""Two commands at once: both are heard, a failure of either is one, and both hear of the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chatproject.embedded.processes import is_alive, wait_until
from tests.side_by_side import BESIDE
from tests.stack import ROOT

PATIENCE_S = 60.0


def _run(log: Path, first: str, second: str) -> subprocess.Popen[str]:
    """Both are given as the text of a Python program."""
    program = [sys.executable, "-c"]
    words = [str(log), *program, first, BESIDE, *program, second]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.side_by_side", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "beside.log"


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ("exit(0)", "exit(0)", 0),
        ("exit(3)", "exit(0)", 3),
        ("exit(0)", "exit(4)", 4),
        ("exit(3)", "exit(4)", 3),
        ("exit(0)", "import os; os.kill(os.getpid(), 9)", 137),
    ],
)
def test_a_failure_of_either_is_one(log: Path, first: str, second: str, status: int) -> None:
    run = _run(log, first, second)
    told, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == status, told


def test_they_run_at_once_and_the_second_is_shown_whole(log: Path, tmp_path: Path) -> None:
    """Each waits for the other; the first has the last word, but is shown first."""
    here, there = tmp_path / "here", tmp_path / "there"
    wait = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)\n"
    touch = "pathlib.Path({!r}).touch()\n"
    second = wait.format(str(here)) + "print('one\\n' * 20_000)\n" + touch.format(str(there))
    first = "import pathlib\n" + touch.format(str(here)) + wait.format(str(there)) + "print('two')"
    told, _ = _run(log, first, second).communicate(timeout=PATIENCE_S)
    assert told.startswith("two\n"), told[:100]
    assert told.count("one\n") == 20_000
    assert log.read_text().count("one\n") == 20_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_both_are_told_to_end_and_tidy_up(
    log: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """By a signal to us alone, also where we have no time to pass it on."""
    program = (
        "import os, pathlib, time\n"
        "try:\n"
        "    pathlib.Path({!r}).write_text(str(os.getpid()))\n"
        "    while True: time.sleep(0.01)\n"
        "except KeyboardInterrupt:\n"
        "    pathlib.Path({!r}).touch()\n"
    )
    up = [tmp_path / "first", tmp_path / "second"]
    tidy = [tmp_path / "first.tidy", tmp_path / "second.tidy"]
    run = _run(log, *(program.format(str(a), str(b)) for a, b in zip(up, tidy, strict=True)))
    assert wait_until(lambda: all(one.exists() and one.read_text() for one in up), PATIENCE_S)
    pids = [int(one.read_text()) for one in up]
    os.kill(run.pid, number)
    run.communicate(timeout=PATIENCE_S)
    assert run.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert wait_until(lambda: not any(map(is_alive, pids)), PATIENCE_S)
    assert all(one.exists() for one in tidy)


def test_what_was_said_is_shown_though_the_file_is_gone(log: Path) -> None:
    program = f"import os\nos.unlink({str(log)!r})\nprint('said')"
    told, _ = _run(log, "pass", program).communicate(timeout=PATIENCE_S)
    assert "said\n" in told
