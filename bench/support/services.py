"""PostgreSQL, Valkey, web processes and GPU workers of a bench's own, on free ports of 127.0.0.1.

    with Services() as services:
        services.set_up_django()            # from here on, the product's own modules can be used
        web = services.start_web()
        worker = services.start_worker("sim", 60)

Everything ends with the bench, whatever ends it, and leaves nothing behind.
"""

from __future__ import annotations

import base64
import http.client
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psycopg

from chatproject import demo_model, openmp
from chatproject.commands import (
    APPLICATION,
    CELERY_APP,
    gpu_worker_environment,
    gpu_worker_module,
    llamacpp_module,
    web_module,
)
from chatproject.embedded import EmbeddedPostgres, EmbeddedValkey, processes
from chatproject.embedded.ports import free_port
from chatproject.embedded.processes import StopStep

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
_STOP = (StopStep(signal.SIGTERM, 15.0), StopStep(signal.SIGKILL, 5.0))


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the product; its output is in `log`."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def stop(self) -> None:
        processes.stop(self.popen, _STOP)

    def kill(self) -> None:
        """As `kill -9`, and all that it has started."""
        processes.signal_group(self.popen, signal.SIGKILL)
        self.popen.wait()

    def freeze(self) -> None:
        processes.signal_group(self.popen, signal.SIGSTOP)

    def thaw(self) -> None:
        processes.signal_group(self.popen, signal.SIGCONT)

    def wait_until(
        self, condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S
    ) -> None:
        """Raises RuntimeError, with its last words, where it ends first or takes too long."""
        ended = False

        def decided() -> bool:
            nonlocal ended
            ended = processes.has_ended(self.popen)
            return ended or condition()

        if not processes.wait_until(decided, patience_s) or ended:
            tail = self.log.read_text(errors="replace")[-4000:]
            raise RuntimeError(f"{self.name}: waited in vain for {what}\n{tail}")


@dataclass(frozen=True, slots=True)
class Web(Process):
    """One web process."""

    port: int

    def wait(self) -> None:
        self.wait_until(lambda: _answers(self.port, "/healthz"), "an answer")


@dataclass(frozen=True, slots=True)
class Engine(Process):
    """An engine at a port of its own."""

    port: int
    key: str

    def wait(self) -> None:
        self.wait_until(lambda: _answers(self.port, "/health"), "an answer")


class Services:
    """The data services, and the environment in which the product finds them.

    `durable`: PostgreSQL syncs what it commits to disk, as in production; where a bench times what
    is written.
    """

    def __init__(self, env: Mapping[str, str] | None = None, *, durable: bool = False) -> None:
        self.env: dict[str, str] = dict(env or {})
        self._durable = durable
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def at_end(self, call: Callable[[], object]) -> None:
        """To be called once all that is started later has ended, whatever ends the bench."""
        self._exit.callback(call)

    def _start(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="hearth-bench-"))
        self._exit.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.directory.chmod(0o711)  # PostgreSQL's user must be able to pass
        self.postgres = postgres = self._exit.enter_context(
            EmbeddedPostgres(self.directory, durable=self._durable)
        )
        self.valkey = valkey = self._exit.enter_context(EmbeddedValkey.temporary())
        static = self.directory / "static"
        static.mkdir()
        own = {
            "DATABASE_URL": postgres.url,
            "KEYS_DATABASE_URL": postgres.create_database("bench_keys"),
            "REDIS_URL": valkey.url,
            "MASTER_KEYS": f"bench:{base64.b64encode(secrets.token_bytes(32)).decode()}",
            "SECRET_KEY": secrets.token_urlsafe(50),
            "STATIC_ROOT": str(static),
            "DJANGO_SETTINGS_MODULE": "chatproject.settings",
        }
        self.env = {**own, **self.env}

    @property
    def postgres_pid(self) -> int:
        return self._pid(self.postgres)

    @property
    def valkey_pid(self) -> int:
        return self._pid(self.valkey)

    @staticmethod
    def _pid(service: EmbeddedPostgres | EmbeddedValkey) -> int:
        if service.process is None:
            raise RuntimeError("it is not running")
        return service.process.pid

    def set_up_django(self) -> None:
        """Django in this process, with both databases migrated."""
        os.environ.update(self.env)
        import django
        from django.core.management import call_command

        django.setup(set_prefix=False)
        call_command("migrate", verbosity=0)
        call_command("migrate", "keystore", database="keys", verbosity=0)

    def start_web(self, application: str = APPLICATION, probe: str = "/readyz") -> Web:
        """A web process as production runs it; it answers when this returns."""
        web = self._spawn_web(application)
        web.wait_until(lambda: _answers(web.port, probe), "an answer")
        return web

    def start_web_and_worker(
        self, pool: str, slots: int, paid_burst: int = 0
    ) -> tuple[Web, Process]:
        """`start_web` and `start_worker` side by side: most of both is waiting for imports."""
        web = self._spawn_web(APPLICATION)
        worker = self._spawn_worker(pool, slots, CELERY_APP, paid_burst=paid_burst)
        web.wait_until(lambda: _answers(web.port, "/readyz"), "an answer")
        worker.wait_until(lambda: self._serves(_replica(pool)), "a healthy replica")
        return web, worker

    def spawn_engine(self, port: int) -> Engine:
        """The simulated engine behind OpenAI's protocol (engine_server.py)."""
        module = ["uvicorn", "bench.support.engine_server:application", "--port", str(port)]
        log, popen = self._spawn(f"engine-{port}", [*module, "--log-level", "warning"])
        return Engine(f"engine {port}", popen, log, port, "")

    def spawn_web(self, port: int) -> Web:
        """One that will answer at that port; see `Web.port`."""
        return self._spawn_web(APPLICATION, port)

    def spawn_worker(self, pool: str, slots: int, number: int, more: Mapping[str, str]) -> Process:
        """One of several, with what more it finds in its environment."""
        return self._spawn_worker(pool, slots, CELERY_APP, number, more)

    def is_healthy(self, pool: str, number: int) -> bool:
        """Whether that worker's engine answers, as its row says."""
        return self._serves(_replica(pool, number))

    def _spawn_web(self, application: str, port: int = 0) -> Web:
        port = port or free_port()
        log, popen = self._spawn(f"web-{port}", web_module("127.0.0.1", port, application))
        processes.raise_file_limit(popen.pid)
        return Web(f"web process {port}", popen, log, port)

    def start_granian(self) -> Web:
        """A web process under granian, where that is installed: another ASGI server to compare."""
        port = free_port()
        module = ["granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port)]
        module += ["--loop", "uvloop", "--backpressure", "8000", "--no-ws", APPLICATION]
        log, popen = self._spawn(f"granian-{port}", module)
        processes.raise_file_limit(popen.pid)
        web = Web("granian", popen, log, port)
        web.wait_until(lambda: _answers(port, "/readyz"), "an answer")
        return web

    def start_worker(
        self, pool: str, slots: int, patience_s: float = PATIENCE_S, app: str = CELERY_APP
    ) -> Process:
        """A GPU worker; its engine is healthy when this returns."""
        worker = self._spawn_worker(pool, slots, app)
        worker.wait_until(lambda: self._serves(_replica(pool)), "a healthy replica", patience_s)
        return worker

    def _spawn_worker(
        self,
        pool: str,
        slots: int,
        app: str,
        number: int = 1,
        more: Mapping[str, str] | None = None,
        paid_burst: int = 0,
    ) -> Process:
        replica = _replica(pool, number)
        module = gpu_worker_module(pool, slots, f"gpu-{replica}", app, paid_burst=paid_burst)
        own = gpu_worker_environment(pool, replica, paid_burst=paid_burst)
        env = {**own, **(more or {})}
        log, popen = self._spawn(f"worker-{replica}", module, env)
        return Process(f"worker {replica}", popen, log)

    def start_llamacpp(self, slots: int, context_tokens: int) -> Engine:
        """The embedded engine with the demo model, which is fetched as `make run` fetches it.

        It answers after `wait`: reading the model takes as long as the databases' migrations.
        """
        var = Path(os.environ.get("HEARTH_VAR") or CHECKOUT / "var")
        model = demo_model.ensure_weights(var / "models", say=_say)
        port, key = free_port(), secrets.token_urlsafe(24)
        env = openmp.with_library({"ENGINE_API_KEY": key}, var / "lib", _say)
        module = llamacpp_module(model, port, slots, context_tokens)
        log, popen = self._spawn("engine", module, env)
        return Engine("engine", popen, log, port, key)

    def spawn(self, name: str, module: list[str]) -> tuple[Path, subprocess.Popen[bytes]]:
        """A module of ours in a process of its own that talks over its standard input and output;
        what it says on standard error is in the file.
        """
        log = self.directory / f"{name}.log"
        with log.open("ab") as err:
            popen = processes.spawn(
                [sys.executable, "-m", *module],
                cwd=CHECKOUT,
                env={**os.environ, **self.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
            )
        self._exit.callback(_end, popen)
        processes.raise_file_limit(popen.pid)
        return log, popen

    def _spawn(
        self, name: str, module: list[str], more: Mapping[str, str] | None = None
    ) -> tuple[Path, subprocess.Popen[bytes]]:
        log = self.directory / f"{name}.log"
        env = {**os.environ, **self.env, "PYTHONUNBUFFERED": "1", **(more or {})}
        with log.open("ab") as out:
            argv = [sys.executable, "-m", *module]
            popen = processes.spawn(argv, cwd=CHECKOUT, env=env, stdout=out)
        self._exit.callback(processes.stop, popen, _STOP)
        return log, popen

    def _serves(self, replica: str) -> bool:
        query = "SELECT 1 FROM generation_replica WHERE name = %s AND healthy"
        with psycopg.connect(self.env["DATABASE_URL"]) as connection:
            return connection.execute(query, [replica]).fetchone() is not None


def _replica(pool: str, number: int = 1) -> str:
    return f"{pool}-{number}"


def _end(popen: subprocess.Popen[bytes]) -> None:
    processes.stop(popen, _STOP)
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            pipe.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
