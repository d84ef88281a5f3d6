"""The Lua scripts of the token log, and how a pipeline of them is sent.

NOSCRIPT (after SCRIPT FLUSH, a restart, a failover) re-runs what failed, in order; every script
may be run twice, so a caller may send again what a broken connection left undecided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from redis.exceptions import NoScriptError

from generation.token_log.clients import AsyncRedis, SyncRedis, Words, exchange

_FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Script:
    """One `.lua` file, with shared.lua in front of it."""

    name: str
    source: bytes
    sha: str


class Call(NamedTuple):
    """One call of a script: its keys and its arguments, in the order its header names."""

    script: Script
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]

    def words(self) -> Words:
        """The Redis command of this call."""
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)


@cache
def script(name: str) -> Script:
    """The script in `<name>.lua`."""
    shared, own = (_FOLDER / f"{stem}.lua" for stem in ("shared", name))
    source = shared.read_bytes() + b"\n" + own.read_bytes()
    # Redis names scripts by SHA-1; nothing here relies on its strength.
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


async def run_calls(redis: AsyncRedis, calls: Sequence[Call]) -> list[Any]:
    """The replies to `calls`, sent as one pipeline; a call Redis refused has its error there.

    Raises redis' ConnectionError or TimeoutError where the pipeline as a whole is undecided.
    """
    if not calls:
        return []
    replies = await _send(redis, calls)
    again = _without_script(replies)
    if again:
        await _load(redis, [calls[index] for index in again])
        repeated = await _send(redis, [calls[index] for index in again])
        _put_back(replies, again, repeated)
    return replies


def run_calls_sync(redis: SyncRedis, calls: Sequence[Call]) -> list[Any]:
    """run_calls for code without an event loop (keep the two alike)."""
    if not calls:
        return []
    replies = _send_sync(redis, calls)
    again = _without_script(replies)
    if again:
        _load_sync(redis, [calls[index] for index in again])
        repeated = _send_sync(redis, [calls[index] for index in again])
        _put_back(replies, again, repeated)
    return replies


async def _send(redis: AsyncRedis, calls: Sequence[Call]) -> list[Any]:
    return await exchange(redis, [call.words() for call in calls])


def _send_sync(redis: SyncRedis, calls: Sequence[Call]) -> list[Any]:
    pipeline: Any
    with redis.pipeline(transaction=False) as pipeline:
        for call in calls:
            pipeline.execute_command(*call.words())
        return list(pipeline.execute(raise_on_error=False))


async def _load(redis: AsyncRedis, calls: Sequence[Call]) -> None:
    for source in _sources(calls):
        await cast("Any", redis).execute_command("SCRIPT", "LOAD", source)


def _load_sync(redis: SyncRedis, calls: Sequence[Call]) -> None:
    for source in _sources(calls):
        cast("Any", redis).execute_command("SCRIPT", "LOAD", source)


def _sources(calls: Sequence[Call]) -> list[bytes]:
    return list({call.script.sha: call.script.source for call in calls}.values())


def _without_script(replies: Sequence[object]) -> list[int]:
    return [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]


def _put_back(replies: list[Any], again: Sequence[int], repeated: Sequence[Any]) -> None:
    for index, reply in zip(again, repeated, strict=True):
        replies[index] = reply
