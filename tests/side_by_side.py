"""Runs two commands at once: `python -m tests.side_by_side LOG FIRST… --beside SECOND…`.

The first is seen as it runs. What the second says goes into the file LOG meanwhile, and is shown
whole once both have ended. The exit status is 0 where both have ended well, else the first's, or
the second's where only that one failed.

Ctrl-C and SIGTERM reach both as Ctrl-C, and both are waited for: they have services to end. Where
we are killed, the kernel tells them the same.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from chatproject.embedded import processes

BESIDE = "--beside"


class Pair:
    """Two processes that are told together to end."""

    def __init__(self) -> None:
        self.status = 0
        """Not 0 once we were told to end."""
        self._started: list[subprocess.Popen[bytes]] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def start(self, command: Sequence[str], out: IO[str] | IO[bytes]) -> subprocess.Popen[bytes]:
        process = processes.spawn(
            command,
            cwd=Path.cwd(),
            env=os.environ,
            stdout=out.fileno(),
            death_signal=signal.SIGINT,
        )
        self._started.append(process)
        if self.status:  # told to end before it was there to hear of it
            processes.send(process, signal.SIGINT)
        return process

    def _end(self, number: int, _: FrameType | None) -> None:
        self.status = 128 + number
        for process in self._started:
            processes.send(process, signal.SIGINT)


def main(log: Path, first: Sequence[str], second: Sequence[str]) -> int:
    """Run both; the exit status. Raises OSError where one of them cannot be started."""
    pair = Pair()
    with log.open("w+b") as out:
        beside = pair.start(second, out)
        statuses = [_status(pair.start(first, sys.stdout)), _status(beside)]
        print(f"\nBeside it: {' '.join(second)}\n", flush=True)
        # By what is open: the tests may have tidied the file away.
        out.seek(0)
        shutil.copyfileobj(out, sys.stdout.buffer)
    print(f"\nThe first has ended with {statuses[0]}, the one beside it with {statuses[1]}")
    return pair.status or next(filter(None, statuses), 0)


def _status(process: subprocess.Popen[bytes]) -> int:
    """As a shell has it, once the process has ended."""
    code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    log, *words = sys.argv[1:]
    middle = words.index(BESIDE)
    sys.exit(main(Path(log), words[:middle], words[middle + 1 :]))
