"""Percentiles, and what a process has used."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all are not above (nearest rank)."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, all its threads, user and system."""
    # The name, in brackets, may hold anything; what follows it may not.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
