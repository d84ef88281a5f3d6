"""The set-up before anything is installed: which Python, which packages, and what it says."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).parents[2]
FIND_PYTHON = CHECKOUT / "scripts" / "find-python"


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, at work in an empty directory."""
    spec = importlib.util.spec_from_file_location("bootstrap", CHECKOUT / "scripts/bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CHECKOUT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "VENV_PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(module, "NODE_MODULES", tmp_path / "node_modules")
    return module


def fake_python(directory: Path, name: str, version: str) -> Path:
    """A program that answers as a Python of that version would."""
    program = directory / name
    fits = "exit 0" if version in ("3.11", "3.12", "3.13") else "exit 1"
    told = f'[ "$1" = --version ] && echo "Python {version}.1" && exit 0'
    program.write_text(f"#!/bin/sh\n{told}\n{fits}\n")
    program.chmod(0o755)
    return program


def find_python(path: Path, python: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(FIND_PYTHON)],
        env={"PATH": str(path), "PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH that holds nothing but what find-python itself calls."""
    directory = tmp_path / "path"
    directory.mkdir()
    (directory / "cat").symlink_to("/bin/cat")
    return directory


def test_the_first_python_that_fits_is_taken(path: Path) -> None:
    fake_python(path, "python3", "3.9")
    fitting = fake_python(path, "python3.12", "3.12")
    done = find_python(path)
    assert (done.returncode, done.stdout.strip()) == (0, str(fitting))


@pytest.mark.parametrize("version", ["3.9", "3.14"])
def test_without_a_fitting_python_it_says_what_to_install(path: Path, version: str) -> None:
    fake_python(path, "python3", version)
    done = find_python(path)
    assert done.returncode == 1
    assert f"here is Python {version}.1" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr


def test_without_any_python_it_says_the_same(path: Path) -> None:
    done = find_python(path)
    assert done.returncode == 1
    assert "apt-get install python3" in done.stderr


def test_a_chosen_python_is_the_only_one_looked_at(path: Path) -> None:
    fake_python(path, "python3", "3.13")
    old = fake_python(path, "old", "3.9")
    assert find_python(path, str(old)).returncode == 1
    assert find_python(path).returncode == 0


def test_without_the_venv_part_it_names_debians_package(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "venv_makers", lambda: [["/bin/false"]])
    with pytest.raises(bootstrap.Problem, match="apt-get install python3-venv"):
        bootstrap.make_venv()


def test_venv_needs_ensurepip_which_debian_keeps_apart(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"venv"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in found else None)
    monkeypatch.setenv("PATH", "")
    assert list(bootstrap.venv_makers()) == []
    found.add("ensurepip")
    assert [command[1:3] for command in bootstrap.venv_makers()] == [["-m", "venv"]]


def test_a_full_disk_is_told_before_anything_is_made(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = bootstrap.shutil.disk_usage("/")._replace(free=2**20)
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(bootstrap.Problem, match="1 MiB free, and the packages need 1500 MiB"):
        bootstrap.ensure_venv()


def test_a_change_in_any_requirement_file_installs_again(
    bootstrap: ModuleType, tmp_path: Path
) -> None:
    for name in bootstrap.RUN_FILES:
        (tmp_path / name).write_text("Django==5.2.19\n")
    (tmp_path / ".venv").mkdir()
    assert not bootstrap.is_current("run", bootstrap.RUN_FILES)
    bootstrap.stamp("run").write_text(bootstrap.fingerprint(bootstrap.RUN_FILES))
    assert bootstrap.is_current("run", bootstrap.RUN_FILES)
    (tmp_path / bootstrap.RUN_FILES[1]).write_text("Django==5.2.20\n")
    assert not bootstrap.is_current("run", bootstrap.RUN_FILES)


def test_a_failed_install_is_not_taken_for_done(
    bootstrap: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    pip = bootstrap.VENV_PYTHON
    pip.write_text("#!/bin/sh\necho 'ERROR: [Errno 28] No space left on device'\nexit 1\n")
    pip.chmod(0o755)
    (tmp_path / "requirements.txt").write_text("")
    bootstrap.stamp("run").write_text("old")
    with pytest.raises(bootstrap.Problem, match="is full"):
        bootstrap.install("run", ["requirements.txt"])
    assert not bootstrap.stamp("run").exists()
    assert "No space left" in capsys.readouterr().out


def test_only_what_takes_long_is_shown_of_pips_lines(bootstrap: ModuleType) -> None:
    assert bootstrap.pip_line("  Downloading a-1.0.whl (33.8 MB)\n") == "a-1.0.whl, 33.8 MB"
    assert bootstrap.pip_line("  Downloading b-1.0.whl (1.2 MB)\n") is None
    assert bootstrap.pip_line("Collecting b\n") is None


@pytest.mark.parametrize(
    ("version", "fits"), [("v16.20.0", False), ("v18.0.0", True), ("x", False)]
)
def test_an_old_node_does_not_fit(
    bootstrap: ModuleType, tmp_path: Path, version: str, fits: bool
) -> None:
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho {version}\n")
    node.chmod(0o755)
    assert bootstrap.node_fits(str(node)) is fits
    assert not bootstrap.node_fits(None)


def test_two_set_ups_at_once_wait_for_each_other(bootstrap: ModuleType, tmp_path: Path) -> None:
    """A second one, in a process of its own, does nothing until the first is done."""
    second = (
        "import fcntl, os, sys\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    )
    command = [sys.executable, "-c", second, str(tmp_path)]

    def inside() -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "BlockingIOError" in done.stderr

    bootstrap.with_lock(inside)
    assert subprocess.run(command, env=dict(os.environ), check=False).returncode == 0


def test_developers_get_the_tests_packages_and_others_do_not(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "find_npm", lambda: ("npm", os.environ["PATH"]))
    monkeypatch.setattr(bootstrap, "run_shown", lambda command, *_: ran.append(command))
    (tmp_path / "package-lock.json").write_text("{}")
    bootstrap.ensure_node_packages(dev=False)
    bootstrap.ensure_node_packages(dev=False)
    bootstrap.ensure_node_packages(dev=True)
    bootstrap.ensure_node_packages(dev=True)
    bootstrap.ensure_node_packages(dev=False)  # what developers have is enough
    assert ["--omit=dev" in command for command in ran] == [True, False]
