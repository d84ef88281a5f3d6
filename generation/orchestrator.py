"""The orchestrator: owns one run from its claim to its last event.

    claim → log opened under the epoch → prompt → engine → log → finish (PostgreSQL) → `done`

All text is appended first; then the finish, one transaction; then `done`. Whatever interrupts the
writing (a stop, a larger epoch, the worker's end) comes as a cancellation that carries its reason.
Where the engine fails, or the worker ends, the run is given back: the next owner, here or in
another worker, goes on with the text under the next epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast

import psycopg
from django.conf import settings
from django.db import DataError, IntegrityError, ProgrammingError
from django.db import Error as DjangoDatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.aio import in_database
from accounts.ids import parse_id
from generation import checkpoints, orphans, runs
from generation.checkpoints import Written
from generation.engine_watch import EngineWatch
from generation.engines import EngineError, Piece, Usage
from generation.engines.errors import EngineCutOff, EngineRejected
from generation.engines.protocol import GenerateRequest
from generation.payloads import RECOVERED, error_payload
from generation.prompts.build import AnswerFull, Prompt, PromptTooLong, build_prompt, read_turns
from generation.prompts.packing import Turn
from generation.prompts.seam import Seam
from generation.run_state import EPOCHS_MAX, FAILURES_MAX, Finish
from generation.runs import FREE_PRIORITY, Claim, Outcome
from generation.scheduler import PopResult, QueueEntry
from generation.settling import settle_as
from generation.token_log import AnswerTooLong, Fenced, LogFull
from generation.token_log.writer import RecheckReply, RunWriter
from generation.worker_context import (
    FENCED,
    STOP,
    UNWATCHED,
    WorkerContext,
    cancel_once,
    reason_of,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

FLUSH_TIMEOUT_S: Final = 5.0
"""How long an end waits for Redis; then PostgreSQL is told all the same, and gateways ask there."""

RETRY_S: Final = (0.1, 2.0)
"""The first and the longest pause while PostgreSQL is away, before a prompt or at a finish."""

HOLD_S: Final = 0.5
"""How long a replica that has failed a run gets none; twice as long each time it fails with no word
more. So others get it first, and five tries are no matter of a second."""

CHECKPOINT_S: Final = 10.0
AWAY_CHECKPOINT_S: Final = 2.0
"""How often the text of a long run is kept in PostgreSQL, and while Redis does not take it."""

NOTHING: Final[dict[str, Any]] = {
    "text": "",
    "prompt_tokens": 0,
    "cached_tokens": 0,
    "output_tokens": 0,
}
"""Of an answer that cannot be stored: nobody pays for what they did not get."""

CONNECTION_ERRORS: Final = (DjangoDatabaseError, psycopg.OperationalError)
"""All that is no fault of the data: a primary that was demoted answers with an InternalError."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the writing ended, and what the engine said it used."""

    finish: Finish
    error_code: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Another owner is to go on: this worker ends, or its engine has failed.

    `flush_s`: how long it waits for Redis. A worker that does not end can wait until it is back,
    and the text with it.
    """

    why: str
    flush_s: float | None = None
    failures: int = 0


async def work_one(context: WorkerContext) -> bool:
    """Claim one run and own it to its end. False when nothing waits."""
    found = await _claim_next(context)
    if found is None:
        return False
    claim, entry = found
    extra = {"action": "run_claimed", "run": claim.run, "epoch": claim.epoch}
    log.info("%s claimed under epoch %d", claim.run, claim.epoch, extra=extra)
    pool, one = context.pool, Orchestration(context, claim, entry)
    try:
        await one.work()
    finally:
        context.at_work -= 1
        if not one.is_given_back:
            await _free_place(context, pool, entry.run, one.spent_tokens)
    return True


async def _claim_next(context: WorkerContext) -> tuple[Claim, QueueEntry] | None:
    """Pop until a run is ours; a run that was stopped or claimed meanwhile is passed over."""
    while True:
        popped = await _pop(context)
        if popped.entry is not None:
            claim = await _claim(context, popped.entry)
            if claim is not None:
                return claim, popped.entry
        elif popped.wait_ms and not context.handover.is_set():
            # Somebody is kept for the replica that may hold their prefix; not for longer.
            await asyncio.sleep(popped.wait_ms / 1000)
        else:
            return None


async def _pop(context: WorkerContext) -> PopResult:
    async with context.popping:
        popped = await context.scheduler.pop(
            context.pool,
            context.replica,
            at_work=context.at_work,
            slots=context.slots,
            paid_burst=context.paid_burst,
        )
        if popped.entry is not None:
            context.at_work += 1
    return popped


async def _claim(context: WorkerContext, entry: QueueEntry) -> Claim | None:
    """None where somebody else has it, or it has ended; then its place here is free again."""
    run_id, replica, pool = parse_id("g", entry.run), context.replica, context.pool
    claim: Claim | None = None
    try:
        claim = await in_database(runs.claim, run_id, replica, pool=pool) or await in_database(
            orphans.claim_orphan, run_id, replica, pool=pool
        )
    except (DjangoDatabaseError, RedisError):
        with contextlib.suppress(RedisError):
            await context.scheduler.requeue_front(entry, pool=pool, replica=replica)
        raise
    else:
        if claim is None:
            await _free_place(context, pool, entry.run, 0)
        return claim
    finally:
        if claim is None:
            context.at_work -= 1


async def _free_place(
    context: WorkerContext, pool: str, run: str, spent_tokens: int | None
) -> None:
    """Tell the queue that the run is at work here no more; what fails here the sweep does."""
    try:
        await context.scheduler.ended(
            run, pool, spent_tokens, replica=context.replica, is_open=context.may_claim()
        )
    except RedisError:
        log.warning("end of %s not counted", run, extra={"action": "end_not_counted", "run": run})


class Orchestration:
    """One run in one worker, under one epoch."""

    def __init__(self, context: WorkerContext, claim: Claim, entry: QueueEntry) -> None:
        self._context = context
        self._claim = claim
        self._entry = entry
        self._pool = context.pool  # a replica can be moved
        self._is_kept = False
        self._seam = Seam("")
        self._begins_anew = False
        self._spent_tokens = claim.spent_tokens
        self._reading: asyncio.Task[list[Turn]] | None = None
        self._first_text_at: datetime | None = None
        self._output_tokens = 0
        self.is_given_back = False
        self.spent_tokens: int | None = None  # at its end
        self._prompt_tokens = 0  # as they were counted, for an engine that says nothing of them

    async def work(self) -> None:
        """Write the answer and end the run. Returns quietly when somebody else owns it by now."""
        # While the log is opened. Not before: a run whose lease nobody holds is taken for dead.
        self._reading = asyncio.create_task(in_database(read_turns, self._claim))
        # Nobody may come to ask what hindered it: a stop, another owner.
        self._reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            writer = await self._open()
            keeping = asyncio.create_task(self._keep(writer))
            try:
                ending = await self._write(writer)
                keeping.cancel()
                if isinstance(ending, GivenBack):
                    await self._give_back(writer, ending)
                else:
                    await self._end(writer, ending)
            finally:
                keeping.cancel()
                # Whatever broke: a lease that nobody works under must run out.
                writer.close()
        except Fenced:
            log.warning(
                "%s has another owner; nothing more is written here",
                self._claim.run,
                extra={"action": "run_fenced", "run": self._claim.run},
            )
        finally:
            if self._reading is not None:
                self._reading.cancel()

    async def _open(self) -> RunWriter:
        writer = await self._context.flusher.open(
            self._claim.run,
            epoch=self._claim.epoch,
            next_seq=self._claim.opening_seq + 1 if self._claim.epoch == 1 else None,
            owner_channel=self._context.channel,
            recheck=self._recheck,
            text=self._claim.partial,
            output_tokens=self._claim.spent_tokens,
        )
        if writer.opening_lost:
            # Whoever reads the log must still hear which model answers; twice does no harm.
            for notice in self._claim.notices:
                writer.event("notice", notice)
        if self._claim.epoch > 1:
            writer.event("notice", RECOVERED)
        return writer

    async def _recheck(self) -> RecheckReply:
        epoch, stop_requested = await in_database(runs.recheck, self._claim)
        return RecheckReply(epoch, stop_requested)

    # --- the writing ------------------------------------------------------------------------------

    async def _write(self, writer: RunWriter) -> Ending | GivenBack:
        """Everything up to the last piece of text; what happens becomes how it ends, or Fenced."""
        if self._claim.stop_requested or writer.stop_requested.is_set():
            return Ending("user_stopped")
        task = cast("asyncio.Task[bool]", asyncio.current_task())
        watch = asyncio.create_task(_cancel_when_told(writer, task))
        silence = EngineWatch(self._context, self._claim.silence_s, task)
        self._context.running[self._claim.run] = task
        try:
            return await self._answer(writer, silence)
        except asyncio.CancelledError as cancelled:
            task.uncancel()
            return self._cancelled(cancelled)
        finally:
            # Taken out first: from here on no late stop may cut the finish in two.
            # (Where this worker has claimed it again meanwhile, it is another's by now.)
            if self._context.running.get(self._claim.run) is task:
                del self._context.running[self._claim.run]
            watch.cancel()
            silence.end()

    def _cancelled(self, cancelled: asyncio.CancelledError) -> Ending | GivenBack:
        match reason_of(cancelled):
            case "fenced":
                raise Fenced(f"{self._claim.run} was claimed by another") from None
            case "stop":
                return Ending("user_stopped")
            case "unwatched":
                return Ending("unwatched")
            case "silent":
                return self._engine_failed(f"silent for {self._claim.silence_s:g} s")
            case _:
                return GivenBack("this worker ends", FLUSH_TIMEOUT_S, self._claim.failures)

    async def _answer(self, writer: RunWriter, silence: EngineWatch) -> Ending | GivenBack:
        try:
            return await self._stream(writer, silence)
        except (AnswerTooLong, LogFull, AnswerFull):
            return Ending("length")
        except PromptTooLong:
            return Ending("error", "prompt_too_long")
        except EngineRejected as error:
            self._log_failure(error.message)
            return Ending("error", "rejected")
        except EngineError as error:
            return self._engine_failed(error.message)
        except Fenced:
            raise
        except Exception as error:
            # Whatever it was, the run must end: somebody waits for it.
            self._log_failure(type(error).__name__)
            log.debug("the run failed", exc_info=True)
            return Ending("error", "engine_failed")

    def _engine_failed(self, why: str) -> Ending | GivenBack:
        """The run goes on elsewhere, or here once the engine answers; not for ever."""
        self._log_failure(why)
        failures = 0 if self._first_text_at else self._claim.failures + 1
        hold_s = HOLD_S * 2 ** max(0, failures - 1)
        self._context.suspect(why, hold_s, self._claim.silence_s)
        if failures >= FAILURES_MAX or self._claim.epoch >= EPOCHS_MAX:
            return Ending("error", "engine_failed")
        return GivenBack(why, failures=failures)

    async def _stream(self, writer: RunWriter, silence: EngineWatch) -> Ending:
        prompt = await self._build_prompt()
        try:
            return await self._generate(writer, silence, prompt)
        except EngineRejected as error:
            if not prompt.partial or self._claim.continues:
                raise
            # A template that alters the answer's text, for one: its message can still be answered.
            self._log_failure(f"it does not go on after a partial answer: {error.message}")
        return await self._generate(writer, silence, await self._build_prompt(anew=True))

    async def _generate(self, writer: RunWriter, silence: EngineWatch, prompt: Prompt) -> Ending:
        self._begins_anew = bool(self._claim.partial) and not prompt.partial
        self._seam = Seam(prompt.tail)
        request = GenerateRequest(
            run=self._claim.run,
            model=self._context.profile.model or self._claim.model,
            messages=prompt.messages,
            max_tokens=prompt.max_tokens,
            partial=prompt.partial,
            partial_tokens=prompt.spent_tokens,
            cache_salt=self._claim.cache_salt,
            priority=self._claim.priority,
            signs=silence,
        )
        self._context.last_model = request.model
        self._prompt_tokens = prompt.prompt_tokens
        pieces = self._context.engine.generate(request)
        silence.begin()
        ending: Ending | None = None
        # Closing the stream aborts the request at the engine, whatever ended the loop.
        async with aclosing(pieces) as stream:
            async for piece in stream:
                silence.heard()
                self._take(writer, piece)
                if piece.finish is not None:
                    # Read to its end all the same: a stream that is left costs its connection.
                    ending = Ending(piece.finish, usage=piece.usage)
        if ending is None:
            raise EngineCutOff("the engine ended without a finish")
        if rest := self._seam.end():
            writer.text(rest)
        return ending

    async def _build_prompt(self, *, anew: bool = False) -> Prompt:
        # The task goes with this frame: what was left out of a long path is not kept.
        reading, self._reading = self._reading, None
        read = partial(in_database, read_turns, self._claim)
        turns = await _patiently((lambda: reading) if reading is not None else read, read)
        return await build_prompt(self._claim, self._context.engine, turns, anew=anew)

    def _take(self, writer: RunWriter, piece: Piece) -> None:
        text = self._seam.feed(piece.text)
        if text and self._begins_anew:
            # Not before: what was written is worth more than an engine that may yet refuse.
            self._begins_anew, self._spent_tokens = False, 0
            writer.begin_anew()
        self._output_tokens += piece.tokens
        writer.output_tokens = self._spent_tokens + self._output_tokens
        if text:
            self._first_text_at = self._first_text_at or timezone.now()
            writer.text(text)

    def _log_failure(self, what: str) -> None:
        log.warning(
            "%s failed: %s",
            self._claim.run,
            what,
            extra={"action": "run_failed", "run": self._claim.run},
        )

    # --- while it is written ----------------------------------------------------------------------

    async def _keep(self, writer: RunWriter) -> None:
        """Keep the text of a long run now and then, and see whether anybody watches it."""
        loop = asyncio.get_running_loop()
        watched_s = kept_s = loop.time()
        kept = 0
        while True:
            await asyncio.sleep(AWAY_CHECKPOINT_S)
            now_s = loop.time()
            is_cut = self._context.flusher.is_cut(writer)
            # While Redis is away nobody can say that they watch.
            watched_s = now_s if writer.watchers or is_cut else watched_s
            if now_s - watched_s > settings.UNWATCHED_S:
                self._end_unwatched()
            is_due = now_s - kept_s > (0 if is_cut else CHECKPOINT_S - AWAY_CHECKPOINT_S / 2)
            if is_due and writer.progress != kept:
                kept_s, kept = now_s, writer.progress
                await self._save(writer)

    def _end_unwatched(self) -> None:
        if self._context.is_pressed and self._claim.priority == FREE_PRIORITY:
            self._context.cancel(self._claim.run, UNWATCHED)

    async def _save(self, writer: RunWriter, *, is_whole: bool = False) -> None:
        self._is_kept = True
        claim, text = self._claim, writer.whole_text
        written = Written(text, writer.output_tokens, claim.epoch, writer.seq, is_whole)
        try:
            await in_database(checkpoints.save, claim.run_id, claim.owner_id, written)
        except CONNECTION_ERRORS as error:
            log.warning(
                "The text of %s could not be kept: %s",
                claim.run,
                type(error).__name__,
                extra={"action": "checkpoint_failed", "run": claim.run},
            )

    async def _give_back(self, writer: RunWriter, given: GivenBack) -> None:
        """Let another owner go on: keep the text, let go of the lease, queue the run before all
        others. What fails here the reaper does some seconds later."""
        run, self.is_given_back = self._claim.run, True
        log.info(
            "%s given back: %s", run, given.why, extra={"action": "run_given_back", "run": run}
        )
        # Neither waits for the other: PostgreSQL may be away, or Redis.
        await asyncio.gather(self._let_go(writer, given), writer.hand_over(given.flush_s))
        try:
            replica = self._context.replica
            await self._context.scheduler.requeue_front(
                self._entry, pool=self._pool, replica=replica
            )
        except RedisError:
            log.warning("%s not queued again", run, extra={"action": "not_queued", "run": run})

    async def _let_go(self, writer: RunWriter, given: GivenBack) -> None:
        await self._save(writer, is_whole=True)
        with contextlib.suppress(*CONNECTION_ERRORS):  # then it counts for nothing
            await in_database(
                runs.let_go,
                self._claim,
                failures=given.failures,
                first_text_at=self._first_text_at,
            )

    # --- the end ----------------------------------------------------------------------------------

    async def _end(self, writer: RunWriter, ending: Ending) -> None:
        if ending.error_code:
            writer.event("error", error_payload(ending.error_code))
        last_seq = await writer.text_done(timeout_s=FLUSH_TIMEOUT_S)
        outcome = self._outcome(ending, writer.whole_text, last_seq)
        done = await self._finish(writer, outcome)
        if done is None:
            raise Fenced(f"{self._claim.run} was ended by another")
        self.spent_tokens = outcome.served_tokens
        await writer.done(done, timeout_s=FLUSH_TIMEOUT_S)
        await asyncio.to_thread(settle_as, self._claim.owner_id, self._claim.run_id, outcome)
        log.info(
            "%s ended: %s",
            self._claim.run,
            ending.finish,
            extra={"action": "run_ended", "run": self._claim.run, "finish": ending.finish},
        )

    def _outcome(self, ending: Ending, text: str, last_seq: int) -> Outcome:
        # An engine that was stopped in mid-answer has said nothing of its prompt, and has read it.
        # Where there is no answer nothing is charged.
        is_answered = self._spent_tokens + self._output_tokens > 0
        counted = self._prompt_tokens + self._spent_tokens if is_answered else 0
        usage = ending.usage or Usage(counted, 0, self._output_tokens)
        # What an earlier owner has written was a part of this engine's prompt; it is charged as
        # what it is, and once.
        prompt_tokens = max(0, usage.prompt_tokens - self._spent_tokens)
        return Outcome(
            finish=ending.finish,
            text=text,
            last_seq=last_seq,
            prompt_tokens=prompt_tokens,
            cached_tokens=min(usage.cached_tokens, prompt_tokens),
            output_tokens=self._spent_tokens + usage.output_tokens,
            first_text_at=self._first_text_at,
            error_code=ending.error_code,
            is_kept=self._is_kept,
        )

    async def _finish(self, writer: RunWriter, outcome: Outcome) -> dict[str, object] | None:
        """The finish, tried until it holds or the run is no longer ours; the lease is renewed."""
        pauses_s = _pauses_s()
        while not writer.fenced.is_set():
            try:
                return await in_database(runs.finish, self._claim, outcome)
            except (DataError, IntegrityError, ProgrammingError) as error:
                if outcome.finish == "error" and not outcome.text:
                    raise
                # What cannot be stored would be refused for ever: the run ends failed.
                self._log_failure(type(error).__name__)
                outcome = replace(outcome, finish="error", error_code="engine_failed", **NOTHING)
            except CONNECTION_ERRORS:
                log.warning("PostgreSQL is away at a finish", extra={"action": "finish_retried"})
                await asyncio.sleep(next(pauses_s))
        return None


async def _patiently(first: Callable[[], Awaitable[T]], again: Callable[[], Awaitable[T]]) -> T:
    """What `first` gives, or `again` where PostgreSQL is away. Its lease is renewed meanwhile, and
    a stop or another owner ends the wait."""
    ask, pauses_s = first, _pauses_s()
    while True:
        try:
            return await ask()
        except (DataError, IntegrityError, ProgrammingError):
            raise
        except CONNECTION_ERRORS:
            log.warning("PostgreSQL is away at a prompt", extra={"action": "prompt_retried"})
            await asyncio.sleep(next(pauses_s))
            ask = again


def _pauses_s() -> Iterator[float]:
    pause_s, longest_s = RETRY_S
    while True:
        yield pause_s
        pause_s = min(pause_s * 2, longest_s)


async def _cancel_when_told(writer: RunWriter, task: asyncio.Task[bool]) -> None:
    """Turn what the log's replies say into a cancellation with its reason."""
    stop = asyncio.create_task(writer.stop_requested.wait())
    fenced = asyncio.create_task(writer.fenced.wait())
    try:
        await asyncio.wait({stop, fenced}, return_when=asyncio.FIRST_COMPLETED)
        cancel_once(task, FENCED if writer.fenced.is_set() else STOP)
    finally:
        stop.cancel()
        fenced.cancel()
