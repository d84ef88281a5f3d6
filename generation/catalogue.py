"""Which models there are, and which pool serves one: its own, or its fallback."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from accounts import sql
from accounts.models import User
from generation.exceptions import UnknownModel
from generation.models import Model, Pool, Replica

FRESH: Final = timedelta(seconds=15)
"""Three heartbeats (worker.replica.HEARTBEAT_S): an older row is that of a dead worker."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The model that will answer, and where. `instead_of`: whose fallback that is."""

    model: Model
    pool: Pool
    instead_of: Model | None = None


def models_for(user: User) -> list[Model]:
    """The models this user may choose: enabled ones that have a pool."""
    return list(Model.objects.filter(enabled=True, pools__isnull=False).distinct().order_by("slug"))


def choose(user: User, slug: str | None) -> Choice:
    """The wanted model, or the default one; its fallback while it has no replica.

    Raises UnknownModel.
    """
    models = _models_with_pools(user)
    wanted = [one for one in models if (one[0].slug == slug if slug else one[0].is_default)]
    if not wanted and slug is None:
        wanted = models[:1]
    if not wanted:
        raise UnknownModel(param="model")
    return route(*wanted[0])


_CHOICES = """
SELECT {}, {} FROM generation_model model JOIN generation_pool pool ON pool.model_id = model.slug
WHERE model.enabled ORDER BY model.slug, pool.slug
"""


def _models_with_pools(_user: User) -> list[tuple[Model, list[Pool]]]:
    """`models_for`, each with its pools, the first one first. One query: every send asks it."""
    found: dict[str, tuple[Model, list[Pool]]] = {}
    split = sql.width(Model)
    statement = _CHOICES.format(sql.columns(Model, "model"), sql.columns(Pool, "pool"))
    for row in sql.rows(statement, {}):
        model = sql.instance(Model, row[:split])
        pools = found.setdefault(model.slug, (model, []))[1]
        pools.append(sql.instance(Pool, row[split:]))
    return list(found.values())


def choose_again(user: User, slug: str) -> Choice:
    """The model that answered before; the default one where the user may not choose it any more."""
    try:
        return choose(user, slug)
    except UnknownModel:
        return choose(user, None)


def route(model: Model, own: list[Pool] | None = None) -> Choice:
    """The model's first pool that is served; else one that was a moment ago, where the run waits;
    else its fallback, where that is served; else its first pool. One step: a fallback's own
    fallback is not looked at.

    `own`: the model's pools in order, where they are known. Raises UnknownModel where it has none.
    """
    if own is None:
        own = list(Pool.objects.filter(model=model).order_by("slug"))
    if not own:
        raise UnknownModel(param="model")
    if len(own) == 1 and model.fallback_id is None:
        return Choice(model, own[0])
    served = served_among([*(pool.slug for pool in own), model.fallback_id])
    for pool in own:
        if pool.slug in served:
            return Choice(model, pool)
    lately = set(lately_served_pools().filter(pool__in=own))
    for pool in own:
        if pool.slug in lately:
            return Choice(model, pool)
    if model.fallback_id in served:
        fallback = Pool.objects.select_related("model").get(slug=model.fallback_id)
        return Choice(fallback.model, fallback, instead_of=model)
    return Choice(model, own[0])


def served_pools() -> QuerySet[Replica, str]:
    """The slugs of pools that have a replica which is healthy and was heard of lately."""
    alive = Replica.objects.filter(healthy=True, heartbeat__gt=Now() - FRESH)
    return alive.order_by().values_list("pool_id", flat=True).distinct()


def lately_served_pools() -> QuerySet[Replica, str]:
    """Those that are served or were within FRESH: a worker that is replaced is back by then."""
    lately = Q(last_healthy__gt=Now() - FRESH) | Q(healthy=True, heartbeat__gt=Now() - FRESH)
    return Replica.objects.filter(lately).order_by().values_list("pool_id", flat=True).distinct()


def served_among(pools: Iterable[str | None]) -> set[str]:
    return set(served_pools().filter(pool__in=[slug for slug in pools if slug]))


def has_other_replica(pool: str, replica: str, since: datetime) -> bool:
    """Whether the pool has a healthy replica beside this one that was heard of since then.

    A row is fresh for some seconds after its worker was killed: who asks must not leave for it.
    """
    alive = Replica.objects.filter(pool=pool, healthy=True, heartbeat__gt=since)
    return alive.filter(heartbeat__gt=Now() - FRESH).exclude(name=replica).exists()
