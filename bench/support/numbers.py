"""Percentiles, and what a process has used."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
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
    return sum(int(ticks) for ticks in _stat(pid)[11:13]) / _TICKS_PER_S


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and all that it has started, those that have ended included."""
    ticks = 0
    for one in [pid, *_descendants(pid)]:
        try:
            # Its own, and what children had used that it has waited for.
            ticks += sum(int(field) for field in _stat(one)[11:15])
        except OSError:
            continue  # ended since it was listed; its parent's count has it from now on
    return ticks / _TICKS_PER_S


class CpuMeter:
    """What named process trees use between two looks."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._before = self._now()

    def lap(self) -> dict[str, float]:
        """CPU seconds of each since the last lap, or since the meter was made."""
        now = self._now()
        used = {name: now[name] - self._before[name] for name in now}
        self._before = now
        return used

    def _now(self) -> dict[str, float]:
        return {name: tree_cpu_s(pid) for name, pid in self._pids.items()}


def pss_kib(pid: int) -> int:
    """Memory of a process, its share of what it has in common with others."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel tells no PSS")


def _stat(pid: int) -> list[str]:
    # The name, in brackets, may hold anything; what follows it may not.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
            except OSError:
                continue  # ended since it was listed
    found: list[int] = []
    new = {pid}
    while new:
        new = {one for one, parent in parents.items() if parent in new}
        found += new
    return found
