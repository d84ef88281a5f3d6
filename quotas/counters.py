"""A user's counters in Redis: what is held and what is left, each verb one script.

All keys of a user share one hash tag; the scripts in `lua/` say what they hold (shared.lua). Redis
may lose them at any moment: counters that are not built refuse (NotBuilt) until `rebuild` has
written what PostgreSQL knows. Redis' errors pass through.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from quotas.limits import Left, LimitName, Standing, bucket_left, window_left

CONNECT_TIMEOUT_S: Final = 1.0
CALL_TIMEOUT_S: Final = 2.0
"""A person waits for the answer of a send: better a quick 503 than a slow one."""

INDEX: Final = "quotas:open"
"""Users who may have reservations; of no user, so without a hash tag."""

NAMES: Final = ("built", "building", "messages", "open", "twins", "levels")
_FOLDER: Final = Path(__file__).parent / "lua"

Call = tuple[str, Sequence[str], Sequence[object]]
"""A script's name, its keys and its arguments."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is counted, as the plan of the moment says. None: no limit.

    `messages`: those that a request may be counted as, or that are asked about, by model.
    """

    window_s: int
    tokens_per_minute: int | None
    requests_per_minute: int | None
    messages: Mapping[str, int | None]

    def counted(self) -> tuple[object, object, object]:
        """What the counters must be built for, as the scripts take it."""
        return (
            self.window_s,
            _limit(self.tokens_per_minute),
            _limit(self.requests_per_minute),
        )


@dataclass(frozen=True, slots=True)
class Held:
    """A reservation: this run may be saved. `joined`: another send of the same key has made it."""

    run_id: uuid.UUID
    model: str
    joined: bool
    standing: Standing


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was held; it could be after `wait_ms`, if nothing else comes."""

    limit: LimitName
    wait_ms: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """The counters must be built first. Read the ledger after you were told so, not before: `name`
    stands for the time since."""

    name: str


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An answer that was charged."""

    run_id: uuid.UUID
    model: str
    age_ms: int


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that holds something; `tokens` is None where they are not counted."""

    run_id: uuid.UUID
    model: str
    age_ms: int
    tokens: int | None
    requests: int


class Counters:
    """`redis` must not decode responses. `clock_ms` is for tests: a time in place of Redis' own."""

    def __init__(self, redis: Redis, clock_ms: int | None = None) -> None:
        self._redis = redis
        self.clock_ms = clock_ms

    def reserve(
        self,
        user_id: uuid.UUID,
        run_id: uuid.UUID,
        twin: str,
        limits: Limits,
        costs: Mapping[str, int],
    ) -> Held | Refused | NotBuilt:
        """Hold a message, a request and the largest cost, or nothing of it.

        `costs`: what it costs by model, the asked one first; the next is taken where the messages
        to that one are used up. `twin` stands for key and body ('' for none). One round trip.
        """
        models = [
            word
            for model, tokens in costs.items()
            for word in (model, _limit(limits.messages.get(model)), tokens)
        ]
        args = [self._clock(), run_id.hex, twin, *limits.counted(), *models]
        # The mark first: what is held by somebody who is not in the index would never be swept.
        calls = [self._mark(user_id), ("reserve", keys(user_id, *NAMES), args)]
        reply = self._run(calls)[-1]
        if reply[0] == b"not_built":
            return NotBuilt(_text(reply[1]))
        return _answer(reply, limits, list(costs))

    def knows(self, user_id: uuid.UUID, twin: str) -> bool:
        """Whether a run is held for this key and body."""
        return bool(self._redis.hexists(keys(user_id, "twins")[0], twin))

    def look(self, user_id: uuid.UUID, limits: Limits) -> Standing | NotBuilt:
        """How the limits stand, for each model that `limits` names. Nothing is held."""
        models = [word for model, most in limits.messages.items() for word in (model, _limit(most))]
        names = ("built", "building", "messages", "levels")
        args = [self._clock(), *limits.counted(), *models]
        reply = self._run([("look", keys(user_id, *names), args)])[0]
        if reply[0] == b"not_built":
            return NotBuilt(_text(reply[1]))
        return _standing(reply[1:4], reply[4:], limits, list(limits.messages))

    def settle(
        self, user_id: uuid.UUID, run_id: uuid.UUID, *, tokens: int, is_answered: bool
    ) -> bool:
        """Charge the true cost in place of what is held; False where nothing is (any more)."""
        args = [self._clock(), run_id.hex, int(is_answered), tokens]
        return bool(self._run([("settle", keys(user_id, *NAMES[2:]), args)])[0])

    def release(
        self, user_id: uuid.UUID, run_id: uuid.UUID, untouched_ms: int | None = None
    ) -> bool:
        """Take one holder away, and with the last one the reservation; or, with `untouched_ms`, all
        of it if nobody has joined for so long. Whether it is gone now."""
        args = [self._clock(), run_id.hex, _limit(untouched_ms)]
        return bool(self._run([("release", keys(user_id, *NAMES[2:]), args)])[0])

    def rebuild(
        self,
        user_id: uuid.UUID,
        name: str,
        limits: Limits,
        levels: tuple[int, int],
        ended: Sequence[EndedRun],
        live: Sequence[OpenRun],
    ) -> bool:
        """Write what was read after NotBuilt had given `name`; False where that is over: somebody
        was faster. `levels` of tokens and requests are those that all of these runs leave."""
        args: list[object] = [self._clock(), name, *limits.counted(), *levels, len(ended)]
        for one in ended:
            args += [one.run_id.hex, one.model, one.age_ms]
        for run in live:
            tokens = -1 if run.tokens is None else run.tokens
            args += [run.run_id.hex, run.model, run.age_ms, tokens, run.requests]
        calls = [self._mark(user_id), ("rebuild", keys(user_id, *NAMES), args)]
        return bool(self._run(calls)[-1])

    # --- the sweep's ------------------------------------------------------------------------------

    def due(self, age_ms: int, most: int) -> list[tuple[uuid.UUID, str]]:
        """Users whose reservations nobody has looked at for so long, with what `forget` asks for;
        they count as looked at now."""
        reply = self._run([("due", [INDEX], [self._clock(), age_ms, most])])[0]
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return [(uuid.UUID(hex=_text(user)), _text(score)) for user, score in pairs]

    def open_runs(self, user_ids: Sequence[uuid.UUID]) -> list[list[uuid.UUID]]:
        """The runs that hold something, for each user. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for user_id in user_ids:
                pipe.hkeys(keys(user_id, "open")[0])
            return [[uuid.UUID(hex=_text(run)) for run in runs] for runs in pipe.execute()]

    def forget(self, users: Iterable[tuple[uuid.UUID, str]]) -> None:
        """Take users who hold nothing out of the index, unless they were marked since `due`."""
        self._run([("forget", [INDEX], [user.hex, score]) for user, score in users])

    # --- how scripts are called -------------------------------------------------------------------

    def _mark(self, user_id: uuid.UUID) -> Call:
        return ("mark", [INDEX], [self._clock(), user_id.hex])

    def _clock(self) -> object:
        return _limit(self.clock_ms)

    def _run(self, calls: Sequence[Call]) -> list[Any]:
        """The replies, in one round trip; again as a whole where Redis has lost a script, for their
        order matters and each may run twice."""
        if not calls:
            return []
        replies = self._send(calls)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            for name in {name for name, _, _ in calls}:
                self._redis.script_load(source(name))
            replies = self._send(calls)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _send(self, calls: Sequence[Call]) -> list[Any]:
        pipe: Any
        with self._redis.pipeline(transaction=False) as pipe:
            for name, touched, args in calls:
                words = [*touched, *(str(arg) for arg in args)]
                pipe.execute_command("EVALSHA", sha(name), len(touched), *words)
            return list(pipe.execute(raise_on_error=False))


@lru_cache(maxsize=1)
def counters() -> Counters:
    """This process' counters, with a connection pool of their own."""
    redis = Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=CALL_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        # One more try at once, for pooled connections that died with the last Redis. Every verb may
        # run twice; a twin that joins twice is let go of by the sweep.
        retry=Retry(NoBackoff(), 1),
    )
    return Counters(redis)


def keys(user_id: uuid.UUID, *names: str) -> list[str]:
    """The user's keys of these names."""
    return [f"{{u:{user_id.hex}}}:{name}" for name in names]


@cache
def source(name: str) -> str:
    """The script with shared.lua in front of it."""
    return "\n".join((_FOLDER / f"{stem}.lua").read_text("utf-8") for stem in ("shared", name))


@cache
def sha(name: str) -> str:
    # Redis names scripts by SHA-1; nothing here relies on its strength.
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


def _answer(reply: Sequence[Any], limits: Limits, models: Sequence[str]) -> Held | Refused:
    code, run, which, joined, wait_ms, limit = reply[:6]
    standing = _standing(reply[6:9], reply[9:], limits, models)
    if code == b"refused":
        name: Any = _text(limit)
        return Refused(name, int(wait_ms), standing)
    # 0: a twin was counted as a model that the plan has lost since; it is saved as the asked one.
    model = models[max(0, which - 1)]
    return Held(uuid.UUID(hex=_text(run)), model, bool(joined), standing)


def _standing(
    figures: Sequence[bytes],
    windows: Sequence[Sequence[Any]],
    limits: Limits,
    models: Sequence[str],
) -> Standing:
    now_ms, tokens, requests = (int(figure) for figure in figures)
    messages = {
        model: window_left(
            most,
            used,
            newest_ms=int(newest_ms),
            window_ms=limits.window_s * 1_000,
            now_ms=now_ms,
            next_ms=int(next_ms),
        )
        for model, (used, newest_ms, next_ms) in zip(models, windows, strict=True)
        if (most := limits.messages.get(model)) is not None
    }
    return Standing(
        messages=messages,
        tokens=_bucket(limits.tokens_per_minute, tokens),
        requests=_bucket(limits.requests_per_minute, requests),
    )


def _bucket(per_minute: int | None, level: int) -> Left | None:
    return None if per_minute is None else bucket_left(per_minute, level)


def _limit(limit: int | None) -> object:
    return "" if limit is None else limit


def _text(word: bytes) -> str:
    return word.decode("ascii")
