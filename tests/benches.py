"""Runs a bench as its user does, with tiny sizes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.stack import ROOT

PATIENCE_S = 280


def run_bench(name: str, directory: Path, *options: str) -> tuple[dict[str, float], str]:
    """(its figures, what it told). A missed target is no failure: here the machine is busy."""
    figures = directory / "figures.json"
    done = subprocess.run(
        [ROOT / "bench" / name, "--quick", "--json", figures, *options],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout == ""
    found: dict[str, float] = json.loads(figures.read_text())
    assert all(isinstance(value, float | int) for value in found.values())
    assert (done.returncode == 1) == ("MISSED" in done.stderr)
    return found, done.stderr
