"""Stops told directly to this worker, so that the engine hears of them within milliseconds.

At most once: a stop that is lost here is found in the reply to the run's next append.
"""

from __future__ import annotations

import logging

from generation.token_log import decode_stop
from generation.worker_context import STOP, WorkerContext

logger = logging.getLogger(__name__)


def on_control(context: WorkerContext, payload: bytes) -> None:
    """Handle one payload of the control channel. Anything that is no stop is dropped.

    The run's writer is told, as it is by the reply to an append; and the orchestration is cancelled
    if it has entered itself as one that may be.
    """
    try:
        run = decode_stop(payload)
    except ValueError:
        logger.warning("Unknown control payload", extra={"action": "control_unknown"})
        return
    context.flusher.stop(run)
    found = context.cancel(run, STOP)
    logger.info(
        "Stop told for %s",
        run,
        extra={"action": "stop_heard", "run": run, "running_here": found},
    )
