"""The words of the product's own commands: `make run`, the tests' stack and the benches start the
same processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

APPLICATION: Final = "chatproject.asgi:application"

GRACE_S: Final = 10
"""How long uvicorn gives open answers at its end. Whoever stops it waits a little longer."""

# Further connections get 503 at once, before the process runs out of files or memory.
CONNECTIONS_MAX: Final = 4000

# A larger frame is not even read; and a compressor for each socket would cost more memory than all
# the rest of it.
_SOCKETS: Final = ("--ws-max-size", "4096", "--ws-per-message-deflate", "false")

# Quiet: their banners say on twenty lines what chatproject/run.py says.
CELERY_APP: Final = "chatproject"
CELERY: Final = ("celery", "--quiet", "-A")
# Workers do not look for each other: that costs a second at the start and nothing here needs it.
_WORKER: Final = ("worker", "--without-gossip", "--without-mingle", "--without-heartbeat")


def web_module(host: str, port: int, application: str = APPLICATION) -> list[str]:
    """The module of a web process and its arguments, for `python -m`."""
    return [
        *("uvicorn", application, "--host", host, "--port", str(port)),
        *("--no-access-log", "--no-proxy-headers"),
        *("--timeout-graceful-shutdown", str(GRACE_S)),
        *("--limit-concurrency", str(CONNECTIONS_MAX)),
        *_SOCKETS,
    ]


def gpu_worker_module(
    pool: str, slots: int, name: str, app: str = CELERY_APP, *, paid_burst: int = 0
) -> list[str]:
    """The module of a GPU worker and its arguments; see also `gpu_worker_environment`."""
    rest = ["-P", "custom", "-c", str(slots + paid_burst), "-Q", f"gpu.{pool}", "-n", f"{name}@%h"]
    return [*CELERY, app, *_WORKER, *rest]


def chores_worker_module() -> list[str]:
    """The module of the worker for everything that is no answer."""
    rest = ["-P", "threads", "-c", "2", "-Q", "chores", "-n", "chores@%h"]
    return [*CELERY, CELERY_APP, *_WORKER, *rest]


def beat_module(schedule: Path) -> list[str]:
    """The module of the one process that starts what is due. No pid file: after a crash its number
    may be another process's, and beat would refuse."""
    return [*CELERY, CELERY_APP, "beat", "-s", str(schedule), "--pidfile="]


def gpu_worker_environment(pool: str, replica: str, *, paid_burst: int = 0) -> dict[str, str]:
    """What a GPU worker finds in its environment beside what all processes have."""
    return {
        "GPU_POOL": pool,
        "GPU_REPLICA": replica,
        "GPU_PAID_BURST": str(paid_burst),
        "CELERY_CUSTOM_WORKER_POOL": "generation.worker.pool:TaskPool",
    }


def llamacpp_module(model: Path, port: int, slots: int, context_tokens: int) -> list[str]:
    """The module of the embedded engine and its arguments; its key is in ENGINE_API_KEY."""
    return [
        *("generation.engines.llamacpp_server", "--model", str(model), "--port", str(port)),
        *("--slots", str(slots), "--context-tokens", str(context_tokens)),
    ]
