"""The runs' own verbs: claim, finish, access, and how a run ended.

Every transition is one guarded update whose row count says who won; the loser writes nothing.
Sync functions, each with its own transaction: async callers go through `accounts.aio.in_database`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from accounts.errors import NotFound
from accounts.hints import hint
from accounts.ids import InvalidId, external_id, parse_id
from accounts.models import User
from conversations import services, sql
from conversations.content import plain_text
from conversations.models import Message
from conversations.sealed import readable_parts
from generation.events import encode_data
from generation.exceptions import RunLive, RunStopping
from generation.models import Model, Run
from generation.payloads import done_payload, error_payload, run_payload
from generation.run_state import ENDED, LIVE, STATUS_OF_FINISH, Finish
from quotas import ledger

log = logging.getLogger(__name__)

MAX_RUNS_PER_LOOKUP = 500


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that is ours: only the holder of `epoch` may append to its log or finish it."""

    run_id: uuid.UUID
    run: str
    epoch: int
    owner_id: uuid.UUID
    conversation_id: uuid.UUID
    parent_id: uuid.UUID
    model: str
    answer_tokens: int
    opening_seq: int
    stop_requested: bool
    silence_s: float
    partial: str = ""  # the text that the answer begins with, where it continues another


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and what it used."""

    finish: Finish
    text: str
    last_seq: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_text_at: datetime | None = None
    error_code: str = ""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What a client needs of an ended run when its log is gone."""

    last_seq: int
    done_data: bytes
    text: str
    error_data: bytes | None = field(default=None)


# --- access ---------------------------------------------------------------------------------------


def access_run(user: User, run: object) -> Run:
    """The run, if it is this user's and its conversation is there for them.

    Anything else, malformed ids too, is the same NotFound.
    """
    try:
        run_id = parse_id("g", run)
    except InvalidId:
        raise NotFound from None
    found = _own_runs(user).filter(id=run_id).select_related("conversation").first()
    if found is None:
        raise NotFound
    return found


def _own_runs(user: User) -> QuerySet[Run]:
    return Run.objects.filter(
        Q(conversation__temporary_until__isnull=True) | Q(conversation__temporary_until__gt=Now()),
        owner=user,
        conversation__deleted_at__isnull=True,
    )


def live_runs_of(conversation_id: uuid.UUID) -> list[Run]:
    """The conversation's queued and running runs, oldest first."""
    live = Run.objects.filter(conversation_id=conversation_id, status__in=LIVE)
    return list(live.order_by("id"))


@dataclass(frozen=True, slots=True)
class LiveReply:
    """A live run as the thread it writes to shows it."""

    run_id: uuid.UUID
    reply_id: uuid.UUID
    parent_id: uuid.UUID
    status: str
    model: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What a conversation shows at one moment, and what is being written to it."""

    title: bytes  # sealed
    last_activity: datetime
    active_leaf_id: uuid.UUID | None
    revision: int
    live: tuple[LiveReply, ...]


_IS_LIVE = "run.status IN ({})".format(", ".join(f"'{status}'" for status in sorted(LIVE)))
_STANDING = f"""
SELECT shown.title, shown.last_activity, shown.active_leaf_id, shown.revision,
    run.id, run.reply_id, run.parent_id, run.status, run.model_used
FROM conversations_conversation shown
LEFT JOIN generation_run run
    ON run.conversation_id = shown.id AND {_IS_LIVE}
WHERE shown.id = %(conversation)s
ORDER BY run.id
"""  # noqa: S608 — constants of our own


def standing(conversation_id: uuid.UUID) -> Standing:
    """All of it at the same moment: a run that ends is seen as live or as a new leaf. One query.

    Raises NotFound.
    """
    found = sql.rows(_STANDING, {"conversation": conversation_id})
    if not found:
        raise NotFound
    live = tuple(LiveReply(*row[4:]) for row in found if row[4] is not None)
    title, last_activity, leaf, revision = found[0][:4]
    return Standing(title, last_activity, leaf, revision, live)


def refuse_live(conversation_id: uuid.UUID, message_id: uuid.UUID, param: str) -> None:
    """Raise RunLive where the message is a reply that is still written, or is being answered.

    RunStopping, which is worth waiting for, where that reply has been asked to stop.
    """
    for run in live_runs_of(conversation_id):
        if message_id in (run.reply_id, run.parent_id):
            raise live_error(run, param)


def live_error(run: Run, param: str) -> RunLive:
    """The conflict that names the live run."""
    text = f"The answer {run.external_id} is still being written there. "
    if run.stop_requested_at is not None:
        text += "It is being stopped; try again in a moment."
        return RunStopping(text, run=run.external_id, pool=run.pool_id, param=param)
    return RunLive(text + "Wait for its end, or stop it.", param=param)


def run_of_reply(conversation_id: uuid.UUID, reply_id: uuid.UUID) -> Run | None:
    """The run, live or ended, whose reply is or will be this message."""
    return Run.objects.filter(conversation_id=conversation_id, reply_id=reply_id).first()


def live_run_of_own(user: User, reply_id: uuid.UUID) -> Run | None:
    """The user's live run, in a conversation that is there for them, that writes this reply."""
    return _own_runs(user).filter(reply_id=reply_id, status__in=LIVE).first()


def continued_text(row: Run) -> str:
    """The text that the run's answer begins with; empty where it continues none, or it is gone."""
    if row.continues_id is None:
        return ""
    # Also empty where it can no longer be read: a claim that failed for it would be tried for ever.
    return _reply_texts([row.continues_id]).get(row.continues_id, "")


def recheck(claim: Claim) -> tuple[int, bool]:
    """(epoch, stop requested) as PostgreSQL has them now."""
    row = Run.objects.get(id=claim.run_id)
    return row.epoch, row.stop_requested_at is not None


# --- transitions ----------------------------------------------------------------------------------


@transaction.atomic
def claim(run_id: uuid.UUID, replica: str) -> Claim | None:
    """queued → running under the next epoch; None if the run is no longer queued."""
    moved = Run.objects.filter(id=run_id, status="queued", epoch=0).update(
        status="running", epoch=1, replica=replica, claimed_at=Now()
    )
    return _claim_of(run_id) if moved else None


@transaction.atomic
def take_over(run_id: uuid.UUID, epoch: int, replica: str) -> Claim | None:
    """Mint the next epoch of a running run whose owner is gone; None if somebody was faster."""
    moved = Run.objects.filter(id=run_id, status="running", epoch=epoch).update(
        epoch=epoch + 1, replica=replica, claimed_at=Now()
    )
    return _claim_of(run_id) if moved else None


def _claim_of(run_id: uuid.UUID) -> Claim:
    row = Run.objects.select_related("pool").get(id=run_id)
    return Claim(
        run_id=row.id,
        run=row.external_id,
        epoch=row.epoch,
        owner_id=row.owner_id,
        conversation_id=row.conversation_id,
        parent_id=row.parent_id,
        model=row.model_used,
        answer_tokens=row.answer_tokens,
        opening_seq=row.opening_seq,
        stop_requested=row.stop_requested_at is not None,
        silence_s=row.pool.silence_s,
        partial=continued_text(row),
    )


def finish(claim: Claim, outcome: Outcome) -> dict[str, object] | None:
    """End the run: reply, run, usage entry, active leaf and last activity in one transaction.

    Returns the data of `done`; None if the run is no longer ours (a larger epoch, or ended by
    another). Safe to repeat: a finish whose commit was not heard of is recognised as done.
    """
    return _end(claim.run_id, "running", claim.epoch, outcome)


def end_queued(run_id: uuid.UUID, outcome: Outcome) -> dict[str, object] | None:
    """End a run that nobody has claimed; None if somebody has."""
    return _end(run_id, "queued", 0, outcome)


@transaction.atomic
def _end(run_id: uuid.UUID, status: str, epoch: int, outcome: Outcome) -> dict[str, object] | None:
    cost = _cost(run_id, outcome)
    moved = Run.objects.filter(id=run_id, status=status, epoch=epoch).update(
        status=STATUS_OF_FINISH[outcome.finish],
        finish=outcome.finish,
        error_code=outcome.error_code,
        last_seq=outcome.last_seq,
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        output_tokens=outcome.output_tokens,
        cost=cost,
        first_text_at=outcome.first_text_at,
        finished_at=Now(),
    )
    row = Run.objects.filter(id=run_id).select_related("conversation").first()
    if row is None:
        return None  # its owner's account was deleted in mid-answer
    if not moved:
        return _done_if_ours(row, epoch, outcome)
    _write_reply(row, outcome.text)
    hint(row.owner_id, "conversation_changed", conversation=row.conversation_id)
    hint(row.owner_id, "run_ended", conversation=row.conversation_id, run=row.id)
    row.conversation.refresh_from_db(fields=["active_leaf_id"])
    return done_payload(row)


def _cost(run_id: uuid.UUID, outcome: Outcome) -> Decimal | None:
    """At today's prices of the model that answered; None where that model is no longer known."""
    used = Run.objects.filter(id=run_id).values("model_used")
    model = Model.objects.filter(slug__in=used).first()
    if model is None:
        return None
    return model.prices.cost(
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        output_tokens=outcome.output_tokens,
    )


def _done_if_ours(row: Run, epoch: int, outcome: Outcome) -> dict[str, object] | None:
    """Only the holder of an epoch ends a run under it: then the commit we did not hear of held."""
    if row.status in ENDED and row.epoch == epoch and row.last_seq == outcome.last_seq:
        return done_payload(row)
    return None


def _write_reply(row: Run, text: str) -> None:
    """The reply, even an empty one, so that roles alternate; none where the parent is gone.

    After a purge the text is not kept, only that there was an answer.
    """
    readable = services.lock_for_reply(row.conversation_id)
    added = services.add_reply(
        reply_id=row.reply_id,
        conversation_id=row.conversation_id,
        owner_id=row.owner_id,
        parent_id=row.parent_id,
        text=text if readable else "",
        # What another run has written is not in this run's count.
        token_count=None if row.continues_id else row.output_tokens,
    )
    ledger.record(
        user_id=row.owner_id,
        run_id=row.id,
        model=row.model_used,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
        cost=row.cost,
    )
    if added:
        services.move_active_leaf_if(row.conversation_id, expected=row.parent_id, new=row.reply_id)
        services.touch(row.conversation_id)


# --- how runs ended -------------------------------------------------------------------------------


def run_ends(runs: Iterable[str]) -> dict[str, RunEnd | None]:
    """For each known run: how it ended, or None while it is live. Unknown runs are left out.

    At most MAX_RUNS_PER_LOOKUP at once; two queries whatever the number.
    """
    ids = [parse_id("g", run) for run in list(runs)[:MAX_RUNS_PER_LOOKUP]]
    rows = list(Run.objects.filter(id__in=ids).select_related("conversation"))
    ended = [row for row in rows if row.status in ENDED]
    texts = _reply_texts([row.reply_id for row in ended])
    return {
        row.external_id: _run_end(row, texts.get(row.reply_id, "")) if row in ended else None
        for row in rows
    }


def _reply_texts(reply_ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    rows = Message.objects.filter(id__in=reply_ids).values_list("id", "owner_id", "content")
    return {
        row_id: plain_text(readable_parts(owner_id, row_id, content) or ())
        for row_id, owner_id, content in rows
    }


def _run_end(row: Run, text: str) -> RunEnd:
    error = encode_data(error_payload(row.error_code)) if row.error_code else None
    return RunEnd(
        last_seq=row.last_seq or 0,
        done_data=encode_data(done_payload(row)),
        text=text,
        error_data=error,
    )


_ENDS = """
SELECT reply_id, id, status, finish, model_used, prompt_tokens, cached_tokens, output_tokens
FROM generation_run WHERE reply_id = ANY(%(replies)s::uuid[])
"""


def ends_of_replies(reply_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, dict[str, object]]:
    """What a reply shows of the run that wrote it, by reply. One query."""
    found = sql.rows(_ENDS, {"replies": sql.uuid_array(reply_ids)})
    return {
        reply_id: {
            "id": external_id("g", run_id),
            "status": status,
            "finish": finish or None,
            "model": model,
            "usage": {
                "prompt_tokens": prompt,
                "cached_tokens": cached,
                "output_tokens": output,
            },
        }
        for reply_id, run_id, status, finish, model, prompt, cached, output in found
    }


def payload_of(run: str) -> dict[str, object]:
    """`run_payload` of a run the caller has passed the door of already."""
    return run_payload(Run.objects.get(id=parse_id("g", run)))
