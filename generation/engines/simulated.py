"""An engine without a model, in this process: paced tokens and scripted faults.

For benchmarks and fault tests; never a default. The script comes from the profile's options and,
where the option `directives` is true, also from the last user message, so that a test that runs
several processes can steer it through the real API:

    [[sim {"tokens": 200, "tokens_per_s": 50, "cut_after": 20}]]

Script keys (each is an option and a directive key):

- `tokens` (100), `tokens_per_s` (0: as fast as can be), `ttft_s` (0)
- `text` (cut into words) or `pieces` (as they are) instead of `w1 w2 w3 …`; `echo`: the user's text
- `fail_after`, `cut_after`, `hang_after`: n: the fault after n pieces of this request;
  `unavailable`: the fault before the first piece
- `fault_times` (1): on how many of a run's requests in this process the fault fires; a request that
  continues a partial answer is spared. 0: on every one, continuations too.
- `broken_at`: n: every request breaks off where n pieces of the answer stand, whoever wrote them
- `reject`: every request is refused
- `hold_after` (0), `hold`: see `hold_file`

Further options:

- `hold_file`: after `hold_after` pieces, wait before each next piece while this file exists, so
  that a test forces an order without sleeping. A script with `hold: "name"` looks at
  `<hold_file>.name` instead (user text names no other files).
- `directives`: look for one in the last user message
- `journal_file`: one JSON line per start and end of a request: at_ms (Unix time), run, what
  (`started`, `finished`, `closed`, or the error's class), pieces, partial_chars, cache_salt,
  priority
- `sick`: `health` says no
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from generation.engines.errors import (
    EngineCutOff,
    EngineError,
    EngineRejected,
    EngineUnavailable,
)
from generation.engines.protocol import (
    ChatMessage,
    EngineProfile,
    Finish,
    GenerateRequest,
    Health,
    Piece,
    Usage,
)
from generation.engines.text import PieceCleaner, clean_text

HOLD_POLL_S = 0.01
TOKENS_MAX = 1_000_000
# How many runs' fault counts are remembered; the oldest are forgotten.
RUNS_REMEMBERED = 10_000
TEMPLATE_TOKENS_PER_MESSAGE = 4

_DIRECTIVE_OPEN = "[[sim "
_DIRECTIVE_CLOSE = "]]"
_HOLD_NAME = re.compile(r"[A-Za-z0-9_-]{0,64}")
_WORDS = re.compile(r"\S+\s*|\s+")
_OWN_OPTIONS = frozenset({"directives", "journal_file", "hold_file", "sick"})


@dataclass(frozen=True, slots=True)
class Script:
    """What one request does. Counts are in pieces; one piece is one token."""

    tokens: int = 100
    tokens_per_s: float = 0.0
    ttft_s: float = 0.0
    text: str | None = None
    pieces: tuple[str, ...] | None = None
    echo: bool = False
    fail_after: int | None = None
    cut_after: int | None = None
    hang_after: int | None = None
    broken_at: int | None = None
    unavailable: bool = False
    reject: bool = False
    fault_times: int = 1
    hold_after: int = 0
    hold: str = ""

    def without_faults(self) -> Script:
        """The same words and pace, and nothing goes wrong."""
        return replace(self, fail_after=None, cut_after=None, hang_after=None, unavailable=False)

    def answer(self, user_text: str) -> Iterator[str]:
        """The pieces of the whole answer, none of them empty."""
        cleaner = PieceCleaner()
        for piece in self._raw_answer(user_text):
            if clean := cleaner.feed(piece):
                yield clean
        if rest := cleaner.end():
            yield rest

    def _raw_answer(self, user_text: str) -> Iterator[str]:
        if self.pieces is not None:
            yield from self.pieces
        elif self.text is not None or self.echo:
            yield from _WORDS.findall(user_text if self.text is None else self.text)
        else:
            for number in range(1, self.tokens + 1):
                yield f"w{number}" if number == 1 else f" w{number}"


_SCRIPT_KEYS = frozenset(f.name for f in fields(Script))


def merge_script(script: Script, changes: Mapping[str, object]) -> Script:
    """`script` with `changes`; raises ValueError naming the first bad key."""
    checked: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in _SCRIPT_KEYS:
            raise ValueError(f"unknown key {key[:40]!r} for the simulated engine")
        checked[key] = _checked(key, value)
    return replace(script, **checked)


def _checked(key: str, value: object) -> object:
    if key in ("echo", "unavailable", "reject"):
        good = isinstance(value, bool)
    elif key in ("tokens_per_s", "ttft_s"):
        good = _is_number(value) and 0 <= cast("float", value) <= 1e6
    elif key == "text":
        good = isinstance(value, str)
    elif key == "hold":
        good = isinstance(value, str) and bool(_HOLD_NAME.fullmatch(value))
    elif key == "pieces":
        good = isinstance(value, list) and all(isinstance(piece, str) for piece in value)
        value = tuple(value) if isinstance(value, list) else value
    else:
        good = isinstance(value, int) and _is_number(value) and 0 <= value <= TOKENS_MAX
    if not good:
        raise ValueError(f"bad value for the simulated engine's {key!r}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def split_directive(text: str) -> tuple[str, Mapping[str, object]]:
    """`text` without its directive, and the directive's object (empty if there is none).

    Raises ValueError where a directive is opened and is no JSON object.
    """
    before, opened, rest = text.partition(_DIRECTIVE_OPEN)
    if not opened:
        return text, {}
    try:
        changes, end = json.JSONDecoder().raw_decode(rest)
    except RecursionError:
        raise ValueError("the directive is nested too deeply") from None
    if not isinstance(changes, dict) or not rest.startswith(_DIRECTIVE_CLOSE, end):
        raise ValueError("a directive is [[sim {JSON object}]]")
    return before + rest[end + len(_DIRECTIVE_CLOSE) :], changes


def skip_partial(pieces: Iterator[str], partial: str) -> Iterator[str]:
    """What comes after `partial`; all of it where the answer does not begin so."""
    skipped: list[str] = []
    position = 0
    for piece in pieces:
        if position >= len(partial):
            yield piece
            continue
        skipped.append(piece)
        known = partial[position : position + len(piece)]
        position += len(piece)
        if not piece.startswith(known):
            yield from skipped
            position = len(partial)
            partial = ""
        elif len(known) < len(piece):
            yield piece[len(known) :]


class _Alarm:
    """A sleep that `abort` can end: one future and one timer, cheap enough for 10,000 a second."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None
        self._aborted = False

    async def sleep(self, seconds: float | None) -> None:
        """Sleep (None: until aborted). Raises EngineCutOff once aborted."""
        if not self._aborted:
            self._future = self._loop.create_future()
            timer = None
            if seconds is not None:
                timer = self._loop.call_later(max(0.0, seconds), _wake, self._future)
            try:
                await self._future
            finally:
                self._future = None
                if timer is not None:
                    timer.cancel()
        if self._aborted:
            raise EngineCutOff("The request was aborted.")

    def ring(self) -> None:
        self._aborted = True
        if self._future is not None:
            _wake(self._future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Pace:
    """When the next piece is due. Late pieces catch up, so the mean rate is what was asked."""

    def __init__(self, script: Script) -> None:
        self._interval_s = 1 / script.tokens_per_s if script.tokens_per_s else 0.0
        self._due = time.monotonic() + script.ttft_s

    def wait_s(self) -> float:
        now = time.monotonic()
        wait_s = self._due - now
        self._due = (self._due if self._interval_s else now) + self._interval_s
        return wait_s

    def restart(self) -> None:
        """After a hold: the time that was held is not made up for."""
        self._due = time.monotonic()


class SimulatedEngine:
    """See the module's page. Raises ValueError for options it does not know."""

    can_continue = True

    def __init__(self, profile: EngineProfile) -> None:
        options = dict(profile.options)
        own = {key: options.pop(key) for key in _OWN_OPTIONS & options.keys()}
        self._script = merge_script(Script(), options)
        self._context_tokens = profile.context_tokens
        self._directives = _flag(own, "directives")
        self._sick = _flag(own, "sick")
        self._journal_file = _path(own, "journal_file")
        self._hold_file = _path(own, "hold_file")
        self._alarms: dict[str, list[_Alarm]] = {}
        self._faults: OrderedDict[str, int] = OrderedDict()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Piece, None]:
        """See `Engine.generate`."""
        alarm = _Alarm()
        self._alarms.setdefault(request.run, []).append(alarm)
        self._note("started", request, 0)
        pieces, how = 0, "closed"
        try:
            async with aclosing(self._answer(request, alarm)) as answer:
                async for piece in answer:
                    pieces += piece.tokens
                    yield piece
            how = "finished"
        except EngineError as error:
            how = type(error).__name__
            raise
        finally:
            self._forget(request.run, alarm)
            self._note(how, request, pieces)

    async def _answer(self, request: GenerateRequest, alarm: _Alarm) -> AsyncGenerator[Piece, None]:
        script, user_text = self._script_of(request)
        prompt_tokens = self._check_room(request, script)
        if script.unavailable:
            raise EngineUnavailable("The simulated engine is unavailable, as scripted.")
        pace, count = _Pace(script), 0
        stands = len(_WORDS.findall(request.partial))
        finish: Finish = "stop"
        for text in skip_partial(script.answer(user_text), request.partial):
            await self._fault(script, count, alarm)
            if script.broken_at is not None and stands + count >= script.broken_at:
                raise EngineCutOff("The simulated engine breaks off here, as scripted.")
            if count >= request.max_tokens:
                finish = "length"
                break
            await alarm.sleep(pace.wait_s())
            await self._hold(script, count, pace, alarm)
            count += 1
            yield Piece(text, 1)
        else:
            await self._fault(script, count, alarm)
        await self._hold(script, count, pace, alarm)
        usage = Usage(prompt_tokens, 0, count)
        yield Piece("", 0, finish, usage)

    def _script_of(self, request: GenerateRequest) -> tuple[Script, str]:
        user_text = next((m.text for m in reversed(request.messages) if m.role == "user"), "")
        script = self._script
        if self._directives:
            try:
                user_text, changes = split_directive(user_text)
                script = merge_script(script, changes)
            except ValueError as error:
                raise EngineRejected(f"Bad directive: {error}") from None
        if not self._faults_due(request, script):
            script = script.without_faults()
        return script, user_text

    def _faults_due(self, request: GenerateRequest, script: Script) -> bool:
        if script.fault_times == 0:
            return True
        count = self._faults.pop(request.run, 0) + 1
        self._faults[request.run] = count
        if len(self._faults) > RUNS_REMEMBERED:
            self._faults.popitem(last=False)
        return count <= script.fault_times and not request.partial

    def _check_room(self, request: GenerateRequest, script: Script) -> int:
        prompt_tokens = _count_words(request.messages) + len(_WORDS.findall(request.partial))
        if script.reject:
            raise EngineRejected("The simulated engine refuses, as scripted.")
        if prompt_tokens >= self._context_tokens:
            raise EngineRejected("The prompt is longer than the engine's context.")
        return prompt_tokens

    async def _fault(self, script: Script, count: int, alarm: _Alarm) -> None:
        if count == script.fail_after:
            raise EngineError("The simulated engine failed, as scripted.", retryable=True)
        if count == script.cut_after:
            raise EngineCutOff("The simulated engine cut the answer off, as scripted.")
        if count == script.hang_after:
            await alarm.sleep(None)

    async def _hold(self, script: Script, count: int, pace: _Pace, alarm: _Alarm) -> None:
        if self._hold_file is None or count < script.hold_after:
            return
        path = f"{self._hold_file}.{script.hold}" if script.hold else self._hold_file
        if not _exists(path):
            return
        while _exists(path):
            await alarm.sleep(HOLD_POLL_S)
        pace.restart()

    def _forget(self, run: str, alarm: _Alarm) -> None:
        alarms = self._alarms[run]
        alarms.remove(alarm)
        if not alarms:
            del self._alarms[run]

    def _note(self, what: str, request: GenerateRequest, pieces: int) -> None:
        if self._journal_file is None:
            return
        line = {
            "at_ms": time.time_ns() // 1_000_000,
            "run": request.run,
            "what": what,
            "pieces": pieces,
            "partial_chars": len(request.partial),
            "cache_salt": request.cache_salt,
            "priority": request.priority,
        }
        # O_APPEND: lines of several worker processes do not mix.
        with suppress(OSError), Path(self._journal_file).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")

    async def abort(self, run: str) -> None:
        """See `Engine.abort`."""
        for alarm in self._alarms.get(run, ()):
            alarm.ring()

    async def health(self) -> Health:
        """See `Engine.health`."""
        return Health(not self._sick, "sick, as scripted" if self._sick else "simulated")

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """One token per word, and four per message for the template."""
        return _count_words(messages)

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        for run in list(self._alarms):
            await self.abort(run)


def _count_words(messages: Sequence[ChatMessage]) -> int:
    return sum(
        len(_WORDS.findall(clean_text(m.text))) + TEMPLATE_TOKENS_PER_MESSAGE for m in messages
    )


def _flag(options: Mapping[str, object], key: str) -> bool:
    value = options.get(key, False)
    if value not in (True, False):
        raise ValueError(f"option {key!r} must be true or false")
    return bool(value)


def _path(options: Mapping[str, object], key: str) -> str | None:
    value = options.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"option {key!r} must be a path")
    return value


def _exists(path: str) -> bool:
    return Path(path).exists()
