"""The embedded engine's start: each hindrance is one line that says what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from generation.engines import llamacpp_server
from generation.engines.llamacpp_server import (
    Unusable,
    check_cpu,
    check_model,
    check_port,
)

SYSTEM_INFO = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | AVX512 = 0 | OPENMP = 1 | REPACK = 1 | "


def test_a_cpu_without_what_the_wheel_needs_is_refused() -> None:
    with pytest.raises(Unusable, match=r"AVX2.*ENGINE_PROFILES") as caught:
        check_cpu(SYSTEM_INFO, frozenset({"pni", "avx"}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("flags", [{"pni", "avx", "avx2", "fma"}, set()])
def test_a_cpu_that_has_it_or_does_not_tell_is_accepted(flags: set[str]) -> None:
    check_cpu(SYSTEM_INFO, frozenset(flags))


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    with pytest.raises(Unusable, match="cannot read"):
        check_model(missing)
    page = tmp_path / "page.gguf"
    page.write_text("<html>")
    with pytest.raises(Unusable, match="not a GGUF"):
        check_model(page)
    page.write_bytes(b"GGUF and more")
    check_model(page)


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unusable, match=str(port)):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_a_missing_libgomp_is_told_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> None:
        raise ImportError("libgomp.so.1: cannot open shared object file: No such file")

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(Unusable, match=r"libgomp1.*LD_LIBRARY_PATH"):
        llamacpp_server._import()
