"""Which processes stand back where the CPU is scarce."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

TRIES: Final = 5
TRY_AGAIN_S: Final = 0.15
"""Linux lets one who is not root change a session's weight ten times a second."""


def stand_back(pid: int, nice: int) -> None:
    """Give the process, and what it starts from now on, less of the CPU when others want it too.

    `nice`: 0 (nothing is done) to 19. Where Linux shares the CPU by sessions (`sched_autogroup`),
    the niceness of a process counts only inside its session; so that of the session is set too,
    where the process leads one. Best effort: an engine without it is slower for others, not wrong.
    """
    if nice <= 0:
        return
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, max(nice, os.getpriority(os.PRIO_PROCESS, pid)))
    with suppress(OSError):
        if os.getsid(pid) == pid:
            _weigh_session(Path(f"/proc/{pid}/autogroup"), nice)


def _weigh_session(file: Path, nice: int) -> None:
    for _ in range(TRIES):
        try:
            file.write_text(str(nice))
        except BlockingIOError:
            time.sleep(TRY_AGAIN_S)
        else:
            return
