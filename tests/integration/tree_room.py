"""What the tests of the tree share: a conversation with runs that no worker owns, and forced races.

Workers are played by `claim` and `finish` of `generation.runs`; PostgreSQL and Valkey are real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection, connections, transaction
from redis import Redis

from accounts.models import User
from conversations.content import text_content
from conversations.models import Conversation, Message
from conversations.sealed import open_parts
from generation import runs
from generation.models import Model, Pool, Run
from generation.redis_clients import token_log
from generation.run_state import Finish
from generation.scheduler import scheduler_sync
from generation.send import SendRequest, send
from quotas.models import Plan

POOL = "tree"
WITHOUT_LIMITS: dict[str, Any] = {
    "messages": None,
    "tokens_per_minute": None,
    "requests_per_minute": None,
    "context_tokens": 32_768,
    "answer_tokens": 8_192,
}
PATIENCE_S = 30.0


@contextmanager
def empty_queues() -> Iterator[None]:
    """Two models with a pool each, their queues built and empty. The first model is the default.

    Nobody is limited, for other things are tried here."""
    Plan.objects.filter(is_default=True).update(**WITHOUT_LIMITS)
    with Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        for slug in (POOL, "other"):
            model = Model.objects.create(slug=slug, title=slug, is_default=slug == POOL)
            Pool.objects.create(slug=slug, model=model, profile="sim")
            assert scheduler_sync().rebuild(slug, list)
        yield
        client.flushdb()


# --- runs without a worker ------------------------------------------------------------------------


def ask(owner: User, conversation: Conversation | None = None, **fields: Any) -> Run:
    """A send; its queued run."""
    values: dict[str, Any] = {
        "conversation": f"c_{conversation.id.hex}" if conversation else None,
        "parent_id": None,
        "parts": text_content("Hello"),
        "model": None,
        "key": None,
    }
    return send(owner, SendRequest(**{**values, **fields}))


def claim(run: Run) -> runs.Claim:
    """The run, running."""
    scheduler_sync().remove(run.external_id, run.pool_id)
    claimed = runs.claim(run.id, "tests", pool=run.pool_id)
    assert claimed is not None
    token_log().open(run.external_id, epoch=1, owner="tests", base_seq=run.opening_seq)
    return claimed


def finish(run: Run, text: str = "Answer", how: Finish = "stop", last_seq: int = 9) -> Run:
    """The run, ended by its owner."""
    run.refresh_from_db()
    claimed = claim(run) if run.status == "queued" else runs._claim_of(run.id)
    assert runs.finish(claimed, runs.Outcome(how, text, last_seq)) is not None
    run.refresh_from_db()
    return run


def answered(owner: User, text: str = "Answer", how: Finish = "stop") -> Run:
    """A conversation of one question and its answer: the ended run."""
    return finish(ask(owner), text, how)


def leaf_of(run: Run) -> Any:
    return Conversation.objects.values_list("active_leaf_id", flat=True).get(id=run.conversation_id)


def stored(run: Run) -> str:
    reply = Message.objects.get(id=run.reply_id)
    return "".join(part["text"] for part in open_parts(reply.owner_id, reply.id, reply.content))


def names(run: Run) -> list[tuple[int, str]]:
    """The run's log."""
    page = token_log().read(run.external_id, 0)
    return [(event.seq, event.name) for event in page.events] if page else []


def conversation_id(run: Run) -> str:
    return f"c_{run.conversation_id.hex}"


def message_id(row_id: Any) -> str:
    return f"m_{row_id.hex}"


# --- races ----------------------------------------------------------------------------------------


class Racers:
    """Calls in threads of their own, each with its own database connection."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(self._run, call)

    def start_blocked(self, call: Callable[[], Any], waiting: int = 1) -> Future[Any]:
        """Start it and wait until so many statements of this database wait for a lock."""
        future = self.start(call)
        until_s = time.monotonic() + PATIENCE_S
        while _blocked() < waiting:
            assert not future.done(), f"not blocked: {future.exception() or future.result()}"
            assert time.monotonic() < until_s, f"{_blocked()} of {waiting} blocked"
            time.sleep(0.01)
        return future

    @staticmethod
    def _run(call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            connections.close_all()


def _blocked() -> int:
    with connection.cursor() as cursor:
        # Not pg_stat_activity: inside a transaction that stands still.
        cursor.execute(
            """SELECT count(DISTINCT waiting.pid) FROM pg_locks waiting
               JOIN pg_locks own ON own.pid = waiting.pid
               JOIN pg_database here ON here.oid = own.database AND datname = current_database()
               WHERE NOT waiting.granted"""
        )
        return int(cursor.fetchone()[0])


@contextmanager
def racing() -> Iterator[Racers]:
    with ThreadPoolExecutor(8) as threads:
        yield Racers(threads)


@contextmanager
def locked(conversation: Any) -> Iterator[None]:
    """Its row is locked as every verb locks it; waiters come in the order in which they came."""
    with transaction.atomic():
        Conversation.objects.select_for_update(no_key=True).get(id=conversation)
        yield
