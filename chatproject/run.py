"""`python -m chatproject.run`: the whole product on one machine, under one supervisor.

python -m chatproject.run                 everything; Ctrl-C ends it
python -m chatproject.run --reload        the same for developers: restarts on changes
python -m chatproject.run --restart       one process of what is running after the other
python -m chatproject.run --manage CMD …  manage.py against what is running
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import secrets
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from chatproject import demo_model, openmp, vllm_setup
from chatproject.commands import (
    beat_module,
    chores_worker_module,
    gpu_worker_environment,
    gpu_worker_module,
    llamacpp_module,
    web_module,
)
from chatproject.console import Console
from chatproject.embedded import EmbeddedPostgres, EmbeddedValkey, SetupProblem
from chatproject.embedded.homes import HomeLock, make_home
from chatproject.embedded.ports import free_port
from chatproject.embedded.problems import MIB, require_free_space
from chatproject.embedded.processes import StopStep
from chatproject.prepare import ADMIN_MARK
from chatproject.run_options import CHECKOUT, LOOPBACK, Options, check_ports, is_set, read_options
from chatproject.run_support import (
    Readiness,
    answers,
    master_keys,
    plain_environment,
    secret_key,
    write_private,
)
from chatproject.supervisor import Command, Service, Supervisor, source_changes
from generation.engines.profiles import InvalidProfiles, parse_profiles
from generation.engines.serve import passed_environment

# The order of the stop is the reverse: first nobody new comes in, then runs end, then what they
# needed goes.
DATABASE_STAGE, REDIS_STAGE, ENGINE_STAGE, WORKER_STAGE, WEB_STAGE = range(5)

POOL = "demo"
KEYS_DATABASE = "chat_keys"
RUN_PID = "HEARTH_RUN_PID"
# How long a rolling restart waits for one process; then the others are left as they are.
ROLL_PATIENCE_S = 60
# Logs, static files and the database's write-ahead log; the model asks for its own room.
RUNNING_BYTES = 300 * MIB

# A worker lets running answers go on for WORKER_GRACE_S and gives back what has not finished then.
# Nobody is left to go on with it here: the next start does, within ten minutes; later it ends as
# `interrupted`, with its text.
# Short: somebody has pressed Ctrl-C and waits.
WORKER_GRACE_S = "3"
WORKER_STOP = (StopStep(signal.SIGTERM, 12.0), StopStep(signal.SIGQUIT, 5.0))
# vLLM ends its own processes, in up to 20 s; its keeper then looks after what is left.
KEEPER_STOP = (StopStep(signal.SIGTERM, 45.0),)
# uvicorn itself gives open answers 10 s (GRACE_S).
WEB_STOP = (StopStep(signal.SIGTERM, 14.0),)


class Run:
    """One `make run`, from a look at the machine to the last process that ends."""

    def __init__(self, options: Options, *, reload: bool, console: Console) -> None:
        self._options = options
        self._reload = reload
        self._console = console
        self._supervisor = Supervisor(console)
        self._environment: dict[str, str] = {}
        self._admin_lines: list[str] = []
        self._rolling: list[tuple[Command, Callable[[], bool]]] = []
        self._lock = HomeLock(options.var / "run.lock")
        self._ready = Readiness(options, console, self._announce, self._start_the_rest)

    def go(self) -> None:
        """Returns after an orderly stop; raises SetupProblem when there was something wrong."""
        self._look_at_machine()
        try:
            with self._supervisor:
                self._start_services()
                self._prepare()
                self._start_processes()
                self._watch()
        finally:
            self._run_file.unlink(missing_ok=True)
            self._lock.release()
            self._show_admin_once()

    @property
    def _run_file(self) -> Path:
        return self._options.var / "run.json"

    # --- before anything runs ---------------------------------------------------------------------

    def _look_at_machine(self) -> None:
        var = self._options.var
        # PostgreSQL's user must be able to pass; what is secret has its own mode.
        make_home(var, 0o711)
        holder = self._lock.acquire(f"process {os.getpid()} at {self._options.address}")
        if holder is not None:
            raise SetupProblem(
                f"It is running already: {holder}. Use that one, stop it with Ctrl-C where it runs "
                "(or kill it by that number), or start a second one with data of its own: "
                "HEARTH_VAR=/another/directory PORT=8100 make run."
            )
        self._run_file.unlink(missing_ok=True)  # of one that was killed
        check_ports(self._options)
        require_free_space(var, RUNNING_BYTES, "running")

    # --- services ---------------------------------------------------------------------------------

    def _start_services(self) -> None:
        self._environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": "chatproject.settings",
            "MASTER_KEYS": os.environ.get("MASTER_KEYS") or master_keys(self._options.var),
            "STATIC_ROOT": os.environ.get("STATIC_ROOT") or str(self._options.var / "static"),
            # Links in mails; and the mails themselves, where no mail server is named.
            "SITE_URL": os.environ.get("SITE_URL") or self._options.address,
            "EMAIL_ON_CONSOLE": os.environ.get("EMAIL_ON_CONSOLE") or "1",
            "WORKER_GRACE_S": os.environ.get("WORKER_GRACE_S") or WORKER_GRACE_S,
            # On a laptop as root Celery's warning is true and of no use; in production nobody is.
            "PYTHONWARNINGS": "ignore:You're running the worker with superuser",
        }
        if not is_set(self._environment, "SECRET_KEY"):
            self._environment["SECRET_KEY"] = secret_key(self._options.var)
        if self._reload:
            self._environment.setdefault("DEBUG", "1")
        self._start_postgres()
        self._start_valkey()
        self._start_engine()

    def _start_postgres(self) -> None:
        if not is_set(self._environment, "DATABASE_URL"):
            self._console.say("Starting PostgreSQL")
            postgres = EmbeddedPostgres(self._options.var)
            if not postgres.home.is_relative_to(self._options.var):
                self._console.say(f"Its data is in {postgres.home}: its user cannot pass to here")
            self._supervisor.add(postgres, DATABASE_STAGE)
            self._environment["DATABASE_URL"] = postgres.url
            if not self._environment.get("KEYS_DATABASE_URL"):
                self._environment["KEYS_DATABASE_URL"] = postgres.create_database(KEYS_DATABASE)
        elif not self._environment.get("KEYS_DATABASE_URL"):
            raise SetupProblem(
                "With a DATABASE_URL of yours, set KEYS_DATABASE_URL too: an empty database of its "
                "own, on the same server or another, for the keys that open people's texts "
                "(docs/sealing.md)."
            )

    def _start_valkey(self) -> None:
        if not is_set(self._environment, "REDIS_URL"):
            self._console.say("Starting Valkey")
            valkey = EmbeddedValkey(self._options.var)
            self._supervisor.add(valkey, REDIS_STAGE)
            self._environment["REDIS_URL"] = valkey.url
            # Another database: emptying the cache must not empty the token logs.
            self._environment.setdefault("CACHE_URL", valkey.database_url(1))

    def _start_engine(self) -> None:
        options = self._options
        if options.engine == "own":
            self._keep_engines(_own_profiles(self._environment))
            return
        profile: dict[str, object] = {
            "kind": options.engine,
            "url": options.engine_url,
            "api_key": self._environment.get("ENGINE_API_KEY", ""),
            "model": options.engine_model,
            "context_tokens": options.engine_context_tokens,
            "slots": options.slots,
        }
        if options.engine == "llamacpp":
            profile |= self._start_llamacpp()
        elif options.engine == "vllm":
            profile |= self._vllm_profile()
        self._keep_engines(json.dumps({POOL: profile}))

    def _keep_engines(self, text: str) -> None:
        """Start a keeper for each engine that a profile says how to start.

        To the workers these are then engines that others start: they end here, in their turn.
        """
        try:
            profiles = parse_profiles(text)
        except InvalidProfiles as problem:
            raise SetupProblem(str(problem)) from problem
        given = json.loads(text or "{}")
        for name in [name for name, profile in profiles.items() if profile.serve is not None]:
            self._supervisor.add(self._keeper(name, given[name]), ENGINE_STAGE)
            del given[name]["serve"]
        self._environment["ENGINE_PROFILES"] = json.dumps(given)
        # A file would go before the variable.
        self._environment.pop("ENGINE_PROFILES_FILE", None)

    def _keeper(self, name: str, profile: object) -> Command:
        command = self._command("engine", ["generation.engines.vllm_server", "--profile", name])
        command.env = {
            **passed_environment(self._environment),
            "PYTHONUNBUFFERED": "1",
            "ENGINE_PROFILES": json.dumps({name: profile}),
        }
        command.stop_steps = KEEPER_STOP
        return command

    def _vllm_profile(self) -> dict[str, object]:
        environment = vllm_setup.environment_directory()
        if not self._options.vllm_model and not vllm_setup.is_converted():
            convert = vllm_setup.conversion(environment, self._demo_weights())
            command = Command("model", convert, plain_environment(self._environment), CHECKOUT)
            if self._supervisor.step(command) != 0:
                raise SetupProblem("The demo model could not be converted; the lines above say why")
        return vllm_setup.profile(self._options, environment)

    def _start_llamacpp(self) -> dict[str, object]:
        """Start the engine on a free port of this machine; where and with which key it answers."""
        model = self._options.model_file or self._demo_weights()
        port, key = free_port(), secrets.token_urlsafe(24)
        self._supervisor.add(self._engine_command(model, port, key), ENGINE_STAGE)
        return {"url": f"http://127.0.0.1:{port}", "api_key": key}

    def _engine_command(self, model: Path, port: int, key: str) -> Command:
        options = self._options
        module = llamacpp_module(model, port, options.slots, options.engine_context_tokens)
        command = self._command("engine", module)
        environment = {**plain_environment(self._environment), "ENGINE_API_KEY": key}
        command.env = openmp.with_library(environment, options.var / "lib", self._console.say)
        return command

    def _demo_weights(self) -> Path:
        directory = self._options.var / "models"
        is_here = demo_model.is_here(directory)
        if not is_here and self._supervisor.step(self._fetch_command(directory)) != 0:
            raise SetupProblem("There is no model to answer with; the lines above say why.")
        return directory / demo_model.DEMO.name

    def _fetch_command(self, directory: Path) -> Command:
        """In a process of its own, so that Ctrl-C ends a long download."""
        fetch = self._command("model", ["chatproject.demo_model", str(directory)])
        fetch.env = plain_environment(self._environment, network=True)
        fetch.stop_steps = (StopStep(signal.SIGTERM, 2.0),)
        return fetch

    # --- preparation ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._console.say("Preparing the database and the static files")
        status = self._supervisor.step(
            self._command("prepare", ["chatproject.prepare"]), self._take_admin_line
        )
        if status != 0:
            raise SetupProblem(
                "The database or the static files could not be prepared; the lines above say why. "
                "If they name a host: is the server in DATABASE_URL or REDIS_URL running?"
            )
        write_private(self._run_file, json.dumps(self._own_environment()))

    def _take_admin_line(self, line: str) -> bool:
        """Kept for the box: a password among the lines of the start would be overlooked."""
        if not line.startswith(ADMIN_MARK):
            return False
        said = line.removeprefix(ADMIN_MARK)
        if ":" in said:  # not "There is an administrator already."
            self._admin_lines.append(said)
        return True

    def _own_environment(self) -> dict[str, str]:
        own = {k: v for k, v in self._environment.items() if os.environ.get(k) != v}
        return {**own, RUN_PID: str(os.getpid())}

    # --- the product ------------------------------------------------------------------------------

    def _start_processes(self) -> None:
        """What a first message needs. The rest waits until the page answers: it is there sooner
        so.
        """
        for worker in self._gpu_workers():
            self._supervisor.add(worker, WORKER_STAGE)
            self._rolling.append((worker, partial(self._await_replica, worker)))
        for port, web in self._web_processes():
            self._supervisor.add(web, WEB_STAGE)
            self._rolling.append((web, partial(self._await_answer, port)))

    def _start_the_rest(self) -> None:
        for command in self._other_workers():
            self._supervisor.add(command, WORKER_STAGE)
            self._rolling.append((command, lambda: True))

    def _gpu_workers(self) -> Iterator[Command]:
        for number, slots in enumerate(self._options.worker_slots, start=1):
            replica = f"{POOL}-{number}"
            name = "gpu" if self._options.workers == 1 else f"gpu {number}"
            command = self._product(name, gpu_worker_module(POOL, slots, f"gpu-{replica}"))
            command.env = {**self._environment, **gpu_worker_environment(POOL, replica)}
            yield command

    def _other_workers(self) -> Iterator[Command]:
        yield self._product("chores", chores_worker_module())
        yield self._product("beat", beat_module(self._options.var / "beat-schedule"))

    def _web_processes(self) -> Iterator[tuple[int, Command]]:
        for index, port in enumerate(self._options.ports, start=1):
            name = "web" if len(self._options.ports) == 1 else f"web {index}"
            command = self._product(name, web_module(self._options.host, port))
            command.stop_steps = WEB_STOP
            command.many_files = True
            yield port, command

    def _product(self, name: str, module: list[str]) -> Command:
        command = self._command(name, module)
        command.stop_steps = WORKER_STOP
        command.reload = self._reload
        return command

    def _command(self, name: str, module: list[str]) -> Command:
        return Command(name, [sys.executable, "-m", *module], self._environment, CHECKOUT)

    # --- running ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        changes = source_changes(_source_directories()) if self._reload else None

        def on_tick() -> None:
            self._ready.look()
            if changes is not None and next(changes):
                self._console.say("The source has changed: restarting")
                self._supervisor.restart(_reloads)
            if self._supervisor.take_restart():
                self._roll()

        self._supervisor.run(on_tick)

    def _roll(self) -> None:
        """One process after the other: answers go on at those that are there."""
        self._console.say("Restarting one process after the other")
        try:
            self._prepare()
        except SetupProblem as problem:
            self._console.say(f"Nothing was restarted. {problem}")
            return
        for command, is_ready in self._rolling:
            self._supervisor.restart(partial(operator.is_, command))
            if not is_ready():
                self._console.say(f"{command.name} does not get ready: the others stay as they are")
                return
        self._console.say("All of them were restarted")

    def _await_replica(self, worker: Command) -> bool:
        words = ["await_replica", worker.env["GPU_REPLICA"], "--patience-s", str(ROLL_PATIENCE_S)]
        return self._supervisor.step(self._command("gpu", ["django", *words])) == 0

    def _await_answer(self, port: int) -> bool:
        return self._supervisor.wait(partial(answers, self._options, port), ROLL_PATIENCE_S)

    def _announce(self) -> None:
        lines = [f"Ready: {self._options.address}"]
        if self._options.host not in LOOPBACK and not os.environ.get("ALLOWED_HOSTS"):
            lines.append("To be reached by other names, set ALLOWED_HOSTS=name,other.name")
        self._console.box([*lines, *self._admin_lines, "Ctrl-C ends everything; the data stays."])
        self._admin_lines = []

    def _show_admin_once(self) -> None:
        """A one-time password is never said again: not even an early end may swallow it."""
        if self._admin_lines:
            self._console.box(self._admin_lines)


def _own_profiles(environment: Mapping[str, str]) -> str:
    file = environment.get("ENGINE_PROFILES_FILE")
    try:
        return Path(file).read_text() if file else environment.get("ENGINE_PROFILES", "")
    except OSError as error:
        raise SetupProblem(f"ENGINE_PROFILES_FILE={file}: {error.strerror}.") from error


def _reloads(service: Service) -> bool:
    return isinstance(service, Command) and service.reload


def _source_directories() -> list[Path]:
    """The packages of the checkout: not var/, whose files change all the time."""
    return sorted(path.parent for path in CHECKOUT.glob("*/__init__.py"))


def restart(options: Options) -> None:
    """Ask what is running to restart its processes in turns; it says there how that goes."""
    pid = _running(options).get(RUN_PID)
    if pid is None:
        raise SetupProblem("What is running is of an older version: end it and start `make run`.")
    os.kill(int(pid), signal.SIGUSR1)


def manage(options: Options, arguments: list[str]) -> None:
    """Replace this process by manage.py with the addresses and keys of what is running."""
    environment: Mapping[str, str] = {**os.environ, **_running(options)}
    command = [sys.executable, str(CHECKOUT / "manage.py"), *arguments]
    os.execve(sys.executable, command, dict(environment))  # noqa: S606


def _running(options: Options) -> dict[str, str]:
    """What run.json says of what is running; raises SetupProblem where nothing is."""
    file = options.var / "run.json"
    lock = HomeLock(options.var / "run.lock")
    # A file may be left of a run that was killed; the lock is not.
    if not file.exists() or lock.acquire() is None:
        raise SetupProblem(
            "Nothing is running from this directory: start `make run` in another terminal first. "
            "(With services of your own, use `.venv/bin/python manage.py` and your environment.)"
        )
    running: dict[str, str] = json.loads(file.read_text())
    return running


def check_python() -> None:
    """Raise SetupProblem on a Python or a system that this was never tried on."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        raise SetupProblem(
            f"This is Python {sys.version_info[0]}.{sys.version_info[1]}, and 3.11, 3.12 or 3.13 "
            "is "
            "needed. Remove .venv and run `make setup PYTHON=python3.13` (or another of them)."
        )
    if sys.platform != "linux":
        raise SetupProblem(
            "`make run` starts Linux programs and ties them to its life in Linux' way. On another "
            "system use a Linux container or virtual machine."
        )


def _paragraph(problem: SetupProblem) -> str:
    """Wrapped for a terminal; indented lines (a log's last words) stay as they are."""
    lines = str(problem).split("\n")
    return "\n".join(x if x.startswith(" ") else textwrap.fill(x, 96) for x in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chatproject.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--reload", action="store_true", help="restart on changes of the source")
    parser.add_argument("--restart", action="store_true", help="restart what is running, in turns")
    parser.add_argument("--manage", nargs=argparse.REMAINDER, help="run manage.py with these words")
    arguments = parser.parse_args()
    try:
        check_python()
        options = read_options(os.environ)
        if arguments.manage is not None:
            manage(options, arguments.manage)
        if arguments.restart:
            restart(options)
            return 0
        Run(options, reload=arguments.reload, console=Console()).go()
    except SetupProblem as problem:
        sys.stderr.write(f"\n{_paragraph(problem)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
