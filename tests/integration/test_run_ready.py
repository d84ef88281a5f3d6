"""`python -m chatproject.run` until it is ready, with the simulated engine, from a copied checkout.

Its services are the test run's own, its settings those of somebody who has set much.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from chatproject.embedded.ports import free_port
from chatproject.embedded.processes import children_of, wait_until
from tests.phone import PATIENT
from tests.stack import ROOT, _create_database, _redis_database

PATIENCE_S = 90.0
NAME = "chat.example.org"
NOT_COPIED = shutil.ignore_patterns(
    ".*", "__pycache__", "node_modules", "var", "tests", "test-results", "docs"
)


def _few_files() -> None:
    """The soft limit of a login shell on most machines."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))


class Started:
    """A run in a process of its own, read line by line."""

    def __init__(self, directory: Path) -> None:
        self.checkout = directory / "checkout"
        self.var = directory / "var"
        self.port = free_port()
        self.lines: list[str] = []
        shutil.copytree(ROOT, self.checkout, ignore=NOT_COPIED)
        (self.checkout / "node_modules").symlink_to(ROOT / "node_modules")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chatproject.run", "--reload"],
            cwd=self.checkout,
            env=self._environment(directory),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_few_files,
        )

    def _environment(self, directory: Path) -> dict[str, str]:
        """Secrets in files, as containers have them."""
        own = ("STATIC_ROOT", "DJANGO_SETTINGS_MODULE", "DATABASE_URL", "REDIS_URL", "SECRET_KEY")
        files = {
            "DATABASE_URL": _create_database("run_ready"),
            "REDIS_URL": _redis_database(11),
            "SECRET_KEY": "from a file " + "x" * 40,
        }
        for name, value in files.items():
            (directory / name).write_text(value)
        return {
            **{name: value for name, value in os.environ.items() if name not in own},
            **{f"{name}_FILE": str(directory / name) for name in files},
            "ENGINE": "simulated",
            "HEARTH_VAR": str(self.var),
            "PORT": str(self.port),
            "ALLOWED_HOSTS": NAME,
        }

    def line_with(self, text: str) -> str:
        """The next line of it that holds `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return line
        pytest.fail(f"it ended without saying {text!r}:\n{''.join(self.lines)}")

    def processes(self) -> dict[str, int]:
        """Process ids of its children by the words that tell them apart."""
        found: dict[str, int] = {}
        for pid in children_of(self.process.pid):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:  # ended since it was listed, as they all do at a restart
                continue
            for word in ("uvicorn", "gpu.demo", "chores", "beat"):
                if word in words:
                    found[word] = pid
        return found

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Ready; the one run of this file, since each takes seconds."""
    run = Started(tmp_path_factory.mktemp("run"))
    try:
        run.line_with("Ready:")
        yield run
    finally:
        run.end()


def test_it_gets_ready_where_localhost_is_no_allowed_name(started: Started) -> None:
    url = f"http://127.0.0.1:{started.port}/healthz"
    answer = httpx.get(url, headers={"Host": NAME}, **PATIENT)
    assert answer.status_code == 200


def test_services_and_a_key_named_by_files_are_used_in_place_of_its_own(started: Started) -> None:
    made = {path.name for path in started.var.iterdir()}
    assert "run.json" in made
    assert not made & {"postgres", "postgres.elsewhere", "valkey", "secret-key"}


def test_what_a_first_message_does_not_need_is_started_too(started: Started) -> None:
    all_of_them = {"uvicorn", "gpu.demo", "chores", "beat"}
    assert wait_until(lambda: set(started.processes()) == all_of_them, PATIENCE_S)


def test_a_change_of_the_source_restarts_the_product_once(started: Started) -> None:
    """`make dev`: what serves is new, and ready again; the supervisor itself stays."""
    assert wait_until(lambda: len(started.processes()) == 4, PATIENCE_S)
    before = started.processes()
    changed = started.checkout / "chatproject" / "urls.py"
    # In one step: a server that reads meanwhile must not find half a file.
    new = started.var / "urls.py"
    new.write_text(changed.read_text() + "# a change\n")
    new.replace(changed)
    started.line_with("The source has changed: restarting")
    assert wait_until(
        lambda: (
            len(started.processes()) == 4
            and not set(started.processes().values()) & set(before.values())
        ),
        PATIENCE_S,
    )
    assert wait_until(lambda: ready(started), PATIENCE_S)
    assert not any("ended" in line or "killed" in line for line in started.lines)


def ready(started: Started) -> bool:
    try:
        answer = httpx.get(
            f"http://127.0.0.1:{started.port}/readyz", headers={"Host": NAME}, **PATIENT
        )
    except httpx.HTTPError:
        return False
    return answer.status_code == 200


def test_the_web_process_may_open_as_many_files_as_the_machine_lets_it(started: Started) -> None:
    """Each stream holds one."""
    assert resource.prlimit(started.process.pid, resource.RLIMIT_NOFILE)[0] == 1024
    soft, hard = resource.prlimit(started.processes()["uvicorn"], resource.RLIMIT_NOFILE)
    assert soft == hard > 1024
