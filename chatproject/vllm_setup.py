"""`make run ENGINE=vllm`: where its environment and model are, and the profile that starts it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from chatproject.demo_model import DEMO
from chatproject.embedded.problems import SetupProblem
from chatproject.run_options import CHECKOUT, Options
from generation.engines.profiles import SOCKET_BYTES_MAX

LINK = CHECKOUT / ".venv-vllm"
CONVERTER = CHECKOUT / "scripts" / "convert_demo_weights.py"
# What the converter writes last.
CONVERTED_MARK = "converted.json"
# On a CPU: memory for keys and values in GiB, and no minutes of compiling at each start.
CPU_VARIABLES = {"VLLM_CPU_KVCACHE_SPACE": "1"}
CPU_ARGUMENTS = ("--enforce-eager",)
# There it takes all the cores it is given for as long as it writes, and its processes wait for each
# other without sleeping. On two cores a process that mostly sleeps got the CPU up to 3.1 s late
# beside it (four minutes of eight answers at once), and with this up to 0.17 s.
CPU_NICE = 10
CPU_INFO = Path("/proc/cpuinfo")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def environment_directory() -> Path:
    """The environment that vLLM runs in. Raises SetupProblem where it is not made."""
    directory = LINK.resolve()
    if not (directory / ".complete").exists():
        raise SetupProblem(
            "vLLM is not installed here. `make run ENGINE=vllm` does that first; by itself: "
            "`.venv/bin/python scripts/vllm_env.py`."
        )
    return directory


def demo_directory() -> Path:
    """The demo model as vLLM reads it: in the user's cache, since it is made from fixed bytes and a
    second clone need not make it again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "hearth" / f"demo-{DEMO.sha256[:12]}-bf16"


def is_converted() -> bool:
    return (demo_directory() / CONVERTED_MARK).exists()


def conversion(environment: Path, weights: Path) -> list[str]:
    """The command that makes `demo_directory` from the verified file."""
    python = str(environment / "bin" / "python")
    return [python, str(CONVERTER), str(weights), DEMO.sha256, str(demo_directory())]


# A GPU that says nothing for a second hangs; a CPU reads a long prompt for half a minute.
GPU_SILENCE_S = 1
CPU_SILENCE_S = 30


def profile(options: Options, environment: Path) -> dict[str, object]:
    """What ENGINE_PROFILES says of this engine, its start included."""
    on_cpu = options.device == "cpu"
    return {
        "url": f"unix://{socket_path(options.var)}",
        "silence_s": CPU_SILENCE_S if on_cpu else GPU_SILENCE_S,
        "options": {"priority_scheduling": True},
        "serve": {
            "command": [str(environment / "bin" / "python"), str(environment / "bin" / "vllm")],
            "model": options.vllm_model or str(demo_directory()),
            "dtype": _cpu_dtype() if on_cpu else "auto",
            "tensor_parallel": options.tensor_parallel,
            "arguments": [*(CPU_ARGUMENTS if on_cpu else ()), *options.engine_arguments],
            "environment": _variables() if on_cpu else {},
            "nice": CPU_NICE if on_cpu else 0,
        },
    }


def _cpu_dtype() -> str:
    """bfloat16 where the CPU computes with it. Elsewhere that is emulated: a prompt of 256 tokens
    takes six times as long as in float32 (measured), which costs twice the memory."""
    try:
        flags = CPU_INFO.read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        flags = []
    return "bfloat16" if BF16_FLAGS & set(flags) else "float32"


def _variables() -> dict[str, str]:
    return {name: os.environ.get(name) or value for name, value in CPU_VARIABLES.items()}


def socket_path(var: Path) -> Path:
    """In the data directory, or, where that has too long a name for a socket, in a private one."""
    path = var / "engines" / "demo.sock"
    if len(os.fsencode(path)) <= SOCKET_BYTES_MAX:
        return path
    name = hashlib.sha256(os.fsencode(var)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"hearth-{os.geteuid()}-{name}" / "demo.sock"
