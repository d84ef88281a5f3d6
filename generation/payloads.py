"""What clients are told of a run: the data of its events, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from accounts.ids import external_id
from accounts.serializers import iso_time
from generation.events import encode_data
from generation.models import Model, Run
from generation.scheduler import Place


def start_payload(row: Run) -> dict[str, object]:
    """The data of `start`; always the same for a run, so that it can be told again from the row.

    A run that was moved to another model says so in a notice, not here.
    """
    return {
        "run": row.external_id,
        "user_msg": external_id("m", row.parent_id),
        "reply_msg": external_id("m", row.reply_id),
        "conversation": external_id("c", row.conversation_id),
        "model": row.model_begun or row.model_used,
    }


SMALLER: Final = "smaller_model"


def other_model_notice(used: Model, instead_of: Model, *, asked: str) -> dict[str, object]:
    """The data of the `notice` that another model answers than was told before; kept in the row."""
    if used.slug == asked:
        text = f"{used.title} can be reached again and answers after all."
    else:
        text = f"{instead_of.title} cannot be reached just now; {used.title} answers instead."
    return {
        "code": "other_model",
        "text": text,
        "model": used.slug,
        "instead_of": instead_of.slug,
    }


def smaller_model_notice(
    used: Model, instead_of: Model, *, messages: int, back: datetime, back_in: str
) -> dict[str, object]:
    """The data of the `notice` that the messages to a model are used up, and when there is one
    again; kept in the row."""
    count = "your message" if messages == 1 else f"your {messages} messages"
    text = f"You have used {count} to {instead_of.title} for now; {used.title} answers."
    return {
        "code": SMALLER,
        "text": f"{text} {instead_of.title} is back in {back_in}.",
        "model": used.slug,
        "instead_of": instead_of.slug,
        "back_at": iso_time(back),
    }


def busy_model_notice(used: Model, instead_of: Model) -> dict[str, object]:
    """The data of the `notice` that a smaller model answers, since the one that was asked for would
    take too long; kept in the row."""
    text = f"{instead_of.title} would take too long just now; {used.title} answers instead."
    return {
        "code": SMALLER,
        "text": text,
        "model": used.slug,
        "instead_of": instead_of.slug,
        "back_at": None,
    }


def shorter_answer_notice(answer_tokens: int) -> dict[str, object]:
    """The data of the `notice` that the answer has less room than usual; kept in the row."""
    text = "Many people are waiting just now: this answer may be shorter, and look back less far."
    return {"code": "shorter_answer", "text": text, "answer_tokens": answer_tokens}


def other_region_notice(region: str, *, is_home: bool = False) -> dict[str, object]:
    """The data of the `notice` that the answer comes from another region than was told before, or
    from the user's own again; kept in the row."""
    text = "The answer comes from another region, where it can begin sooner."
    if is_home:
        text = "The answer comes from your own region after all."
    return {"code": "other_region", "text": text, "region": region, "home": is_home}


RECOVERED: Final[Mapping[str, object]] = {
    "code": "recovered",
    "text": "The answer was interrupted for a moment and goes on.",
}
"""The data of the `notice` that another owner has gone on with the run."""


def start_data(row: Run) -> bytes:
    """`start_payload`, encoded."""
    return encode_data(start_payload(row))


def usage_payload(row: Run) -> dict[str, int]:
    return usage_of(row.prompt_tokens, row.cached_tokens, row.output_tokens)


def usage_of(prompt: int, cached: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": output}


def done_payload(row: Run) -> dict[str, object]:
    """The data of `done`, with the active leaf as the row's conversation was read."""
    return done_of(row.finish, usage_payload(row), row.conversation.active_leaf_id)


def done_of(finish: str, usage: dict[str, int], leaf: UUID | None) -> dict[str, object]:
    """The data of `done`."""
    return {
        "finish": finish,
        "usage": usage,
        "active_leaf": external_id("m", leaf) if leaf else None,
    }


def error_payload(code: str) -> dict[str, object]:
    """The data of `error` for an answer that broke off."""
    message, retryable = ERRORS.get(code, ERRORS["engine_failed"])
    return {"code": code, "message": message, "retryable": retryable}


ERRORS = {
    "engine_failed": (
        "The model stopped answering. What was written is kept; try again.",
        True,
    ),
    "interrupted": (
        "The answer was interrupted. What was written is kept; try again.",
        True,
    ),
    "prompt_too_long": (
        "This conversation is too long for the model. Start a new chat, or send a shorter message.",
        False,
    ),
    "not_in_region": (
        "Your organisation allows no region in which this model is served. Ask your administrator.",
        False,
    ),
    "rejected": ("The model refused this request.", False),
}


def run_payload(row: Run, place: Place | None = None) -> dict[str, object]:
    """The run as `GET /v1/runs/{g}` gives it. Times are ISO 8601 in UTC, or null."""
    return {
        "id": row.external_id,
        "conversation": external_id("c", row.conversation_id),
        "user_msg": external_id("m", row.parent_id),
        "reply_msg": external_id("m", row.reply_id),
        "status": row.status,
        "finish": row.finish or None,
        "error": error_payload(row.error_code) if row.error_code else None,
        "model": row.model_used,
        "position": place.position if place else None,
        "eta_s": place.eta_s if place else None,
        "usage": usage_payload(row),
        "queued_at": iso_time(row.queued_at),
        "claimed_at": _time(row.claimed_at),
        "first_text_at": _time(row.first_text_at),
        "finished_at": _time(row.finished_at),
    }


def _time(moment: datetime | None) -> str | None:
    return iso_time(moment) if moment else None
