"""What can be wrong with a machine, told as one paragraph that says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

MIB = 1024 * 1024


class SetupProblem(Exception):
    """Something a person must put right; the text is the whole message, shown without a
    traceback.
    """


def require_free_space(directory: Path, needed_bytes: int, purpose: str) -> None:
    """Raise SetupProblem where the disk of `directory` (which must exist) has too little room."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise SetupProblem(
            f"The disk that holds {directory} has {free_bytes // MIB} MiB free, and {purpose} "
            "needs "
            f"{-(-needed_bytes // MIB)} MiB. Free some space, or put the data elsewhere with "
            "HEARTH_VAR=/path/on/a/larger/disk, and start again."
        )
