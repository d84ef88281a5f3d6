"""Account-wide hints: they tell a user's other screens that something has changed, not what.

    hint(user_id, "run_started", conversation=conversation_id, run=run_id)

At most once: a hint may be lost, for example while Redis is away, and nobody may count on it. Sent
after the commit, from a thread of its own, so that no request and no end of a run ever waits for
Redis or fails with it. A hint holds ids and nothing that anybody wrote; clients look again.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Final, Literal
from uuid import UUID

import redis
from channels.layers import channel_layers
from django.conf import settings
from django.db import transaction
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from accounts.ids import Prefix, external_id

log = logging.getLogger(__name__)

Kind = Literal["conversation_changed", "conversation_gone", "run_started", "run_ended"]
"""conversation_changed: new, renamed, moved up, restored, another leaf or feedback;
conversation_gone: deleted or purged; the others: a run of that conversation began, or ended."""

PREFIXES: Final[Mapping[str, Prefix]] = {"conversation": "c", "run": "g"}

MAX_WAITING: Final = 1_000
"""Hints that wait for Redis; more are dropped. A healthy one takes them within milliseconds."""

BATCH: Final = 100
CONNECT_TIMEOUT_S: Final = 1.0
TIMEOUT_S: Final = 2.0
EXIT_S: Final = 4.0
"""How long the end of the process waits for what is being sent."""


def hint(user_id: UUID, kind: Kind, **ids: UUID) -> None:
    """Tell the user's open sockets once the transaction (if any) has committed. Never raises.

    `ids`: `conversation`, `run`.
    """
    named = {name: external_id(PREFIXES[name], row_id) for name, row_id in ids.items()}
    transaction.on_commit(partial(_send, user_id, {"kind": kind, **named}), robust=True)


def _send(user_id: UUID, data: dict[str, str]) -> None:
    _lane.put(channel_of(user_id), encode(user_id, data))


# --- the wire: what the default Channels layer itself would send to a group -----------------------


def group_of(user_id: UUID) -> str:
    """The group of the default Channels layer for all of a user's sockets."""
    return f"user.{user_id.hex}"


def channel_of(user_id: UUID) -> str:
    """The Redis channel in which the layer publishes what is sent to that group."""
    prefix = channel_layers["default"].prefix
    return f"{prefix}__group__{group_of(user_id)}"


def encode(user_id: UUID, data: Mapping[str, str]) -> bytes:
    """A hint as the layer's `group_send` would serialise it."""
    message = {"type": "account.hint", "user": user_id.hex, "data": dict(data)}
    payload: bytes = channel_layers["default"].serialize(message)
    return payload


def decode(payload: bytes) -> tuple[UUID, dict[str, str]]:
    """(user, data) of a hint. Raises ValueError for anything else."""
    try:
        message: dict[str, Any] = channel_layers["default"].deserialize(payload)
        return UUID(hex=message["user"]), dict(message["data"])
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError("not a hint") from problem


# --- the lane -------------------------------------------------------------------------------------


class Lane:
    """One thread that publishes what waits, many at once; what Redis does not take is dropped."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[tuple[str, bytes] | None] = queue.Queue(MAX_WAITING)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = False

    def put(self, channel: str, payload: bytes) -> None:
        """Publish it soon, or never. Never blocks."""
        if self._ending:
            return
        try:
            self._waiting.put_nowait((channel, payload))
        except queue.Full:
            return  # Redis is away: clients are told to look again when it is back
        self._ensure_thread()

    def _ensure_thread(self) -> None:
        with self._starting:
            # A forked process has the object, but not its thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def close(self) -> None:
        """Send what waits, as far as EXIT_S allows, and end the thread.

        A daemon thread that is frozen by the interpreter's end may hold a lock that the end itself
        needs: such a process would never exit.
        """
        self._ending = True
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)  # wakes it
        if self._thread is not None:
            self._thread.join(EXIT_S)

    def _run(self) -> None:
        while batch := self._take():
            try:
                _publish(batch)
            except (RedisError, OSError):
                # Whatever waits now would be late: no hint is worth keeping.
                lost = len(batch) + len(self._take_waiting(MAX_WAITING))
                log.warning("Redis is away; %d hints lost", lost, extra={"action": "hints_lost"})
            except Exception:
                log.exception("hints were not sent", extra={"action": "hints_lost"})

    def _take(self) -> list[tuple[str, bytes]]:
        """What waits, once there is something; nothing at the end of the process."""
        if self._ending:
            return self._take_waiting(BATCH)
        first = self._waiting.get()
        return [*([first] if first else ()), *self._take_waiting(BATCH)]

    def _take_waiting(self, limit: int) -> list[tuple[str, bytes]]:
        taken: list[tuple[str, bytes]] = []
        while len(taken) < limit:
            try:
                one = self._waiting.get_nowait()
            except queue.Empty:
                break
            if one is not None:
                taken.append(one)
        return taken


_lane = Lane()


def _publish(batch: list[tuple[str, bytes]]) -> None:
    with _redis().pipeline(transaction=False) as pipeline:
        for channel, payload in dict.fromkeys(batch):  # the same hint twice says no more than once
            pipeline.publish(channel, payload)
        pipeline.execute()


@lru_cache(maxsize=1)
def _redis() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL,
        protocol=2,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        # One quick second try, on a connection that went stale while nothing was said.
        retry=Retry(NoBackoff(), 1),
    )
