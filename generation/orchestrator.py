"""The orchestrator: owns one run from its claim to its last event.

    claim → log opened under the epoch → prompt → engine → log → finish (PostgreSQL) → `done`

All text is appended first; then the finish, one transaction; then `done`. Whatever interrupts the
writing (a stop, a larger epoch, the worker's end) comes as a cancellation that carries its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, cast

import psycopg
from django.db import DataError, IntegrityError, ProgrammingError
from django.db import Error as DjangoDatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.aio import in_database
from accounts.ids import parse_id
from generation import runs
from generation.engines import EngineError, Piece, Usage
from generation.engines.errors import EngineCutOff, EngineRejected
from generation.engines.protocol import GenerateRequest
from generation.payloads import error_payload
from generation.prompts.build import Prompt, PromptTooLong, build_prompt, read_turns
from generation.prompts.packing import Turn
from generation.run_state import Finish
from generation.runs import Claim, Outcome
from generation.scheduler import QueueEntry
from generation.token_log import AnswerTooLong, Fenced, LogFull
from generation.token_log.writer import RecheckReply, RunWriter
from generation.worker_context import FENCED, STOP, WorkerContext, cancel_once, reason_of

log = logging.getLogger(__name__)

FLUSH_TIMEOUT_S: Final = 5.0
"""How long an end waits for Redis; then PostgreSQL is told all the same, and gateways ask there."""

RETRY_S: Final = (0.1, 2.0)
"""The first and the longest pause while PostgreSQL is away at a finish."""

PREFILL_FACTOR: Final = 4
"""How many times the pool's silence an engine gets for its first piece: nothing comes while it
reads the prompt, and a cold prompt of 3,600 tokens took 60 s on two CPU cores."""

SILENCE_STEP_S: Final = 0.25
"""How exactly an engine's silence is measured."""

CONNECTION_ERRORS: Final = (DjangoDatabaseError, psycopg.OperationalError)
"""All that is no fault of the data: a primary that was demoted answers with an InternalError."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the writing ended, and what the engine said it used."""

    finish: Finish
    error_code: str = ""
    usage: Usage | None = None


async def work_one(context: WorkerContext) -> bool:
    """Claim one run and own it to its end. False when nothing waits."""
    claim = await _claim_next(context)
    if claim is None:
        return False
    log.info("%s claimed", claim.run, extra={"action": "run_claimed", "run": claim.run})
    await Orchestration(context, claim).work()
    return True


async def _claim_next(context: WorkerContext) -> Claim | None:
    """Pop until a run is ours; a run that was stopped or claimed meanwhile is passed over."""
    while True:
        popped = await context.scheduler.pop(context.pool, context.replica)
        if popped.entry is None:
            return None
        claim = await _claim(context, popped.entry)
        if claim is not None:
            return claim


async def _claim(context: WorkerContext, entry: QueueEntry) -> Claim | None:
    try:
        return await in_database(
            runs.claim, parse_id("g", entry.run), context.replica, pool=context.pool
        )
    except DjangoDatabaseError:
        with contextlib.suppress(RedisError):
            await context.scheduler.requeue_front(entry, pool=context.pool)
        raise


class Orchestration:
    """One run in one worker, under one epoch."""

    def __init__(self, context: WorkerContext, claim: Claim) -> None:
        self._context = context
        self._claim = claim
        self._reading: asyncio.Task[list[Turn]] | None = None
        self._first_text_at: datetime | None = None
        self._output_tokens = 0

    async def work(self) -> None:
        """Write the answer and end the run. Returns quietly when somebody else owns it by now."""
        # While the log is opened. Not before: a run whose lease nobody holds is taken for dead.
        self._reading = asyncio.create_task(in_database(read_turns, self._claim))
        # Nobody may come to ask what hindered it: a stop, another owner.
        self._reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            writer = await self._open()
            try:
                await self._end(writer, await self._write(writer))
            finally:
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
            next_seq=self._claim.opening_seq + 1,
            owner_channel=self._context.channel,
            recheck=self._recheck,
            text=self._claim.partial,
        )
        if writer.opening_lost:
            # Whoever reads the log must still hear which model answers; twice does no harm.
            for notice in self._claim.notices:
                writer.event("notice", notice)
        return writer

    async def _recheck(self) -> RecheckReply:
        epoch, stop_requested = await in_database(runs.recheck, self._claim)
        return RecheckReply(epoch, stop_requested)

    # --- the writing ------------------------------------------------------------------------------

    async def _write(self, writer: RunWriter) -> Ending:
        """Everything up to the last piece of text; what happens becomes an Ending, or Fenced."""
        if self._claim.stop_requested or writer.stop_requested.is_set():
            return Ending("user_stopped")
        task = cast("asyncio.Task[bool]", asyncio.current_task())
        watch = asyncio.create_task(_cancel_when_told(writer, task))
        self._context.running[self._claim.run] = task
        try:
            return await self._answer(writer)
        except asyncio.CancelledError as cancelled:
            task.uncancel()
            return self._cancelled(cancelled)
        finally:
            # Taken out first: from here on no late stop may cut the finish in two.
            self._context.running.pop(self._claim.run, None)
            watch.cancel()

    def _cancelled(self, cancelled: asyncio.CancelledError) -> Ending:
        reason = reason_of(cancelled)
        if reason == FENCED:
            raise Fenced(f"{self._claim.run} was claimed by another") from None
        if reason == STOP:
            return Ending("user_stopped")
        return Ending("interrupted", "interrupted")

    async def _answer(self, writer: RunWriter) -> Ending:
        try:
            return await self._stream(writer)
        except (AnswerTooLong, LogFull):
            return Ending("length")
        except PromptTooLong:
            return Ending("error", "prompt_too_long")
        except EngineError as error:
            self._log_failure(error.message)
            return Ending(
                "error", "rejected" if isinstance(error, EngineRejected) else "engine_failed"
            )
        except TimeoutError:
            self._log_failure(f"the engine was silent for {self._claim.silence_s:g} s")
            return Ending("error", "engine_failed")
        except Fenced:
            raise
        except Exception as error:
            # Whatever it was, the run must end: somebody waits for it.
            self._log_failure(type(error).__name__)
            log.debug("the run failed", exc_info=True)
            return Ending("error", "engine_failed")

    async def _stream(self, writer: RunWriter) -> Ending:
        prompt = await self._build_prompt()
        if self._claim.partial and not prompt.partial:
            writer.begin_anew()
        request = GenerateRequest(
            run=self._claim.run,
            model=self._context.profile.model or self._claim.model,
            messages=prompt.messages,
            max_tokens=prompt.max_tokens,
            partial=prompt.partial,
            cache_salt=self._claim.cache_salt,
            priority=self._claim.priority,
        )
        pieces = self._context.engine.generate(request)
        loop = asyncio.get_running_loop()
        first_s = PREFILL_FACTOR * self._claim.silence_s
        ending: Ending | None = None
        # Closing the stream aborts the request at the engine, whatever ended the loop.
        async with asyncio.timeout(first_s) as silence, aclosing(pieces) as stream:
            heard_s = 0.0
            async for piece in stream:
                now_s = loop.time()
                if now_s - heard_s > SILENCE_STEP_S:
                    # Not for every token: moving a timer costs as much as all the rest here.
                    heard_s = now_s
                    silence.reschedule(now_s + self._claim.silence_s + SILENCE_STEP_S)
                self._take(writer, piece)
                if piece.finish is not None:
                    # Read to its end all the same: a stream that is left costs its connection.
                    ending = Ending(piece.finish, usage=piece.usage)
        if ending is None:
            raise EngineCutOff("the engine ended without a finish")
        return ending

    async def _build_prompt(self) -> Prompt:
        # The task goes with this frame: what was left out of a long path is not kept.
        reading, self._reading = cast("asyncio.Task[list[Turn]]", self._reading), None
        return await build_prompt(self._claim, self._context.engine, await reading)

    def _take(self, writer: RunWriter, piece: Piece) -> None:
        self._output_tokens += piece.tokens
        if piece.text:
            self._first_text_at = self._first_text_at or timezone.now()
            writer.text(piece.text)

    def _log_failure(self, what: str) -> None:
        log.warning(
            "%s failed: %s",
            self._claim.run,
            what,
            extra={"action": "run_failed", "run": self._claim.run},
        )

    # --- the end ----------------------------------------------------------------------------------

    async def _end(self, writer: RunWriter, ending: Ending) -> None:
        if ending.error_code:
            writer.event("error", error_payload(ending.error_code))
        last_seq = await writer.text_done(timeout_s=FLUSH_TIMEOUT_S)
        done = await self._finish(writer, self._outcome(ending, writer.whole_text, last_seq))
        if done is None:
            raise Fenced(f"{self._claim.run} was ended by another")
        await writer.done(done, timeout_s=FLUSH_TIMEOUT_S)
        log.info(
            "%s ended: %s",
            self._claim.run,
            ending.finish,
            extra={"action": "run_ended", "run": self._claim.run, "finish": ending.finish},
        )

    def _outcome(self, ending: Ending, text: str, last_seq: int) -> Outcome:
        usage = ending.usage or Usage(0, 0, self._output_tokens)
        return Outcome(
            finish=ending.finish,
            text=text,
            last_seq=last_seq,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            first_text_at=self._first_text_at,
            error_code=ending.error_code,
        )

    async def _finish(self, writer: RunWriter, outcome: Outcome) -> dict[str, object] | None:
        """The finish, tried until it holds or the run is no longer ours; the lease is renewed."""
        pause_s = RETRY_S[0]
        while not writer.fenced.is_set():
            try:
                return await in_database(runs.finish, self._claim, outcome)
            except (DataError, IntegrityError, ProgrammingError) as error:
                if outcome.finish == "error" and not outcome.text:
                    raise
                # What cannot be stored would be refused for ever: the run ends failed.
                self._log_failure(type(error).__name__)
                outcome = replace(outcome, finish="error", error_code="engine_failed", text="")
            except CONNECTION_ERRORS:
                log.warning("PostgreSQL is away at a finish", extra={"action": "finish_retried"})
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_S[1])
        return None


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
