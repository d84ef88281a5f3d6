"""The product with a clock at the steps of an answer: `application` for a web process, `app` for a
worker. Each step is a line in the file that TRACE_FILE names: seconds, process, step.

Functions are wrapped from outside; the product itself knows nothing of it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.support.traced_steps import STEPS

_file = os.open(os.environ["TRACE_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(step: str) -> None:
    if step:
        os.write(_file, f"{time.monotonic():.6f} {step}\n".encode())


def _wrapped(function: Callable[..., Any], enter: str, leave: str) -> Callable[..., Any]:
    @functools.wraps(function)
    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        note(enter)
        found = await function(*args, **kwargs)
        note(leave)
        return found

    @functools.wraps(function)
    def synchronous(*args: Any, **kwargs: Any) -> Any:
        note(enter)
        found = function(*args, **kwargs)
        note(leave)
        return found

    return asynchronous if inspect.iscoroutinefunction(function) else synchronous


def _wrap(place: str, enter: str, leave: str) -> None:
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *names, last = path.split(".")
    for name in names:
        owner = getattr(owner, name)
    setattr(owner, last, _wrapped(getattr(owner, last), enter, leave))


def _trace(modules: tuple[str, ...]) -> None:
    for place, enter, leave in STEPS:
        if place.startswith(modules):
            _wrap(place, enter, leave)


def _set_up() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatproject.settings")
    django.setup(set_prefix=False)


_set_up()
if "celery" in sys.argv[0]:
    from chatproject.celery import app as app

    _trace(("generation.worker", "generation.orchestrator", "generation.token_log"))
else:
    from chatproject.asgi import application as application

    _trace(
        (
            "chatproject",
            "generation.views",
            "generation.begin",
            "generation.scheduler",
            "generation.gateway",
            "generation.token_log.log:TokenLogSync",
        )
    )
