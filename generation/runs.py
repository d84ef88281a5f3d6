"""The runs' own verbs: claim, finish, access, and how a run ended.

Every transition is one guarded update whose row count says who won; the loser writes nothing.
Sync functions, each with its own transaction: async callers go through `accounts.aio.in_database`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.db.models import DateTimeField, Q, QuerySet, Value
from django.db.models.functions import Coalesce, Now

from accounts import sql
from accounts.errors import NotFound
from accounts.hints import hint
from accounts.ids import InvalidId, external_id, parse_id
from accounts.models import User
from conversations import services
from conversations.content import plain_text
from conversations.models import Message
from conversations.sealed import readable_parts
from generation import checkpoints, queue_counts
from generation.events import encode_data
from generation.exceptions import RunLive, RunStopping
from generation.models import Model, Run
from generation.payloads import done_of, done_payload, error_payload, run_payload, usage_of
from generation.queue_counts import EndedRun
from generation.regions import MAY_BE_THERE, may_be_in
from generation.run_state import ENDED, LIVE, STATUS_OF_FINISH, Finish
from quotas import ledger
from quotas.plans import is_paid_sql, room_in
from quotas.pricing import Prices

log = logging.getLogger(__name__)

MAX_RUNS_PER_LOOKUP = 500

PAID_PRIORITY: Final = -1
FREE_PRIORITY: Final = 0
"""For engines that have priorities: the lower one is read first, and the higher one is set aside
where memory runs out."""


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
    notices: tuple[Mapping[str, object], ...] = ()
    # What the answer begins with: a reply that it continues, or what an earlier owner has written.
    partial: str = ""
    spent_tokens: int = 0  # what of it earlier owners of this run have written
    continues: bool = False  # whether it begins with another run's reply
    # Answers share an engine's prefix cache only where this is the same: how fast a prompt is read
    # would else tell one organisation what another has asked.
    cache_salt: str = ""
    priority: int = FREE_PRIORITY
    context_tokens: int | None = None  # None: the model has been deleted since
    failures: int = 0  # how often in a row an engine has failed it without another word


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
    is_kept: bool = False  # a checkpoint may be there

    @property
    def served_tokens(self) -> int:
        """What an engine has computed for it: its plan's share of the pool is counted in these."""
        return served_tokens(self.prompt_tokens, self.cached_tokens, self.output_tokens)


def served_tokens(prompt_tokens: int, cached_tokens: int, output_tokens: int) -> int:
    """Tokens that were read or written; what came from a prefix cache costs nearly nothing."""
    return max(0, prompt_tokens - cached_tokens) + output_tokens


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What a client needs of an ended run when its log is gone."""

    last_seq: int
    done_data: bytes
    text: str
    error_data: bytes | None = field(default=None)
    notices_data: tuple[bytes, ...] = ()


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


_IS_LIVE = "run.status IN ({})".format(", ".join(f"'{status}'" for status in sorted(LIVE)))
_LIVE_RUNS = f"""
SELECT {{}} FROM generation_run run
WHERE run.conversation_id = %(conversation)s AND {_IS_LIVE} ORDER BY run.id
"""  # noqa: S608 — constants of our own


def live_runs_of(conversation_id: uuid.UUID) -> list[Run]:
    """The conversation's queued and running runs, oldest first."""
    return live_runs_later(conversation_id)()


def live_runs_later(conversation_id: uuid.UUID) -> Callable[[], list[Run]]:
    """`live_runs_of` in a pipeline (accounts.sql)."""
    statement = _LIVE_RUNS.format(sql.columns(Run, "run"))
    asked = sql.later(statement, {"conversation": conversation_id})
    return lambda: [sql.instance(Run, row) for row in asked()]


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


def refuse_live(live: Iterable[Run], message_id: uuid.UUID, param: str) -> None:
    """Raise RunLive where the message is a reply that one of them writes, or is being answered.

    RunStopping, which is worth waiting for, where that reply has been asked to stop.
    """
    for run in live:
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
    return _text_of(row.continues_id)


def _text_of(reply_id: uuid.UUID | None) -> str:
    if reply_id is None:
        return ""
    # Also empty where it can no longer be read: a claim that failed for it would be tried for ever.
    return _reply_texts([reply_id]).get(reply_id, "")


def recheck(claim: Claim) -> tuple[int, bool]:
    """(epoch, stop requested) as PostgreSQL has them now."""
    row = Run.objects.get(id=claim.run_id)
    return row.epoch, row.stop_requested_at is not None


# --- transitions ----------------------------------------------------------------------------------


# One statement makes an owner and tells it all that it must know.
_CLAIM_OF = f"""
SELECT run.id, run.epoch, run.owner_id, run.conversation_id, run.parent_id, run.model_used,
    run.answer_tokens, run.opening_seq, run.stop_requested_at IS NOT NULL, run.continues_id,
    pool.silence_s, person.organisation_id, organisation.cache_salt,
    CASE WHEN model.slug IS NULL THEN NULL
        ELSE LEAST(run.context_tokens, model.context_tokens) END,
    {is_paid_sql("run.owner_id")}, run.notices, run.failures
FROM run
JOIN generation_pool pool ON pool.slug = run.pool_id
JOIN accounts_user person ON person.id = run.owner_id
LEFT JOIN accounts_organisation organisation ON organisation.id = person.organisation_id
LEFT JOIN generation_model model ON model.slug = run.model_used
"""  # noqa: S608 — constants of our own
_SAME_RUN = f"WITH run AS (SELECT * FROM generation_run WHERE id = %(run)s) {_CLAIM_OF}"  # noqa: S608 — constants of our own
_TAKEN_RUN = """
WITH run AS (
    UPDATE generation_run
    SET status = 'running', epoch = epoch + 1, replica = %(replica)s,
        claimed_at = statement_timestamp()
    WHERE id = %(run)s AND status = %(status)s AND epoch = %(epoch)s
        AND (%(pool)s::text IS NULL OR pool_id = %(pool)s AND {allowed}) {more}
    RETURNING *
)
"""
# Whatever was true when it was queued: an organisation may have been given a residency since.
_TAKEN_RUN = _TAKEN_RUN.replace("{allowed}", MAY_BE_THERE)
_TAKE_PLAIN = _TAKEN_RUN.format(more="AND continues_id IS NULL") + _CLAIM_OF
_TAKE = _TAKEN_RUN.format(more="") + _CLAIM_OF


def claim(run_id: uuid.UUID, replica: str, *, pool: str) -> Claim | None:
    """queued → running under the next epoch; None if the run is no longer queued in this pool."""
    values = {"run": run_id, "status": "queued", "epoch": 0, "replica": replica}
    return _take({**values, "pool": pool})


def take_over(
    run_id: uuid.UUID, epoch: int, replica: str, *, pool: str | None = None
) -> Claim | None:
    """Mint the next epoch of a running run whose owner is gone; None if somebody was faster, or the
    run is in another pool than `pool`. The claim has the text of a continued reply alone."""
    values = {"run": run_id, "status": "running", "epoch": epoch, "replica": replica}
    return _take({**values, "pool": pool})


def _take(values: Mapping[str, object]) -> Claim | None:
    # Most runs continue nothing, and their claim commits by itself. Where there is a text to read
    # the claim must not stand if that fails.
    if found := sql.rows(_TAKE_PLAIN, values):
        return _claim_of_row(found[0])
    with transaction.atomic():
        found = sql.rows(_TAKE, values)
        return _claim_of_row(found[0]) if found else None


def _claim_of(run_id: uuid.UUID) -> Claim:
    return _claim_of_row(sql.rows(_SAME_RUN, {"run": run_id})[0])


def _claim_of_row(row: Sequence[Any]) -> Claim:
    (run_id, epoch, owner_id, conversation_id, parent_id, model, answer_tokens) = row[:7]
    (opening_seq, stop_requested, continues_id, silence_s) = row[7:11]
    (organisation_id, salt, context, is_paid, notices, failures) = row[11:]
    return Claim(
        run_id=run_id,
        run=external_id("g", run_id),
        epoch=epoch,
        owner_id=owner_id,
        conversation_id=conversation_id,
        parent_id=parent_id,
        model=model,
        answer_tokens=answer_tokens,
        opening_seq=opening_seq,
        notices=tuple(notices),
        stop_requested=stop_requested,
        silence_s=silence_s,
        partial=_text_of(continues_id),
        continues=continues_id is not None,
        cache_salt=_cache_salt(owner_id, organisation_id, salt),
        priority=PAID_PRIORITY if is_paid else FREE_PRIORITY,
        context_tokens=context,
        failures=failures,
    )


def _cache_salt(owner_id: uuid.UUID, organisation_id: uuid.UUID | None, salt: str | None) -> str:
    """One for the people of an organisation, one for each who is of none."""
    if organisation_id is None:
        return external_id("u", owner_id)
    return salt or f"o_{organisation_id.hex}"


def finish(claim: Claim, outcome: Outcome) -> dict[str, object] | None:
    """End the run: reply, run, usage entry, active leaf and last activity in one transaction.

    Returns the data of `done`; None if the run is no longer ours (a larger epoch, or ended by
    another). Safe to repeat: a finish whose commit was not heard of is recognised as done.
    """
    return _end(claim.run_id, "running", claim.epoch, outcome)


def let_go(claim: Claim, *, failures: int, first_text_at: datetime | None) -> None:
    """What the next owner must know of the one that gives the run back; nothing happens where it is
    no longer ours."""
    ours = Run.objects.filter(id=claim.run_id, status="running", epoch=claim.epoch)
    first = Coalesce("first_text_at", Value(first_text_at, output_field=DateTimeField()))
    ours.update(failures=failures, first_text_at=first)


def end_queued(run_id: uuid.UUID, outcome: Outcome) -> dict[str, object] | None:
    """End a run that nobody has claimed; None if somebody has.

    The seq before the outcome's `last_seq` must be the last that epoch 0 wrote: read the row under
    a lock (`lock_queued`), or a move in the queue may add one.
    """
    return _end(run_id, "queued", 0, outcome)


def lock_queued(run_id: uuid.UUID) -> Run | None:
    """The run, locked, while nobody has claimed it. Inside a transaction."""
    return Run.objects.select_for_update().filter(id=run_id, status="queued", epoch=0).first()


def move_queued(row: Run, model: Model, pool_id: str, notice: dict[str, object] | None) -> bool:
    """Put a queued run into another pool's queue, of that model; False where it is no longer as
    `row` has it: claimed, stopped, moved by another; or may not be in that region. The row alone:
    the queues come after."""
    as_read = {"pool": row.pool_id, "opening_seq": row.opening_seq}
    same = Run.objects.filter(may_be_in(pool_id), id=row.id, status="queued", epoch=0, **as_read)
    notices = [*row.notices, notice] if notice else row.notices
    context_tokens, answer_tokens = row.context_tokens, row.answer_tokens
    if model.slug != row.model_used:
        room = (model.context_tokens, model.answer_tokens)
        context_tokens, answer_tokens = room_in(row.plan, *room)
    moved = same.update(
        pool=pool_id,
        model_used=model.slug,
        model_begun=row.model_begun or (row.model_used if notice else ""),
        context_tokens=context_tokens,
        answer_tokens=answer_tokens,
        notices=notices,
        opening_seq=row.opening_seq + len(notices) - len(row.notices),
    )
    return moved == 1


_PRICES = """
SELECT model.price_input, model.price_cached, model.price_cache_write, model.price_output
FROM generation_run run JOIN generation_model model ON model.slug = run.model_used
WHERE run.id = %(run)s
"""
_END = """
UPDATE generation_run
SET status = %(ended)s, finish = %(finish)s, error_code = %(error_code)s, last_seq = %(last_seq)s,
    prompt_tokens = %(prompt)s, cached_tokens = %(cached)s, output_tokens = %(output)s,
    cost = %(cost)s, first_text_at = coalesce(first_text_at, %(first_text_at)s),
    finished_at = statement_timestamp()
WHERE id = %(run)s AND status = %(status)s AND epoch = %(epoch)s
RETURNING owner_id, conversation_id, parent_id, reply_id, model_used, continues_id, pool_id, plan
"""


@dataclass(frozen=True, slots=True)
class _Ended:
    """What a run's end must know of it."""

    owner_id: uuid.UUID
    conversation_id: uuid.UUID
    parent_id: uuid.UUID
    reply_id: uuid.UUID
    model: str
    continues_id: uuid.UUID | None
    pool: str
    plan: str


@transaction.atomic
def _end(run_id: uuid.UUID, status: str, epoch: int, outcome: Outcome) -> dict[str, object] | None:
    cost = _cost(run_id, outcome)
    values = {
        "run": run_id,
        "status": status,
        "epoch": epoch,
        "ended": STATUS_OF_FINISH[outcome.finish],
        "finish": outcome.finish,
        "error_code": outcome.error_code,
        "last_seq": outcome.last_seq,
        "prompt": outcome.prompt_tokens,
        "cached": outcome.cached_tokens,
        "output": outcome.output_tokens,
        "cost": cost,
        "first_text_at": outcome.first_text_at,
    }
    found = sql.rows(_END, values)
    if not found:
        return _done_if_ours(run_id, epoch, outcome)
    row = _Ended(*found[0])
    if outcome.is_kept or epoch > 1:
        checkpoints.drop(run_id)
    leaf = _write_reply(run_id, row, outcome, cost)
    hint(row.owner_id, "conversation_changed", conversation=row.conversation_id)
    hint(row.owner_id, "run_ended", conversation=row.conversation_id, run=run_id)
    used = (outcome.prompt_tokens, outcome.cached_tokens, outcome.output_tokens)
    # Here, whoever ends it: what is counted is what was committed, once.
    counted = EndedRun(row.pool, row.plan, row.model, outcome.finish, *used, cost)
    transaction.on_commit(partial(queue_counts.ended, counted), robust=True)
    return done_of(outcome.finish, usage_of(*used), leaf)


def _cost(run_id: uuid.UUID, outcome: Outcome) -> Decimal | None:
    """At today's prices of the model that answered; None where that model is no longer known."""
    found = sql.rows(_PRICES, {"run": run_id})
    if not found:
        return None
    return Prices(*found[0]).cost(
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        output_tokens=outcome.output_tokens,
    )


def _done_if_ours(run_id: uuid.UUID, epoch: int, outcome: Outcome) -> dict[str, object] | None:
    """Only the holder of an epoch ends a run under it: then the commit we did not hear of held.

    A run that is not there any more was its owner's, whose account was deleted in mid-answer.
    """
    row = Run.objects.filter(id=run_id).select_related("conversation").first()
    if row is None or row.status not in ENDED:
        return None
    ours = row.epoch == epoch and row.last_seq == outcome.last_seq
    return done_payload(row) if ours else None


def _write_reply(
    run_id: uuid.UUID, row: _Ended, outcome: Outcome, cost: Decimal | None
) -> uuid.UUID | None:
    """The reply, even an empty one, so that roles alternate; none where the parent is gone.

    After a purge the text is not kept, only that there was an answer. Returns the active leaf.
    """
    readable = services.lock_for_reply(row.conversation_id)
    added = services.add_reply(
        reply_id=row.reply_id,
        conversation_id=row.conversation_id,
        owner_id=row.owner_id,
        parent_id=row.parent_id,
        text=outcome.text if readable else "",
        # What another run has written is not in this run's count.
        token_count=None if row.continues_id else outcome.output_tokens,
    )
    ledger.record(
        user_id=row.owner_id,
        run_id=run_id,
        model=row.model,
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        output_tokens=outcome.output_tokens,
        cost=cost,
    )
    if added:
        return services.touch_and_follow(row.conversation_id, row.parent_id, row.reply_id)
    return standing(row.conversation_id).active_leaf_id


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
        notices_data=tuple(encode_data(notice) for notice in row.notices),
    )


def waiting_pools(runs: Iterable[str]) -> dict[str, str]:
    """In which pool's queue each of these waits now; those that wait no more are left out.

    At most MAX_RUNS_PER_LOOKUP at once.
    """
    ids = [parse_id("g", run) for run in list(runs)[:MAX_RUNS_PER_LOOKUP]]
    waiting = Run.objects.filter(id__in=ids, status="queued").values_list("id", "pool_id")
    return {external_id("g", run_id): pool for run_id, pool in waiting}


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
