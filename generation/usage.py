"""What somebody has used, what is left, and when it is back: `GET /v1/usage`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from django.conf import settings
from django.utils import timezone

from accounts.models import User
from accounts.serializers import iso_time
from generation.catalogue import Offer, offer_for
from generation.reserving import standing_of
from quotas import ledger
from quotas.ledger import Used
from quotas.limits import Left, Standing, headers_of, seconds_of

MONTH_S: Final = 30 * 24 * 60 * 60


def usage(user: User) -> tuple[dict[str, object], dict[str, str]]:
    """The body of `GET /v1/usage`, and its headers, which are of the default model.

    What was used is the ledger's: deleted chats, temporary ones and API calls are in it. Raises
    Unavailable, or Redis' errors, where the counters cannot be read.
    """
    offer = offer_for(user)
    standing = standing_of(user, offer)
    now, terms = timezone.now(), offer.terms
    in_window = ledger.used_since(user.id, terms.window_s)
    body: dict[str, object] = {
        "plan": {"slug": terms.plan, "title": terms.title},
        "limits": {
            "window_s": terms.window_s,
            "messages": _messages(offer, standing, in_window, now),
            "tokens_per_minute": _limit(standing.tokens, now),
            "requests_per_minute": _limit(standing.requests, now),
        },
        "used": {
            "window": _used(in_window),
            "last_30_days": _used(ledger.used_since(user.id, MONTH_S)),
        },
        "currency": settings.CURRENCY,
    }
    default = offer.find(None)
    return body, headers_of(standing, default[0].slug if default else None)


def _messages(
    offer: Offer, standing: Standing, in_window: Iterable[Used], now: datetime
) -> list[dict[str, object]]:
    """One for each model of the plan. What has no limit is not counted but in the ledger."""
    answered = {used.model: used.messages for used in in_window}
    return [
        {
            "model": model.slug,
            **(
                _limit(standing.messages.get(model.slug), now)
                or _without_limit(answered.get(model.slug, 0))
            ),
        }
        for model in offer.shown
    ]


def _limit(left: Left | None, now: datetime) -> dict[str, object] | None:
    if left is None:
        return None
    return {
        "limit": left.limit,
        "used": left.used,
        "remaining": left.remaining,
        "resets_at": iso_time(now + timedelta(milliseconds=left.reset_ms)),
        "reset_s": seconds_of(left.reset_ms),
    }


def _without_limit(used: int) -> dict[str, object]:
    return {"limit": None, "used": used, "remaining": None, "resets_at": None, "reset_s": None}


def _used(models: list[Used]) -> dict[str, object]:
    return {"total": _sum(models), "models": [_item(used) for used in models]}


def _item(used: Used) -> dict[str, object]:
    return {"model": used.model, **_figures(*astuple(used)[1:])}


def _sum(models: list[Used]) -> Mapping[str, object]:
    costs = [used.cost for used in models if used.cost is not None]
    return _figures(
        sum(used.messages for used in models),
        sum(used.prompt_tokens for used in models),
        sum(used.cached_tokens for used in models),
        sum(used.output_tokens for used in models),
        sum(costs, Decimal(0)) if costs else None,
    )


def _figures(
    messages: int, prompt: int, cached: int, output: int, cost: Decimal | None
) -> dict[str, object]:
    """Money is told as text, exactly."""
    return {
        "messages": messages,
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "output_tokens": output,
        "cost": None if cost is None else f"{cost:f}",
    }
