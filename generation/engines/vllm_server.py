"""Keeps `vllm serve` running for one profile, on a unix socket, whoever comes and goes.

    ENGINE_PROFILES=… python -m generation.engines.vllm_server --profile NAME
    ENGINE_PROFILES=… python -m generation.engines.vllm_server --profile NAME --stop

A supervisor or a GPU worker starts it; it makes a session of its own, and there is one for each
socket. Its child is the engine, in a further session: a terminal's Ctrl-C reaches neither. An
engine that has ended is started again, with a pause that grows. SIGTERM ends the engine in its own
way (its processes have handlers of their own, and a signal to all at once would cut them short),
then the keeper; a second SIGTERM kills what is left. Where the keeper is killed, the kernel ends
the engine, and the next keeper what is left of it.

Exit status: 0 after SIGTERM, 2 for what a person must put right, 3 where another keeper is there.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from generation.engines import keeper_lock
from generation.engines.keeper_lock import Keeper, KeeperLock, Place, UnsafeDirectory
from generation.engines.niceness import stand_back, weigh_session
from generation.engines.profiles import InvalidProfiles, parse_profiles
from generation.engines.protocol import EngineProfile, ServeOptions
from generation.engines.serve import command_line, process_environment

EXIT_UNUSABLE: Final = 2
EXIT_HELD: Final = 3

BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses before an engine that keeps ending is started again. Each start loads a model."""

STEADY_AFTER_S: Final = 300.0
"""An engine that was ready for so long begins with the first pause again."""

STOP_PATIENCE_S: Final = 20.0
"""How long an engine may take to end by itself; its workers are waited for 10 s inside vLLM."""

LEFT_PATIENCE_S: Final = 10.0
TICK_S: Final = 0.5
ASK_S: Final = 2.0
SICK_S: Final = 30.0
"""An engine that says for so long that its core is dead, and does not end, is ended. (vLLM looks
for that every 5 s and ends by itself.)"""

PR_SET_PDEATHSIG: Final = 1
# Loaded before any fork: between fork and exec a child may only do what needs no lock.
_libc = ctypes.CDLL(None, use_errno=True)


class Unusable(Exception):
    """Why no engine can be kept here, in one line that says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Keep the engine until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(description="Keeps `vllm serve` running.")
    parser.add_argument("--profile", required=True, help="a name in ENGINE_PROFILES")
    parser.add_argument("--stop", action="store_true", help="end the one that runs, and wait")
    options = parser.parse_args(argv)
    try:
        profile, serve, place = _read(options.profile)
        if options.stop:
            return stop(place)
        with suppress(PermissionError):  # the leader of a group has been set apart already
            os.setsid()
        place.make()
        return EngineKeeper(profile, serve, place).keep()
    except (Unusable, UnsafeDirectory, InvalidProfiles, OSError) as error:
        say(str(error))
        return EXIT_UNUSABLE


def say(line: str) -> None:
    # Nobody may be left to read it; the engine goes on all the same.
    with suppress(OSError):
        sys.stdout.write(f"engine: {line}\n")
        sys.stdout.flush()


def _read(name: str) -> tuple[EngineProfile, ServeOptions, Place]:
    profile = parse_profiles(os.environ.get("ENGINE_PROFILES", "")).get(name)
    if profile is None:
        raise Unusable(f"ENGINE_PROFILES has no profile {name[:64]!r}.")
    if profile.serve is None or profile.socket is None:
        raise Unusable(f"profile {name!r} has no 'serve': its engine is started by others.")
    return profile, profile.serve, Place(profile.socket)


def fingerprint(profile: EngineProfile, serve: ServeOptions) -> str:
    """Differs where an engine that runs was started with other options than these."""
    what = [command_line(profile, serve), sorted(serve.environment.items()), serve.nice]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def stop(place: Place) -> int:
    """Tell the keeper to end, and wait until it has. A worker may have started the next by then."""
    deadline_s = time.monotonic() + STOP_PATIENCE_S + 2 * LEFT_PATIENCE_S
    told: Keeper | None = None
    while (keeper := keeper_lock.holder(place)) is not None and told in (None, keeper):
        if told is None and keeper.pid and keeper_lock.signal_keeper(place, signal.SIGTERM):
            told = keeper
        if time.monotonic() > deadline_s:
            raise Unusable(f"the engine at {place.socket} does not end.")
        time.sleep(TICK_S / 5)
    if told is None:
        say(f"nobody keeps an engine at {place.socket}")
    return 0


class EngineKeeper:
    """One engine at one place. `keep` returns when SIGTERM came, or where another keeper is."""

    def __init__(self, profile: EngineProfile, serve: ServeOptions, place: Place) -> None:
        self._profile = profile
        self._serve = serve
        self._place = place
        self._lock = KeeperLock(place)
        self._child: subprocess.Popen[bytes] | None = None
        self._ending = False
        self._hurried = False
        self._deaths = 0
        self._began_s = 0.0
        self._ready_s = 0.0
        self._sick_since_s = 0.0

    def keep(self) -> int:
        if not self._lock.acquire(fingerprint(self._profile, self._serve)):
            say(f"another keeper has the engine at {self._place.socket}")
            return EXIT_HELD
        self._hear_signals()
        try:
            self._keep()
        finally:
            self._end()
            self._lock.release()
        return 0

    def _hear_signals(self) -> None:
        # A terminal that closes or interrupts means others.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        self._hurried = self._ending
        self._ending = True

    def _keep(self) -> None:
        while not self._ending:
            self._start()
            self._watch()
            if not self._ending:
                self._pause()

    # --- one life of the engine -------------------------------------------------------------------

    def _start(self) -> None:
        # A keeper that was killed may have left an engine that is still ending, or parts of one.
        if not keeper_lock.end_all(self._place, LEFT_PATIENCE_S):
            say("processes of an earlier engine do not end; starting all the same")
        keeper_lock.remove_socket(self._place)
        say(f"starting vLLM with {self._serve.model} (a minute or more)")
        self._began_s, self._ready_s, self._sick_since_s = time.monotonic(), 0.0, 0.0
        try:
            self._child = subprocess.Popen(
                command_line(self._profile, self._serve),
                cwd=self._place.cwd,
                env=process_environment(self._profile, self._serve, os.environ),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_before_exec(os.getpid(), self._serve.nice),
            )
        except OSError as error:
            say(f"{self._serve.command[0]} cannot be started: {error.strerror}")
            return
        weigh_session(self._child.pid, self._serve.nice)

    def _watch(self) -> None:
        """Until the engine has ended, or we are told to."""
        while self._child is not None and not self._ending:
            if _has_ended(self._child):
                self._child = None
                return
            self._look()
            _sleep(TICK_S, lambda: self._ending)

    def _look(self) -> None:
        now_s = time.monotonic()
        status = ask_health(self._place.socket)
        if status == 200 and not self._ready_s:
            self._ready_s = now_s
            say(f"ready after {now_s - self._began_s:.0f} s")
        if status != 503:
            self._sick_since_s = 0.0
        elif not self._sick_since_s:
            self._sick_since_s = now_s
        elif now_s - self._sick_since_s > SICK_S and self._child is not None:
            say("its core is dead and it does not end; killing it")
            _signal_group(self._child, signal.SIGKILL)

    def _pause(self) -> None:
        # What is left of it holds the memory that the next one needs.
        keeper_lock.end_all(self._place, LEFT_PATIENCE_S)
        if self._ready_s and time.monotonic() - self._ready_s > STEADY_AFTER_S:
            self._deaths = 0
        pause_s = BACKOFF_S[min(self._deaths, len(BACKOFF_S) - 1)]
        self._deaths += 1
        say(f"vLLM has ended; again in {pause_s:g} s")
        _sleep(pause_s, lambda: self._ending)

    def _end(self) -> None:
        """In its own way, and only then with force."""
        if self._child is not None and not _has_ended(self._child):
            self._child.send_signal(signal.SIGTERM)
            say("waiting for vLLM to end")
            _sleep(STOP_PATIENCE_S, self._ended_or_hurried)
        if self._child is not None and not _has_ended(self._child):
            _signal_group(self._child, signal.SIGKILL)
            self._child.wait()
        keeper_lock.end_all(self._place, LEFT_PATIENCE_S)
        keeper_lock.remove_socket(self._place)

    def _ended_or_hurried(self) -> bool:
        return self._hurried or self._child is None or _has_ended(self._child)


def ask_health(path: Path) -> int:
    """The HTTP status of the engine's `/health`; 0 where nobody answers."""
    connection = http.client.HTTPConnection("localhost", timeout=ASK_S)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(ASK_S)
    try:
        connection.sock.connect(str(path))
        connection.request("GET", "/health")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _before_exec(parent_pid: int, nice: int) -> Callable[[], None]:
    """Ties the engine to us: SIGTERM, not SIGKILL, for it must end its own children, which would
    live on. And it stands back before it has any: they have what it has then."""

    def in_child() -> None:
        stand_back(nice)
        _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent died before the kernel knew of our wish
            os._exit(1)

    return in_child


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; then the rest of its group is killed before the number is free.

    An API server that ends leaves its core behind, and a core its workers (seen): gigabytes.
    """
    if process.returncode is not None:
        return True
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return False
    _signal_group(process, signal.SIGKILL)
    process.wait()
    return True


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _sleep(patience_s: float, enough: Callable[[], bool]) -> None:
    """Until `enough()`, at most so long. A signal only wakes a sleep that is short."""
    deadline_s = time.monotonic() + patience_s
    while not enough() and (left_s := deadline_s - time.monotonic()) > 0:
        time.sleep(min(0.1, left_s))


if __name__ == "__main__":
    sys.exit(main())
