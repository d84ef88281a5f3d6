"""Which processes stand back where the CPU is scarce.

Best effort: an engine that does not stand back is slow for others, not wrong.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

TRIES: Final = 5
TRY_AGAIN_S: Final = 0.15
"""Linux lets one who is not root change a session's weight ten times a second."""


def stand_back(nice: int) -> None:
    """Let this process, and what it starts from now on, have less of the CPU when others want it.

    `nice`: 0 (nothing is done) to 19. One system call or two, and no lock: it may stand between
    fork and exec.
    """
    if nice > 0:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))


def weigh_session(leader: int, nice: int) -> None:
    """The same for a whole session, of all that is in it now or later.

    Where Linux shares the CPU by sessions first (`sched_autogroup`), the niceness of a process
    counts only inside its own. Raises nothing, also where `leader` has ended or leads none.
    """
    file = Path(f"/proc/{leader}/autogroup")
    with suppress(OSError):
        if nice <= 0 or os.getsid(leader) != leader:
            return
        for _ in range(TRIES):
            try:
                file.write_text(str(nice))
            except BlockingIOError:
                time.sleep(TRY_AGAIN_S)
            else:
                return
