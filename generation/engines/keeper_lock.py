"""Who keeps the engine at a socket: one keeper at most, known to everybody by a lock.

Beside `engine.sock` lie `engine.sock.lock`, held by the keeper while it lives, and
`engine.sock.cwd`, the directory that the engine's processes work in. Both say who is who without
trusting a number: the kernel lets a dead keeper's lock go, and a process that works in that
directory is of this engine. `engine.sock.users` is shared by the workers that look after it.
(vLLM's processes rename themselves, which overwrites what /proc shows of their environment.)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

RECORD_BYTES_MAX = 4096
POLL_S = 0.05
LOCK_PATIENCE_S = 0.5


class UnsafeDirectory(Exception):
    """The socket's directory belongs to somebody else, or others may write into it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one engine lives."""

    socket: Path

    @property
    def lock(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.lock")

    @property
    def users(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.users")

    @property
    def cwd(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.cwd")

    @property
    def log(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.log")

    def check(self) -> None:
        """Whoever may put another socket here reads every prompt, and whoever may put another lock
        here has us signal any process of ours.

        Raises UnsafeDirectory; FileNotFoundError where there is no directory yet, OSError.
        """
        directory = self.socket.parent
        status = directory.stat()
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafeDirectory(
                f"{directory} must belong to this user, and nobody else may write into it."
            )

    def make(self) -> None:
        """The directories, ours alone. Raises UnsafeDirectory, OSError."""
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.check()
        self.cwd.mkdir(mode=0o700, exist_ok=True)


@dataclass(frozen=True, slots=True)
class Keeper:
    """What a keeper writes into its lock: itself, and which command line it keeps running."""

    pid: int
    started: str
    fingerprint: str

    def write(self) -> str:
        return f"{self.pid} {self.started} {self.fingerprint}\n"


def read_keeper(text: str) -> Keeper | None:
    """None where the text is no record: a keeper that has only just taken the lock."""
    words = text.split()
    if len(words) != 3 or not (words[0].isascii() and words[0].isdigit()) or len(words[0]) > 9:
        return None
    return Keeper(int(words[0]), words[1], words[2])


class KeeperLock:
    """The lock file, open. Held until `release` or this process' end."""

    def __init__(self, place: Place) -> None:
        self._path = place.lock
        self._descriptor: int | None = None

    def acquire(self, fingerprint: str) -> bool:
        """Take it and write who we are; False where a living keeper holds it."""
        # Not inherited by the engine: the lock tells of the keeper alone.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # For a moment: whoever asks for the holder has it for an instant, too.
        if not _lock(descriptor, fcntl.LOCK_EX, LOCK_PATIENCE_S):
            os.close(descriptor)
            return False
        keeper = Keeper(os.getpid(), start_time(os.getpid()), fingerprint)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, keeper.write().encode(), 0)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class UserLock:
    """This process' word that it needs the engine; the kernel takes it back at its end."""

    def __init__(self, place: Place) -> None:
        self._path = place.users
        self._descriptor: int | None = None

    def join(self) -> bool:
        """Be one of its users; False while somebody who is the last of them stops it."""
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
            if not _lock(descriptor, fcntl.LOCK_SH, patience_s=0):
                os.close(descriptor)
                return False
            self._descriptor = descriptor
        return True

    def is_last(self) -> bool:
        """Whether nobody else needs it; then nobody can join before `leave`.

        Of two who ask at once, one at most is told so. Whoever is not need not be a user any more.
        """
        if not self.join() or self._descriptor is None:
            return False
        return _lock(self._descriptor, fcntl.LOCK_EX, patience_s=0)

    def leave(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int, kind: int, patience_s: float) -> bool:
    deadline_s = time.monotonic() + patience_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)


def holder(place: Place) -> Keeper | None:
    """The keeper that holds the lock now; None where nobody does.

    The record of one that has only just taken the lock is still empty: then its pid is 0.
    Raises UnsafeDirectory where somebody else may have written it, OSError.
    """
    try:
        place.check()
        descriptor = os.open(place.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise UnsafeDirectory(f"{place.lock} must belong to this user.")
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, RECORD_BYTES_MAX, 0).decode("ascii", "replace")
        return read_keeper(text) or Keeper(0, "", "")
    finally:
        os.close(descriptor)
    return None


def start_time(pid: int) -> str:
    """When a process began, in clock ticks since this boot; "" where there is none.

    With it, a number that another process has got since is told from the one that was meant.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name in parentheses may hold anything, more parentheses too.
    return text.rpartition(")")[2].split()[19]


def signal_keeper(place: Place, number: signal.Signals) -> bool:
    """Send to the keeper of this place; False where there is none.

    Through a pidfd whose start time is checked after it is open: a recycled pid is never signalled.
    """
    keeper = holder(place)
    if keeper is None or keeper.pid == 0:
        return False
    return _signal(keeper.pid, number, lambda: start_time(keeper.pid) == keeper.started)


def _signal(pid: int, number: signal.Signals, is_the_one: Callable[[], bool]) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # From here on the pid cannot come to mean another process without our noticing.
        if not is_the_one():
            return False
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


# --- the engine's processes -----------------------------------------------------------------------


def at_work(place: Place) -> list[int]:
    """Processes of this place's engine: they work in its directory, whoever started them."""
    return [pid for pid in _processes() if _works_in(pid, place.cwd)]


def _processes() -> list[int]:
    own = os.getpid()
    return [int(e.name) for e in os.scandir("/proc") if e.name.isdigit() and int(e.name) != own]


def _works_in(pid: int, directory: Path) -> bool:
    try:
        # Not by name: /proc tells it without the links that ours may have.
        return Path(f"/proc/{pid}/cwd").samefile(directory)
    except OSError:
        return False  # another user's, or gone


def end_all(place: Place, patience_s: float) -> bool:
    """End what is left of an engine: SIGTERM, then SIGKILL. False where something stays."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline_s = time.monotonic() + patience_s
        for pid in at_work(place):
            _signal(pid, number, partial(_works_in, pid, place.cwd))
        while at_work(place):
            if time.monotonic() > deadline_s:
                break
            time.sleep(POLL_S)
        else:
            return True
    return False


def remove_socket(place: Place) -> None:
    """A socket that nobody listens on any more: vLLM cannot bind to a name that exists."""
    with contextlib.suppress(FileNotFoundError):
        place.socket.unlink()
