"""PostgreSQL and Valkey as real processes: their lives, their secrets, and what a crash leaves."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from chatproject.embedded import EmbeddedPostgres, EmbeddedValkey, SetupProblem, homes
from chatproject.embedded.processes import Account, is_alive, wait_until

PATIENCE_S = 60.0
CHECKOUT = Path(__file__).parents[2]

PARENT = """
import json, signal, sys
from pathlib import Path
from chatproject.embedded import EmbeddedPostgres, EmbeddedValkey
root = Path(sys.argv[1])
postgres, valkey = EmbeddedPostgres(root, durable=False), EmbeddedValkey(root)
postgres.start()
valkey.start()
print(json.dumps([postgres.url, postgres.process.pid, valkey.process.pid]), flush=True)
signal.pause()
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that the server's user may pass: pytest's own are closed to all but its user."""
    with tempfile.TemporaryDirectory(prefix="hearth-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(scope="module")
def software() -> Iterator[Path]:
    """Root's copy of the programs, made once for the file."""
    with tempfile.TemporaryDirectory(prefix="hearth-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name) / "software"


@pytest.fixture
def postgres(root: Path, software: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(root, durable=False, software=software)
    yield server
    server.stop()


def execute(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()


def write_a_row(url: str) -> None:
    execute(url, "create table kept (word text)")
    execute(url, "insert into kept values ('naïve 👩‍👩‍👧')")


def test_data_survives_a_stop_a_crash_and_a_stale_pid_file(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    write_a_row(postgres.url)
    postgres.stop()
    postgres.start()
    postgres.kill()
    pid_file = postgres.data / "postmaster.pid"
    stale = pid_file.read_text().splitlines()
    # After a reboot the number may be that of any process: here it is this one.
    pid_file.write_text("\n".join([str(os.getpid()), *stale[1:]]) + "\n")
    postgres.start()
    assert execute(postgres.url, "select word from kept") == [("naïve 👩‍👩‍👧",)]


def test_postgres_wants_a_password_and_uses_a_locale_of_its_own(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    settings = "select current_setting('server_encoding'), datlocprovider, datlocale"
    found = execute(postgres.url, f"{settings} from pg_database where datname = 'chat'")
    assert found == [("UTF8", "b", "C.UTF-8")]
    wrong = postgres.url.replace("chat:", "chat:x", 1)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    assert postgres.process is not None
    password = (postgres.home / "password").read_bytes().strip()
    assert len(password) > 20
    assert password not in command_line(postgres.process.pid)


def test_what_people_write_does_not_reach_the_log_of_postgres(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    execute(postgres.url, "create table notes (word text primary key)")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for _ in range(2):
            try:
                connection.execute("insert into notes values (%s)", ["a very private word"])
            except psycopg.errors.UniqueViolation:
                break
    log = postgres.log.read_text()
    assert "duplicate key value" in log
    assert "private" not in log


def test_an_interrupted_initdb_is_made_anew(postgres: EmbeddedPostgres) -> None:
    (postgres.home / "data.new").mkdir(parents=True)
    (postgres.home / "data.new" / "PG_VERSION").write_text("18\n")
    postgres.data.mkdir()
    (postgres.data / "PG_VERSION").write_text("18\n")
    postgres.start()
    assert execute(postgres.url, "select 1") == [(1,)]
    assert (postgres.home / "data.unfinished" / "PG_VERSION").exists()


def test_data_of_another_version_is_refused_and_left_alone(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    postgres.stop()
    (postgres.data / "PG_VERSION").write_text("17\n")
    with pytest.raises(SetupProblem, match="written by PostgreSQL 17"):
        postgres.start()
    assert (postgres.data / "PG_VERSION").read_text() == "17\n"


def test_two_servers_on_one_directory_are_refused(postgres: EmbeddedPostgres, root: Path) -> None:
    postgres.start()
    with pytest.raises(SetupProblem, match=f"in use by process {os.getpid()}"):
        EmbeddedPostgres(root).start()
    assert execute(postgres.url, "select 1") == [(1,)]


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
def test_a_taken_port_is_named(root: Path, software: Path, kind: str) -> None:
    server: EmbeddedPostgres | EmbeddedValkey
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        if kind == "postgres":
            server = EmbeddedPostgres(root, port=port, durable=False, software=software)
        else:
            server = EmbeddedValkey(root, port=port)
        with pytest.raises(SetupProblem, match=r"did not start(.|\n)*in use"):
            server.start()
    server.start()  # and once it is free, the same object starts
    server.stop()


def test_kill_9_of_the_parent_leaves_no_server_and_no_broken_data(root: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(root)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    url, *pids = json.loads(parent.stdout.readline())
    assert all(map(is_alive, pids))
    write_a_row(url)
    parent.kill()
    parent.communicate()
    # At once, while the old server may still be on its way out: it is waited for.
    with EmbeddedPostgres(root, durable=False) as postgres:
        assert execute(postgres.url, "select count(*) from kept") == [(1,)]
    assert wait_until(lambda: not any(map(is_alive, pids)), PATIENCE_S)


def test_create_database_may_be_called_twice(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    first = postgres.create_database("second one")
    assert postgres.create_database("second one") == first
    assert execute(first, "select current_database()") == [("second one",)]


def test_where_the_server_user_cannot_pass_its_data_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    stranger = Account("stranger", uid=os.getuid() + 54321, gid=os.getgid() + 54321)
    monkeypatch.setattr(homes, "SYSTEM_HOME", Path("/somewhere/else"))
    wanted = closed / "var" / "postgres"
    away = homes.reachable_home(wanted, stranger)
    assert away.parent == Path("/somewhere/else")
    assert homes.reachable_home(wanted, stranger) == away
    assert homes.reachable_home(closed / "other" / "postgres", stranger) != away
    assert homes.reachable_home(wanted, None) == wanted
    shutil.rmtree(closed / "var")  # as one does to start anew
    assert homes.reachable_home(wanted, stranger) != away


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_as_root_a_closed_directory_above_does_no_harm(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(homes, "SYSTEM_HOME", root / "system")
    before = os.umask(0o077)
    try:
        with EmbeddedPostgres(tmp_path, durable=False) as postgres:
            assert execute(postgres.url, "select 1") == [(1,)]
            assert postgres.home.is_relative_to(root / "system")
    finally:
        os.umask(before)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_who_gets_into_the_database_cannot_plant_anything_where_root_writes(
    postgres: EmbeddedPostgres,
) -> None:
    postgres.start()
    server = postgres.data.stat().st_uid
    assert server != os.geteuid()
    inside = postgres.data / "planted"
    execute(postgres.url, f"copy (select 1) to program 'cat > {inside}'")
    assert inside.stat().st_uid == server  # so that what follows fails for its own reason
    for name in ("owner.lock", "postgres.log", "password.new", "another"):
        plant = f"cat; ln -sfn /etc/passwd {postgres.home / name}"
        with pytest.raises(psycopg.errors.ExternalRoutineException):
            execute(postgres.url, f"copy (select 1) to program '{plant}'")
    with pytest.raises(psycopg.errors.ExternalRoutineException):
        execute(postgres.url, f"copy (select 1) to program 'cat {postgres.home / 'password'}'")
    others = {path for path in postgres.home.iterdir() if path.stat().st_uid == server}
    assert others == {postgres.data}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
@pytest.mark.parametrize("name", ["owner.lock", "postgres.log", "password"])
def test_a_planted_link_is_refused_and_not_followed(
    postgres: EmbeddedPostgres, root: Path, name: str
) -> None:
    """In a home that an earlier version gave to the server's user."""
    victim = root / "victim"
    victim.write_text("what root owns")
    postgres.start()
    postgres.stop()
    server = postgres.data.stat().st_uid
    (postgres.home / name).unlink()
    (postgres.home / name).symlink_to(victim)
    os.chown(postgres.home, server, -1)
    with pytest.raises(SetupProblem, match="not a plain file"):
        postgres.start()
    assert victim.read_text() == "what root owns"
    assert victim.stat().st_uid == os.geteuid()
    (postgres.home / name).unlink()
    if name == "password":
        return  # the cluster's is lost with it
    postgres.start()
    assert postgres.home.stat().st_uid == os.geteuid()


def test_a_fifo_in_the_cluster_does_not_hold_up_the_start(postgres: EmbeddedPostgres) -> None:
    postgres.start()
    postgres.stop()
    os.mkfifo(postgres.data / "postmaster.pid")
    with pytest.raises(SetupProblem, match="not a plain file"):
        postgres.start()


@pytest.mark.parametrize("mode", [0o1777, 0o750])
def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    """HEARTH_VAR=/tmp must not close /tmp."""
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(mode)
    homes.make_home(there, 0o711)
    assert there.stat().st_mode & 0o7777 == mode
    homes.make_home(there / "new", 0o711)
    assert (there / "new").stat().st_mode & 0o7777 == 0o711


def test_valkey_wants_a_password_that_ps_does_not_show(root: Path) -> None:
    with EmbeddedValkey(root) as valkey:
        assert valkey.process is not None
        password = valkey.url.split(":")[2].split("@")[0]
        assert len(password) > 20
        assert password.encode() not in command_line(valkey.process.pid)
        stranger = redis.Redis.from_url(f"redis://127.0.0.1:{valkey.port}")
        with stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_valkey_keeps_its_address_across_a_crash_and_nothing_on_disk(root: Path) -> None:
    with EmbeddedValkey(root, max_memory_mib=64) as valkey:
        with redis.Redis.from_url(valkey.url) as client:
            client.set("key", "what a person wrote")
            settings = {**client.config_get("maxmemory*"), **client.config_get("appendonly")}
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["maxmemory"] == str(64 * 1024 * 1024)
        assert settings["appendonly"] == "no"
        before = valkey.url
        valkey.kill()
        valkey.start()
        assert valkey.url == before
        with redis.Redis.from_url(valkey.url) as client:
            assert client.get("key") is None
    assert [path.name for path in valkey.home.iterdir()] == ["valkey.log"]


def test_children_must_be_started_from_the_main_thread(root: Path) -> None:
    """They end with the thread that forks: from a short-lived thread they would die unexplained."""
    script = (
        "import sys, threading; from pathlib import Path\n"
        "from chatproject.embedded import EmbeddedValkey\n"
        "valkey = EmbeddedValkey(Path(sys.argv[1]))\n"
        "thread = threading.Thread(target=valkey.start); thread.start(); thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "start children from the main thread" in done.stderr
