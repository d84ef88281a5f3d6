"""The GPU service of this process, for the Celery tasks that run in it."""

from __future__ import annotations

from dataclasses import dataclass

from generation.worker.service import Service
from generation.worker.thread import LoopThread


@dataclass(frozen=True, slots=True)
class Gpu:
    """A service and the thread of its loop."""

    thread: LoopThread
    service: Service


_gpu: Gpu | None = None


def gpu() -> Gpu | None:
    """None in a process that is no GPU worker, and before its start and after its end."""
    return _gpu


def set_gpu(value: Gpu | None) -> None:
    """Only the bootstep sets it."""
    global _gpu
    _gpu = value
