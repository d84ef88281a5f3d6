"""`python -m chatproject.run` where something is wrong: one paragraph, status 1, no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chatproject import openmp
from chatproject.demo_model import Part
from chatproject.embedded.homes import HomeLock
from chatproject.embedded.ports import free_port
from chatproject.embedded.problems import SetupProblem
from tests.wheels import make_wheel

CHECKOUT = Path(__file__).parents[2]


def run(var: Path, *arguments: str, **knobs: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DATABASE_URL", "REDIS_URL")
    }
    return subprocess.run(
        [sys.executable, "-m", "chatproject.run", *arguments],
        cwd=CHECKOUT,
        env={**kept, "HEARTH_VAR": str(var), **knobs},
        capture_output=True,
        text=True,
        check=False,
    )


def assert_told(done: subprocess.CompletedProcess[str], *words: str) -> None:
    text = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    for word in words:
        assert word in text


def test_a_wrong_knob(tmp_path: Path) -> None:
    assert_told(run(tmp_path, PORT="http"), "PORT=http cannot be used", "PORT=8000 make run")
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        assert_told(run(tmp_path, PORT=port), f"Port {port} on 127.0.0.1 is taken", "make run")
    assert tmp_path.stat().st_mode & 0o777 == 0o700  # as pytest has made it


def test_a_second_run_on_the_same_data(tmp_path: Path) -> None:
    first = HomeLock(tmp_path / "run.lock")
    first.acquire("process 7 at http://localhost:8000/")
    try:
        assert_told(run(tmp_path), "running already: process 7 at http://localhost:8000/")
    finally:
        first.release()


def test_data_that_belongs_to_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_told(run(tmp_path / "file" / "var"), "cannot be made or written", "HEARTH_VAR")


def test_manage_without_a_run(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")  # of a run that was killed
    assert_told(run(tmp_path, "--manage", "check"), "Nothing is running", "start `make run`")


def test_services_of_ones_own_that_are_away(tmp_path: Path) -> None:
    knobs = {
        "DATABASE_URL": "postgresql://chat:x@127.0.0.1:1/chat",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    done = run(tmp_path, PORT=port, ENGINE="simulated", **knobs)
    assert_told(done, "could not be prepared", "DATABASE_URL")
    assert "DATABASE_URL cannot be reached" in " ".join(done.stdout.split())
    assert not (tmp_path / "run.json").exists()


def test_a_database_of_ones_own_without_one_for_the_keys(tmp_path: Path) -> None:
    knobs = {"DATABASE_URL": "postgresql://chat:x@127.0.0.1:1/chat", "KEYS_DATABASE_URL": ""}
    assert_told(
        run(tmp_path, ENGINE="simulated", PORT=str(free_port()), **knobs), "KEYS_DATABASE_URL"
    )


def test_a_copy_of_libgomp_with_other_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    index.mkdir()
    part = Part("hearth-test-gomp==1.0", f"{openmp.MEMBER_PREFIX}1.so.1.0.0")
    make_wheel(index, part, b"\x7fELF something else")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setattr(openmp, "REQUIREMENT", part.requirement)
    with pytest.raises(SetupProblem, match=r"pinned SHA-256(.|\n)*apt-get install libgomp1"):
        openmp.library_directory(tmp_path / "lib", lambda _: None)
    assert list((tmp_path / "lib").iterdir()) == []
