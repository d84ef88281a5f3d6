"""The whole product as real processes on 127.0.0.1, for tests: web processes and GPU workers.

A database and a Redis database of its own on the test run's servers; the engine is `simulated`,
steered by directives in the user's message (see generation/engines/simulated.py).
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import redis
from psycopg import sql

from chatproject.commands import gpu_worker_environment, gpu_worker_module, web_module
from chatproject.embedded import processes
from tests.ports import own_ports

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60.0
PASSWORD = "a long enough password"
SILENCE_S = 300
"""How long an engine may say nothing: while tests hold it, a busy machine may be long at it."""

# One process for all of it: each start of Django costs a second or two.
_PREPARE = f"""
import json, os
from django.core.management import call_command
from accounts import tokens
from accounts.models import User
from generation import reaper
from generation.models import Pool
from quotas.models import Plan, Subscription

call_command("migrate", verbosity=0)
call_command("migrate", "keystore", database="keys", verbosity=0)
with open(os.devnull, "w") as nowhere:
    call_command("ensure_demo", stdout=nowhere)
Pool.objects.update(silence_s={SILENCE_S})
reaper.sweep()  # as a worker does when it starts: builds the queue
people = {{}}
plan = Plan.objects.create(
    slug="tests", title="Tests", is_paid=False, concurrent_runs=1000, context_tokens=32768,
    answer_tokens=32000, at_limit="refuse", ttft_deadline_ms=600_000,
)
for name in ("ada", "bob"):
    user = User.objects.create_user(f"{{name}}@example.org", {PASSWORD!r}, name=name.title())
    Subscription.objects.create(user=user, plan=plan)
    people[name] = {{"email": user.email, "token": tokens.create(user, "tests")[1]}}
print(json.dumps(people))
"""


SETTINGS = (
    "generation_model",
    "generation_pool",
    "quotas_plan",
    "quotas_planmodel",
    "quotas_subscription",
)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who uses the stack: e-mail and PASSWORD for the page, `token` for the API."""

    email: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(slots=True)
class Process:
    """One process of the stack; its output is in `log`."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    port: int = 0
    replica: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """As `kill -9`."""
        processes.signal_group(self.popen, signal.SIGKILL)
        self.popen.wait(PATIENCE_S)

    def terminate(self, patience_s: float = 40.0) -> int:
        """As a deploy: SIGTERM, then wait."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(patience_s)

    def freeze(self) -> None:
        processes.signal_group(self.popen, signal.SIGSTOP)

    def thaw(self) -> None:
        processes.signal_group(self.popen, signal.SIGCONT)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@dataclass(slots=True)
class Stack:
    """Processes by kind. `with Stack.start() as stack:` ends them all."""

    directory: Path
    env: dict[str, str]
    people: dict[str, Person] = field(default_factory=dict)
    webs: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)
    settings: set[str] = field(default_factory=set)
    """What an administrator has set, when the stack began."""
    _exit: ExitStack = field(default_factory=ExitStack)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def start(
        cls,
        *,
        webs: int = 2,
        workers: int = 1,
        slots: int = 8,
        redis_db: int = 7,
        redis_url: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """A running stack. `redis_url` in place of `redis_db` for a server of its own."""
        directory = Path(tempfile.mkdtemp(prefix="hearth-stack-"))
        name = f"stack_{directory.name.rpartition('-')[2].lower()}"
        options = {
            "directives": True,
            "hold_file": str(directory / "hold"),
            "journal_file": str(directory / "engine.jsonl"),
        }
        profile = {"kind": "simulated", "model": "sim", "slots": slots, "options": options}
        stack = cls(
            directory,
            {
                **os.environ,
                "DATABASE_URL": _create_database(name),
                "KEYS_DATABASE_URL": _create_database(f"{name}_keys"),
                "REDIS_URL": redis_url or _redis_database(redis_db),
                "ENGINE_PROFILES": json.dumps({"sim": {**profile, "context_tokens": 32_768}}),
                "STATIC_ROOT": _static_root(),
                "DATABASE_POOL_SIZE": "6",
                "WORKER_GRACE_S": "5",
                "PYTHONUNBUFFERED": "1",
                **(env or {}),
            },
        )
        try:
            stack._prepare()
            for _ in range(webs):
                stack.start_web()
            for _ in range(workers):
                stack.start_worker(slots)
            stack.wait_ready()
        except BaseException:
            stack.close()
            raise
        return stack

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in [*self.webs, *self.workers]:
            if process.popen.poll() is None:
                process.kill()

    # --- processes --------------------------------------------------------------------------------

    def _prepare(self) -> None:
        _collect_static(self)
        people = json.loads(self.manage("shell", "--verbosity", "0", "-c", _PREPARE))
        self.people = {name: Person(**person) for name, person in people.items()}
        self.settings = self._read_settings()

    def manage(self, *arguments: str) -> str:
        """Run a management command; its output. Raises with its errors where it fails."""
        return self.python("manage.py", *arguments)

    def python(self, *arguments: str) -> str:
        """Run Python with the stack's environment; its output. Raises where it fails."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode:
            raise AssertionError(f"{arguments} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def start_web(self, port: int = 0, env: Mapping[str, str] | None = None) -> Process:
        port = port or own_ports()
        command = ["-m", *web_module("127.0.0.1", port)]
        web = self._spawn(f"web-{port}", command, {**self.env, **(env or {})}, port)
        self.webs.append(web)
        return web

    def start_worker(
        self, slots: int = 8, env: Mapping[str, str] | None = None, pool: str = "sim"
    ) -> Process:
        number = next(self._numbers)
        replica = f"{pool}-{number}"
        command = ["-m", *gpu_worker_module(pool, slots, f"gpu-{number}"), "--loglevel", "INFO"]
        own = gpu_worker_environment(pool, replica)
        worker = self._spawn(f"worker-{number}", command, {**self.env, **own, **(env or {})})
        worker.replica = replica
        self.workers.append(worker)
        return worker

    @contextmanager
    def second_model(self, title: str) -> Iterator[None]:
        """A model `small` beside the first, of the same engine, with a worker of its own."""
        profiles = json.loads(self.env["ENGINE_PROFILES"])
        both = json.dumps({**profiles, "small": {**profiles["sim"], "model": "small"}})
        before = dict(self.env)
        self.env["ENGINE_PROFILES"] = both
        workers = list(self.workers)
        try:
            self.manage("ensure_demo")
            # Enabled again: an earlier test has put it away.
            renewed = "UPDATE generation_model SET title = %s, enabled = true WHERE slug = 'small'"
            self.execute(renewed, title)
            self.execute("UPDATE generation_pool SET silence_s = %s", SILENCE_S)
            worker = self.start_worker(4, pool="small")
            wait_for(self._replica_healthy, "a healthy replica", worker)
            yield
        finally:
            self.env.update(before)
            self.execute("UPDATE generation_model SET enabled = false WHERE slug = 'small'")
            for worker in self.workers[len(workers) :]:
                worker.kill()
            self.workers[:] = workers

    def _spawn(
        self, name: str, command: list[str], env: Mapping[str, str], port: int = 0
    ) -> Process:
        log = self.directory / f"{name}.log"
        with log.open("ab") as out:
            popen = processes.spawn([sys.executable, *command], cwd=ROOT, env=env, stdout=out)
        return Process(name, popen, log, port)

    def wait_ready(self) -> None:
        """Every web process answers, a replica is healthy, and its queue is built."""
        for web in self.webs:
            wait_for(lambda web=web: self._answers(web), f"{web.name} to answer", web)
        if self.workers:
            wait_for(self._replica_healthy, "a healthy replica", self.workers[-1])
            wait_for(self._queue_built, "the queue to be built", self.workers[-1])

    @staticmethod
    def _answers(web: Process) -> bool:
        if web.popen.poll() is not None:
            raise AssertionError(f"{web.name} ended:\n{web.tail()}")
        try:
            return httpx.get(f"{web.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _queue_built(self) -> bool:
        with redis.Redis.from_url(self.env["REDIS_URL"]) as client:
            return bool(client.exists("{pool:sim}:built"))

    def _replica_healthy(self) -> bool:
        names = [w.replica for w in self.workers if w.popen.poll() is None]
        rows = self.rows("SELECT name FROM generation_replica WHERE healthy")
        return bool(names) and {name for (name,) in rows} >= set(names)

    # --- looking and holding ----------------------------------------------------------------------

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What PostgreSQL has, seen from outside."""
        with psycopg.connect(self.env["DATABASE_URL"]) as connection:
            return connection.execute(query, values).fetchall()

    def _read_settings(self) -> set[str]:
        """Each row of the tables that decide how others are served, as a text."""
        return {
            f"{table}: {row}"
            for table in SETTINGS
            for (row,) in self.rows(f"SELECT to_jsonb(t)::text FROM {table} t")  # noqa: S608 — ours
        }

    def check_settings(self) -> None:
        """Raises where a test has changed what others rely on, and not set it back. What came is
        no matter."""
        missing = self.settings - self._read_settings()
        assert not missing, f"changed, and not set back: {missing}"

    def let_reap(self) -> None:
        """As if Redis had not been lost a moment ago."""
        with redis.Redis.from_url(self.env["REDIS_URL"]) as client:
            client.delete("reaper:paused")

    def execute(self, statement: str, *values: object) -> None:
        """Change what PostgreSQL has, behind the product's back."""
        with psycopg.connect(self.env["DATABASE_URL"]) as connection:
            connection.execute(statement, values)

    def kept(self, *runs: str) -> int:
        """How many of the runs have their text in a checkpoint."""
        query = "SELECT count(*) FROM generation_runcheckpoint WHERE run_id = ANY(%s::uuid[])"
        ((count,),) = self.rows(query, [run.removeprefix("g_") for run in runs])
        return int(count)

    def hold(self, name: str = "") -> Path:
        """A file that makes the engine wait (directive `hold`: name) while it exists."""
        path = self.directory / (f"hold.{name}" if name else "hold")
        path.touch()
        return path

    def journal(self, run: str) -> list[dict[str, Any]]:
        """What the engine noted of one run."""
        path = self.directory / "engine.jsonl"
        # Up to the last line end: the worker may be writing the next line just now.
        whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
        lines = whole.splitlines()
        return [entry for line in lines if (entry := json.loads(line))["run"] == run]


@cache
def _static_root() -> str:
    """A directory of this test run: another one may be collecting, which takes files away."""
    directory = tempfile.mkdtemp(prefix="hearth-static-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@cache
def _static_collected() -> set[str]:
    return set()


def _collect_static(stack: Stack) -> None:
    """Once per test run: the files are the same for every stack."""
    root = stack.env["STATIC_ROOT"]
    if root not in _static_collected():
        stack.manage("collectstatic", "--noinput", "--verbosity", "0")
        _static_collected().add(root)


def wait_for(condition: Any, what: str, process: Process | None = None) -> None:
    """Poll until `condition()` holds; generous, for a busy machine."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until_s:
            tail = f"\n{process.tail()}" if process else ""
            raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}{tail}")
        time.sleep(0.05)


def directive(**script: object) -> str:
    """A user message that tells the simulated engine what to answer."""
    return f"[[sim {json.dumps(script)}]]"


def _create_database(name: str) -> str:
    admin_url = os.environ["DATABASE_URL"]
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    parts = urlsplit(admin_url)
    return urlunsplit(parts._replace(path=f"/{name}"))


def _redis_database(number: int) -> str:
    return urlunsplit(urlsplit(os.environ["REDIS_URL"])._replace(path=f"/{number}"))
