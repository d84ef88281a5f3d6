"""PostgreSQL, Valkey and web processes of a bench's own, on free ports of 127.0.0.1.

    with Services() as services:
        services.set_up_django()            # from here on, the product's own modules can be used
        web = services.start_web()

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
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from chatproject.embedded import EmbeddedPostgres, EmbeddedValkey, processes
from chatproject.embedded.ports import free_port
from chatproject.embedded.processes import StopStep

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
_STOP = (StopStep(signal.SIGTERM, 15.0), StopStep(signal.SIGKILL, 5.0))


@dataclass(frozen=True, slots=True)
class Web:
    """One web process."""

    popen: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid


class Services:
    """The data services, and the environment in which the product finds them."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.env: dict[str, str] = dict(env or {})
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

    def _start(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="hearth-bench-"))
        self._exit.callback(shutil.rmtree, self.directory, ignore_errors=True)
        postgres = self._exit.enter_context(EmbeddedPostgres.temporary())
        valkey = self._exit.enter_context(EmbeddedValkey.temporary())
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

    def set_up_django(self) -> None:
        """Django in this process, with both databases migrated."""
        os.environ.update(self.env)
        import django
        from django.core.management import call_command

        django.setup(set_prefix=False)
        call_command("migrate", verbosity=0)
        call_command("migrate", "keystore", database="keys", verbosity=0)

    def start_web(self) -> Web:
        """A web process as production runs it; it answers when this returns."""
        port, log = free_port(), self.directory / "web.log"
        command = [
            *(sys.executable, "-m", "uvicorn", "chatproject.asgi:application"),
            *("--host", "127.0.0.1", "--port", str(port), "--no-access-log"),
        ]
        with log.open("ab") as out:
            popen = processes.spawn(command, cwd=ROOT, env={**os.environ, **self.env}, stdout=out)
        self._exit.callback(processes.stop, popen, _STOP)
        if not processes.wait_until(lambda: _answers(port), PATIENCE_S):
            raise RuntimeError(f"the web process does not answer:\n{log.read_text()[-4000:]}")
        return Web(popen, port, log)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
