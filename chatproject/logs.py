"""Log lines for people, with a key for machines, and without what anybody wrote."""

from __future__ import annotations

import logging
import traceback
from types import TracebackType
from typing import Any

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class QuietFormatter(logging.Formatter):
    """One line a record: time, level, logger, text, and `action=…` where the code gave one.

    Of an exception only its kind and the places it passed are written: its text may quote what
    somebody wrote (PostgreSQL's errors quote rows).
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        action = getattr(record, "action", None)
        line = super().formatMessage(record)
        return f"{line} action={action}" if action else line

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - logging's name
        kind, _, places = ei
        name = kind.__name__ if kind else "no exception"
        return f"{name}\n{''.join(traceback.format_tb(places))}".rstrip()


class NoAddresses(logging.Filter):
    """Drops uvicorn's line for each socket: it holds the whole address, and so whatever a client
    has wrongly put there, an API token perhaps.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return '"WebSocket %s"' not in str(record.msg)


def logging_config(level: str) -> dict[str, Any]:
    """`LOGGING` for Django: everything to standard error, as supervisors and containers expect."""
    chatty = {"level": "WARNING"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"no addresses": {"()": "chatproject.logs.NoAddresses"}},
        "formatters": {"quiet": {"()": "chatproject.logs.QuietFormatter"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "quiet"}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            # Django's own handlers would send errors by e-mail, and print them only with DEBUG.
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            "django.server": {"handlers": [], "propagate": True},
            "uvicorn.error": {"filters": ["no addresses"]},
            "httpx": chatty,
            "httpcore": chatty,
            # Two lines for each ticket, which say nothing about the run.
            "celery.app.trace": chatty,
            "celery.worker.strategy": chatty,
            "celery.beat": chatty,
        },
    }
