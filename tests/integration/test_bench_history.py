"""`bench/history` runs, from its own services to its figures; the figures themselves prove nothing
here, where the machine is busy with tests.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.support.cli import Bench, Target
from bench.support.numbers import percentile
from tests.benches import run_bench


@pytest.mark.timeout(300)
def test_a_tiny_run_gives_every_figure(tmp_path: Path) -> None:
    sizes = ("--messages", "120", "--conversations", "200", "--rounds", "4")
    found, told = run_bench("history", tmp_path, *sizes)
    assert {"open_400_p95_ms", "list_100k_p95_ms", "open_400_select_ratio"} <= found.keys()
    assert "≤ 30" in told


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
