"""`bench/history` runs, from its own services to its figures; the figures themselves prove nothing
here, where the machine is busy with tests.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench.support.cli import Bench, Target
from bench.support.numbers import percentile
from tests.stack import ROOT


@pytest.mark.timeout(300)
def test_a_tiny_run_gives_every_figure(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    sizes = ("--messages", "120", "--conversations", "200", "--rounds", "4")
    done = subprocess.run(
        [ROOT / "bench" / "history", "--quick", "--json", figures, *sizes],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode in (0, 1), done.stderr  # 1: a target is missed
    found = json.loads(figures.read_text())
    assert {"open_400_p95_ms", "list_100k_p95_ms", "open_400_select_ratio"} <= found.keys()
    assert all(isinstance(value, float | int) and value >= 0 for value in found.values())
    assert "≤ 30" in done.stderr
    assert done.stdout == ""


def test_percentiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, one) for one in (50, 95, 100)] == [50, 95, 100]
    assert percentile([7.0], 95) == 7


def test_a_missed_target_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench.of_command_line("history", "", [("--size", 3, "size")], ["--json", "-"])
    bench.figures = {"slow_ms": 31.0, "share": 0.7}
    rows = [("slow_ms", "too slow"), ("share", "")]
    targets = {"slow_ms": Target(30), "share": Target(0.6, at_least=True)}
    assert bench.finish(rows, targets) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == bench.figures
    assert "MISSED" in told.err
    assert bench.finish(rows, {**targets, "slow_ms": Target(31)}) == 0
