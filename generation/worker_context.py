"""What a GPU worker gives to the orchestrations that live in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from redis.asyncio import Redis

from generation.engines import Engine, EngineProfile
from generation.scheduler import Scheduler
from generation.token_log import TokenLog

if TYPE_CHECKING:
    from generation.token_log.flusher import Flusher

# Why an orchestration is cancelled: the message of `task.cancel(...)`, which is
# `CancelledError.args[0]` in the task. Anything else, or nothing, is to be read as HANDOVER.
STOP: Final = "stop"  # somebody pressed stop: keep the text, end the run as `user_stopped`
FENCED: Final = "fenced"  # another owner has a larger epoch: write nothing any more
HANDOVER: Final = "handover"  # this worker ends: give the run back, another goes on with it
SILENT: Final = "silent"  # the engine says nothing: give the run back
UNWATCHED: Final = "unwatched"  # nobody looks and others wait: keep the text, end the run

Reason = Literal["stop", "fenced", "handover", "silent", "unwatched"]


@dataclass(slots=True)
class WorkerContext:
    """One per worker process; everything in it belongs to the worker's one event loop.

    `channel` is the worker's control channel, told to the log as the owner's. `running` holds, by
    external run id, the tasks that may be cancelled: an orchestration enters itself after its claim
    and takes itself out before it writes the finish, so that no late stop cuts a transaction.
    `handover` is set before running orchestrations are cancelled with HANDOVER. `suspect` is called
    where the engine has failed a run: why, how long (s) it is to get none, and how long it may be
    silent. `last_model` is what it was asked for last. `heard_s` is when (the loop's clock) it
    last gave a piece of any answer. `is_pressed`: somebody waits whom a slot here could serve, and
    none is free. `may_claim`: whether runs are begun here at all; not while the engine is sick, the
    replica drains, or the worker ends.

    `slots` may be used by all, `paid_burst` more by paid runs. `at_work` counts what was popped
    here and has not ended; `popping` is held while the queue is asked for more, for two that asked
    at once would each be told that there is room for one.
    """

    redis: Redis
    log: TokenLog
    flusher: Flusher
    scheduler: Scheduler
    engine: Engine
    profile: EngineProfile
    pool: str
    replica: str
    channel: str
    running: dict[str, asyncio.Task[bool]] = field(default_factory=dict)
    handover: asyncio.Event = field(default_factory=asyncio.Event)
    suspect: Callable[[str, float, float], None] = lambda _why, _hold_s, _silence_s: None
    may_claim: Callable[[], bool] = lambda: True
    last_model: str = ""
    heard_s: float = 0.0
    is_pressed: bool = False
    slots: int = 1
    paid_burst: int = 0
    at_work: int = 0
    popping: asyncio.Lock = field(default_factory=asyncio.Lock)

    def cancel(self, run: str, reason: Reason) -> bool:
        """Cancel a running orchestration; False where this worker has none of that run."""
        task = self.running.get(run)
        return task is not None and cancel_once(task, reason)


def cancel_once(task: asyncio.Task[bool], reason: Reason) -> bool:
    """Cancel a task that has not been cancelled yet; whether it is being cancelled now.

    A stop is told in several ways at once. A second cancellation while the first one closes the
    engine's request would cut the closing in two and leave the connection open for ever.
    """
    return task.cancelling() > 0 or task.cancel(reason)


def reason_of(cancelled: asyncio.CancelledError) -> Reason:
    """Why an orchestration was cancelled."""
    told = cancelled.args[0] if cancelled.args else HANDOVER
    return next((reason for reason in get_args(Reason) if reason == told), HANDOVER)
