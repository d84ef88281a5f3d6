"""libgomp.so.1, which the embedded engine needs and a minimal Debian lacks.

Without root it can come from the package index: scikit-learn's wheels carry a copy. It is taken out
of the wheel as a file; the package itself is never installed. Only the engine's process is told
where it is.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from chatproject.embedded.problems import SetupProblem
from chatproject.run_support import plain_environment

SONAME = "libgomp.so.1"
REQUIREMENT = "scikit-learn==1.9.1"
# Always this one wheel, whatever Python runs us: its copy is the one with the hash below.
WHEEL_TAGS = ("--python-version", "3.11", "--platform", "manylinux_2_28_x86_64")
MEMBER_PREFIX = "scikit_learn.libs/libgomp-"
SHA256 = "a43904e4fa297301d4640dc1bb3c8a3480b406f99e498eba9b1914b68aab604a"
PATIENCE_S = 300.0


def is_installed() -> bool:
    """Whether the machine has it."""
    try:
        ctypes.CDLL(SONAME)
    except OSError:
        return False
    return True


def with_library(
    environment: Mapping[str, str], directory: Path, say: Callable[[str], None]
) -> dict[str, str]:
    """`environment`, in which a process finds libgomp.so.1 where the machine itself has none.

    Raises SetupProblem where it cannot be had.
    """
    if is_installed():
        return dict(environment)
    library = str(library_directory(directory, say))
    others = environment.get("LD_LIBRARY_PATH")
    return {**environment, "LD_LIBRARY_PATH": f"{library}:{others}" if others else library}


def library_directory(directory: Path, say: Callable[[str], None]) -> Path:
    """A directory under `directory` that holds libgomp.so.1, for LD_LIBRARY_PATH.

    Raises SetupProblem where it cannot be had.
    """
    library = directory / SONAME
    if not library.exists():
        say(f"{SONAME} is not installed; taking the copy in {REQUIREMENT} (9 MB)")
        directory.mkdir(parents=True, exist_ok=True)
        try:
            _fetch(library)
        except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
            raise SetupProblem(
                f"The engine needs {SONAME}, which is not installed here, and no copy could be "
                "fetched "
                f"({error}). Install it (Debian: apt-get install libgomp1), or use an engine of "
                "your own: "
                "ENGINE=openai ENGINE_URL=http://host:port/v1 make run."
            ) from error
    return directory


def _fetch(library: Path) -> None:
    if platform.machine() != "x86_64":
        raise OSError(f"no copy is known for {platform.machine()}")
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        content = _read_member(_download(Path(directory)))
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise OSError("the copy has not the pinned SHA-256")
    fresh = library.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.chmod(0o755)
    fresh.replace(library)


def _download(directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", *WHEEL_TAGS, "--dest", str(directory), REQUIREMENT]
    environment = plain_environment(os.environ, network=True)
    subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, env=environment)
    return next(directory.glob("*.whl"))


def _read_member(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if member.filename.startswith(MEMBER_PREFIX) and member.file_size < 2**20:
                return archive.read(member)
    raise OSError("the wheel does not hold it any more")
