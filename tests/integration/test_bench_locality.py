"""`bench/locality` runs, from its own Valkey to its figures."""

from __future__ import annotations

from pathlib import Path

from tests.benches import run_bench


def test_the_bench_plays_and_prints(tmp_path: Path) -> None:
    figures, told = run_bench("locality", tmp_path, "--turns", "150", "--slots", "2")
    assert {f"hit_share_{load}" for load in (30, 70, 95)} <= set(figures)
    assert figures["home_share_30"] > figures["home_share_95"]
    assert "hit_share_30" in told
