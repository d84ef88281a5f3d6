"""Child processes that end with their parent, whatever ends the parent.

Each child gets a session of its own, so that a terminal's Ctrl-C reaches only us, and asks the
kernel for a signal when we die (PR_SET_PDEATHSIG), so that even `kill -9` of the parent leaves no
orphan.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec a child may only do what needs no lock.
_libc = ctypes.CDLL(None, use_errno=True)

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Account:
    """Another user of this machine, for what refuses to run as root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class StopStep:
    """Send `signal`, then give the process `patience_s` to end."""

    signal: signal.Signals
    patience_s: float


def unprivileged_account() -> Account | None:
    """`nobody` where we are root, else None (no change of user is needed, nor possible)."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def spawn(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    death_signal: signal.Signals = signal.SIGKILL,
    account: Account | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own that gets `death_signal` when we die.

    Only from the main thread: the kernel sends the death signal when the *thread* that forked ends.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "start children from the main thread: they end with the thread that forks"
        )
    return subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        # Runs after the change of user, which would clear the death signal.
        preexec_fn=_tie_to_parent(os.getpid(), death_signal),
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=() if account else None,
    )


def _tie_to_parent(parent_pid: int, death_signal: signal.Signals) -> Callable[[], None]:
    def in_child() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent died before the kernel knew of our wish
            os._exit(1)

    return in_child


def raise_file_limit(pid: int) -> None:
    """Lift a process's soft limit of open files to its hard one; nothing where it has ended."""
    with contextlib.suppress(OSError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; then what it may have left in its process group is killed, and it is
    reaped.
    """
    if process.returncode is not None:
        return True
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return False
    # Before it is reaped, or the number of the group may already be somebody else's.
    signal_group(process, signal.SIGKILL)
    process.wait()
    return True


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send to the whole group of a process that has not been reaped; nothing where it has been."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send to the process itself; nothing where it has ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def stop(process: subprocess.Popen[bytes], steps: Sequence[StopStep]) -> None:
    """Take the steps one after the other until the process has ended; SIGKILL where none helped."""
    for step in steps:
        send(process, step.signal)
        if wait_until(lambda: has_ended(process), step.patience_s):
            return
    signal_group(process, signal.SIGKILL)
    wait_until(lambda: has_ended(process), 30)


def wait_until(condition: Callable[[], bool], patience_s: float) -> bool:
    """Poll until the condition holds; False where it did not in time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def children_of(pid: int) -> list[int]:
    """Process ids of the children that a (single-threaded) process has now."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether there is such a process, zombies not counted."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
