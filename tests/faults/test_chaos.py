"""`bench/chaos` in its short version: everything is killed at random, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benches import run_bench


@pytest.mark.timeout(300)
def test_nothing_is_lost(tmp_path: Path) -> None:
    found, told = run_bench("chaos", tmp_path)
    print(told)
    assert found["sends"] >= 100
    assert found["kills"] >= 10
    for figure in ("lost", "duplicated", "mismatched", "interrupted"):
        assert found[figure] == 0, told
    # One of a few hundred would be too many for the bench's own target: nothing failed at all.
    assert found["read_failures_share"] == 0, told
    assert found["recovered"] > 0, "somebody had to go on"
    # Workers and Valkey are killed far enough apart; on a slow machine hardly so.
    assert found["double_losses"] <= found["sends"] / 20, told
