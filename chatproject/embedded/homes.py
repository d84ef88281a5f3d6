"""Directories that embedded services live in: who may reach them, and who holds them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path
from typing import IO

from chatproject.embedded.problems import SetupProblem
from chatproject.embedded.processes import Account

# Where root's services live when their user cannot pass the directories above the checkout.
SYSTEM_HOME = Path("/var/lib/hearth")


def reachable_home(wanted: Path, account: Account | None) -> Path:
    """`wanted`, or a directory under SYSTEM_HOME where `account` may not pass `wanted`'s parents.

    Root's home has mode 700 on most machines; widening it for a database would be wrong. A file
    beside `wanted` remembers where: whoever removes the data directory starts anew, as expected.
    """
    wanted = wanted.resolve()
    if account is None or all(_may_pass(parent, account) for parent in wanted.parents):
        return wanted
    pointer = wanted.with_name(f"{wanted.name}.elsewhere")
    if not pointer.exists():
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.write_text(str(SYSTEM_HOME / f"{wanted.name}-{secrets.token_hex(6)}"))
    return Path(pointer.read_text())


def _may_pass(directory: Path, account: Account) -> bool:
    if not directory.exists():
        return True  # made by us, with a mode that lets pass
    status = directory.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def make_home(home: Path, mode: int = 0o700) -> None:
    """Make the directory with that mode, its parents open to pass; one that is there is left as it
    is.

    HEARTH_VAR may name a directory that others use: /tmp with another mode breaks the machine.
    """
    try:
        for parent in reversed([p for p in home.parents if not p.exists()]):
            parent.mkdir()
            parent.chmod(0o755)  # whatever the umask says
        if not home.exists():
            home.mkdir(mode=0o700)
            home.chmod(mode)
        elif not (home.is_dir() and os.access(home, os.R_OK | os.W_OK | os.X_OK)):
            raise PermissionError(home)
    except OSError as error:
        raise SetupProblem(
            f"{home} cannot be made or written ({error.strerror or 'permission denied'}). If an "
            "earlier "
            "run was started as root, start it as root again or remove that directory (its data is "
            "lost then); or put the data elsewhere with HEARTH_VAR=/another/directory."
        ) from error


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a plain file of ours; a symbolic link is refused, never followed.

    Where a directory once belonged to a server's user, what looks like a log may lead elsewhere.
    """
    try:
        # Without O_NONBLOCK a planted FIFO would hold us for ever.
        found = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise SetupProblem(_no_plain_file(path)) from error
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise SetupProblem(_no_plain_file(path))
    return found


def _no_plain_file(path: Path) -> str:
    return (
        f"{path} is not a plain file, so it was not made here. Find out who did that, remove it "
        "and start again."
    )


def read_own(path: Path, limit_bytes: int = 4096) -> str:
    """The beginning of a plain file; raises as `open_own`, and OSError."""
    with os.fdopen(open_own(path, os.O_RDONLY), errors="replace") as file:
        return file.read(limit_bytes)


class HomeLock:
    """An exclusive hold on a directory, given back by the kernel when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self, note: str = "") -> str | None:
        """None when it is ours now (or was already); else the note of the process that holds it."""
        if self._file is not None:
            return None
        file = os.fdopen(open_own(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644), "a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            with file:
                return file.read(200) or "another process"
        file.truncate(0)
        file.write(note or f"process {os.getpid()}")
        file.flush()
        self._file = file
        return None

    def release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(0)
            self._file.close()
            self._file = None
