"""`python -m chatproject.run` as a process, from a copied checkout, for tests.

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
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from chatproject.embedded.processes import children_of
from tests.ports import own_ports
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

    def __init__(self, directory: Path, *arguments: str, redis_db: int, **knobs: str) -> None:
        self.checkout = directory / "checkout"
        self.var = directory / "var"
        self.port = own_ports(2)  # one for each web process
        self.lines: list[str] = []
        shutil.copytree(ROOT, self.checkout, ignore=NOT_COPIED)
        (self.checkout / "node_modules").symlink_to(ROOT / "node_modules")
        self.env = {**self._environment(directory, redis_db), **knobs}
        self.process = subprocess.Popen(
            self._command(*arguments),
            cwd=self.checkout,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_few_files,
        )

    @classmethod
    @contextmanager
    def ready(cls, directory: Path, *arguments: str, redis_db: int, **knobs: str) -> Iterator[Self]:
        """Started, and ready; ended afterwards."""
        run = cls(directory, *arguments, redis_db=redis_db, **knobs)
        try:
            run.line_with("Ready:")
            yield run
        finally:
            run.end()

    @staticmethod
    def _command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "chatproject.run", *arguments]

    def command(self, *arguments: str) -> str:
        """What another call of it prints: `--manage`, `--restart`."""
        words = self._command(*arguments)
        return subprocess.check_output(words, cwd=self.checkout, env=self.env, text=True)

    def _environment(self, directory: Path, redis_db: int) -> dict[str, str]:
        """Secrets in files, as containers have them."""
        own = ("STATIC_ROOT", "DJANGO_SETTINGS_MODULE", "DATABASE_URL", "REDIS_URL", "SECRET_KEY")
        files = {
            "DATABASE_URL": _create_database(f"run_{redis_db}"),
            "REDIS_URL": _redis_database(redis_db),
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
