"""Reserve, look and settle as the rest of the product calls them: under the terms of a plan.

Counters that Redis has lost, or that were built for another plan, are built from the ledger and
from the live runs, which the caller knows and quotas do not.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from accounts.errors import Unavailable
from quotas import ledger
from quotas.counters import (
    Counters,
    EndedRun,
    Held,
    Limits,
    NotBuilt,
    OpenRun,
    Refused,
    counters,
)
from quotas.ledger import Charge
from quotas.limits import Standing, level_of
from quotas.plans import Terms

TRIES: Final = 5
"""Of several who build the counters the first one writes; plans that change meanwhile may make it
one more. Far fewer are ever needed."""

RETRY_S: Final = 1

LEVELS_S: Final = 3_600
"""How far back the ledger is read for a minute's limits: a run is as old as its send, and what a
bucket has lost in an hour is more than it holds."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A queued or running run: what it holds until it is settled."""

    run_id: uuid.UUID
    model: str
    age_ms: int
    reserved_tokens: int


Live = Callable[[], Sequence[LiveRun]]


def reserve(
    user_id: uuid.UUID,
    run_id: uuid.UUID,
    twin: str,
    terms: Terms,
    messages: Mapping[str, int | None],
    costs: Mapping[str, int],
    live: Live,
) -> Held | Refused:
    """Hold the largest cost of a run, of the first model in `costs` that has a message left.

    `messages`: their limits in the plan's window. Where nothing is limited Redis is not asked: what
    is used stands in the ledger, should the plan change. Raises Unavailable, or Redis' errors.
    """
    limits = limits_of(terms, messages)
    if limits is None:
        return Held(run_id, next(iter(costs)), joined=False, standing=Standing())

    answer: Held | Refused = _built(
        user_id,
        limits,
        lambda store: store.reserve(user_id, run_id, twin, limits, costs),
        live,
    )
    return answer


def look(
    user_id: uuid.UUID, terms: Terms, messages: Mapping[str, int | None], live: Live
) -> Standing:
    """How the limits stand for these models. Raises Unavailable, or Redis' errors."""
    limits = limits_of(terms, messages)
    if limits is None:
        return Standing()
    answer: Standing = _built(user_id, limits, lambda store: store.look(user_id, limits), live)
    return answer


def limits_of(terms: Terms, messages: Mapping[str, int | None]) -> Limits | None:
    """None where the plan limits nothing at all."""
    tokens, requests = terms.tokens_per_minute, terms.requests_per_minute
    if not terms.counts_messages and tokens is None and requests is None:
        return None
    return Limits(terms.window_s if terms.counts_messages else 0, tokens, requests, messages)


def _built(
    user_id: uuid.UUID, limits: Limits, ask: Callable[[Counters], object], live: Live
) -> Any:
    """What `ask` gives once the counters are built."""
    store = counters()
    for _ in range(TRIES):
        answer = ask(store)
        if not isinstance(answer, NotBuilt):
            return answer
        _rebuild(store, user_id, answer.name, limits, live)
    raise Unavailable(retry_after_s=RETRY_S)


def _rebuild(store: Counters, user_id: uuid.UUID, name: str, limits: Limits, live: Live) -> None:
    # Live runs first: one that ends in between is in both, and counts as what it was charged.
    running = live()
    charges = ledger.charges_since(user_id, LEVELS_S)
    messages = ledger.messages_since(user_id, limits.window_s, limits.messages)
    known = {charge.run_id for charge in (*charges, *messages)}
    open_runs = [_open(run, limits) for run in running if run.run_id not in known]
    window_ms = limits.window_s * 1_000
    ended = [
        EndedRun(charge.run_id, charge.model, charge.age_ms)
        for charge in messages
        if charge.age_ms < window_ms
    ]
    store.rebuild(user_id, name, limits, _levels(charges, open_runs, limits), ended, open_runs)


def _open(run: LiveRun, limits: Limits) -> OpenRun:
    most = limits.tokens_per_minute
    return OpenRun(
        run.run_id,
        run.model,
        run.age_ms,
        tokens=None if most is None else min(run.reserved_tokens, most),
        requests=0 if limits.requests_per_minute is None else 1,
    )


def _levels(
    charges: Sequence[Charge], open_runs: Sequence[OpenRun], limits: Limits
) -> tuple[int, int]:
    tokens = [(charge.age_ms, charge.tokens) for charge in charges if charge.is_answered]
    tokens += [(run.age_ms, run.tokens or 0) for run in open_runs]
    requests = [(charge.age_ms, 1) for charge in charges] + [(run.age_ms, 1) for run in open_runs]
    per_minute, rate = limits.tokens_per_minute, limits.requests_per_minute
    return (
        0 if per_minute is None else level_of(tokens, per_minute),
        0 if rate is None else level_of(requests, rate),
    )
