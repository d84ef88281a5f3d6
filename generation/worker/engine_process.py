"""The engine that this worker's profile says how to start: started, or attached to where it runs.

The engine belongs to a keeper (`generation.engines.vllm_server`), a process in a session of its own
that outlives this worker: an answer's worker may be replaced without the model being loaded again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from django.conf import settings

from generation.engines import EngineProfile
from generation.engines.keeper_lock import Keeper, Place, UnsafeDirectory, UserLock, holder
from generation.engines.serve import passed_environment
from generation.engines.vllm_server import (
    LEFT_PATIENCE_S,
    STOP_PATIENCE_S,
    Unusable,
    fingerprint,
)
from generation.engines.vllm_server import stop as stop_keeper

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""How often it is looked whether somebody keeps the engine."""

KEEPER_END_S: Final = STOP_PATIENCE_S + 2 * LEFT_PATIENCE_S
"""How long a keeper may take to end with its engine."""

END_S: Final = 5.0
"""And one that is killed."""

KEEPER_MODULE: Final = "generation.engines.vllm_server"

PAUSE_MAX_S: Final = 30.0
"""The longest pause between two keepers that end at once (a wrong profile, a full disk)."""


def is_kept(profile: EngineProfile) -> bool:
    """Whether the engine that this profile says how to start is kept running here."""
    if profile.serve is None or profile.socket is None:
        return False
    try:
        return holder(Place(profile.socket)) is not None
    except (OSError, UnsafeDirectory):
        return False


class EngineGuard:
    """Sees to it that a keeper runs. `look` begins and repeats what `run` does for ever."""

    def __init__(self, profile: EngineProfile) -> None:
        if profile.serve is None or profile.socket is None:
            raise ValueError("a profile without `serve` is attached to")
        self._profile = profile
        self._serve = profile.serve
        self._place = Place(profile.socket)
        self._users = UserLock(self._place)
        self._started: int | None = None
        self._pause_s = LOOK_S
        self._known: Keeper | None = None

    async def run(self) -> None:
        while True:
            pause_s = LOOK_S if self.look() else self._pause_s
            await asyncio.sleep(pause_s)

    def look(self) -> bool:
        """Whether there is a keeper; where there is none, one has been started now."""
        if self._started is not None and _has_ended(self._started):
            self._started = None
        try:
            keeper = holder(self._place)
            if keeper is None:
                self._place.make()
            if not self._users.join():
                return False  # the last one who needed it stops it just now
        except (OSError, UnsafeDirectory) as error:
            self._note_not_started(error)
            return False
        if keeper is not None:
            self._pause_s = LOOK_S
            self._note(keeper)
            return True
        if self._started is None:
            self._start()
        return False

    def leave(self) -> None:
        """Need it no more; it goes on."""
        self._users.leave()

    def stop(self) -> None:
        """End the engine and its keeper, whoever has started them, and wait. Takes a while.

        Not while another worker needs it: then it goes on.
        """
        try:
            if self._users.is_last():
                self._stop()
            else:
                logger.info(
                    "The engine at %s goes on: another worker needs it",
                    self._place.socket,
                    extra={"action": "engine_shared"},
                )
        except OSError as error:
            self._note_not_stopped(error)
        finally:
            self._users.leave()

    def _stop(self) -> None:
        try:
            stop_keeper(self._place)
        except (OSError, Unusable, UnsafeDirectory) as error:
            self._note_not_stopped(error)
        self._end_started()

    def _end_started(self) -> None:
        """Also the keeper that has not come to take its lock: nobody else could find it."""
        if self._started is None:
            return
        for number, patience_s in ((signal.SIGTERM, KEEPER_END_S), (signal.SIGKILL, END_S)):
            if self._ended_within(0):
                break
            os.kill(self._started, number)  # a child that nobody has waited for keeps its number
            if self._ended_within(patience_s):
                break
        self._started = None

    def _ended_within(self, patience_s: float) -> bool:
        deadline_s = time.monotonic() + patience_s
        while not (ended := self._started is None or _has_ended(self._started)):
            if time.monotonic() >= deadline_s:
                break
            time.sleep(0.05)
        return ended

    def _note_not_stopped(self, error: Exception) -> None:
        # The next engine is started all the same, and says so where there is no room for it.
        logger.error(
            "The engine was not stopped: %s", error, extra={"action": "engine_not_stopped"}
        )

    def _note(self, keeper: Keeper) -> None:
        """Say once whose engine it is; another one's options are not ours to correct."""
        if keeper == self._known or keeper.pid == 0:
            return
        self._known = keeper
        extra = {"action": "engine_attached", "keeper": keeper.pid}
        if keeper.fingerprint == fingerprint(self._profile, self._serve):
            logger.info("The engine's keeper is process %d", keeper.pid, extra=extra)
        else:
            logger.warning(
                "The engine at %s was started with other options; to have these, stop it: "
                "python -m generation.engines.vllm_server --profile %s --stop",
                self._place.socket,
                self._profile.name,
                extra=extra,
            )

    def _start(self) -> None:
        self._pause_s = self._longer_pause_s()
        try:
            self._started = _spawn(self._profile.name, self._environment(), self._place.log)
        except OSError as error:
            self._note_not_started(error)
            return
        logger.info(
            "Started a keeper for the engine, process %d; its log is %s",
            self._started,
            self._place.log,
            extra={"action": "engine_started"},
        )

    def _longer_pause_s(self) -> float:
        return min(PAUSE_MAX_S, self._pause_s * 2)

    def _note_not_started(self, error: Exception) -> None:
        self._pause_s = self._longer_pause_s()
        # What it says is for people; where it happened is not.
        logger.error(
            "No keeper for the engine could be started: %s",
            error,
            extra={"action": "engine_not_started"},
        )

    def _environment(self) -> dict[str, str]:
        """Nothing of ours but this one profile: an engine reads strangers' text."""
        own = json.loads(settings.ENGINE_PROFILES)[self._profile.name]
        return {
            **passed_environment(os.environ),
            "ENGINE_PROFILES": json.dumps({self._profile.name: own}),
        }


def _spawn(profile: str, environment: dict[str, str], log: Path) -> int:
    """Start a keeper; its pid. No Popen: a keeper is meant to go on when we have ended."""
    # The last start's words are kept; the log of one start is short, since requests are not in it.
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        # It makes a session of its own at once: neither the terminal's signals nor those to this
        # worker's group reach it from then on.
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", KEEPER_MODULE, "--profile", profile],
            {**environment, "PYTHONPATH": str(settings.BASE_DIR)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
            setsigmask=[],
        )


def _has_ended(pid: int) -> bool:
    """Whether a child of ours has; its number is free then."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
