"""libgomp from the package index, as on a minimal machine: fetched once, the engine runs on it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from chatproject import openmp
from chatproject.console import Console
from chatproject.embedded.ports import free_port
from chatproject.run import Run
from chatproject.run_options import read_options
from tests.phone import PATIENT

pytestmark = pytest.mark.model


def test_the_engine_runs_on_the_fetched_copy(
    demo_model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openmp, "is_installed", lambda: False)
    knobs = {"HEARTH_VAR": str(tmp_path), "SLOTS": "1", "ENGINE_CONTEXT_TOKENS": "256"}
    product = Run(read_options(knobs), reload=False, console=Console())
    port = free_port()
    engine = product._engine_command(demo_model_path, port, "a key")
    library = tmp_path / "lib" / openmp.SONAME
    fetched = library.stat()
    engine.start()
    assert engine.process is not None
    assert engine.process.stdout is not None
    try:
        with engine.process.stdout as said:
            assert any(f"ready on http://127.0.0.1:{port}".encode() in line for line in said)
            maps = Path(f"/proc/{engine.process.pid}/maps").read_text()
            assert str(library) in maps
            health = httpx.get(f"http://127.0.0.1:{port}/health", **PATIENT)
            assert health.status_code == 200
    finally:
        engine.stop()
    product._engine_command(demo_model_path, port, "a key")
    assert library.stat().st_ino == fetched.st_ino  # not fetched again
