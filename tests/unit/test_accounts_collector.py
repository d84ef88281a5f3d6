"""Start-up is out of the garbage collector's sight."""

from __future__ import annotations

import subprocess
import sys


def test_what_was_made_before_is_passed_over() -> None:
    """In a process of its own: this one would keep all that the tests have made."""
    code = (
        "import gc; from accounts.collector import settle; kept = [[] for _ in range(1000)]; "
        "settle(); assert gc.get_freeze_count() > 1000; assert len(gc.get_objects()) < 1000"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
