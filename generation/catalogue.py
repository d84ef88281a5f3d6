"""Which models a plan offers, and which pools may serve one: its own, or its fallback.

Only pools in regions where the user's runs may be (generation.regions) are ever looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from django.contrib.postgres.aggregates import BoolOr
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from accounts import sql
from accounts.models import User
from accounts.preferences import preferences_of
from generation.exceptions import NoPlan, NotInRegion, UnknownModel
from generation.models import Model, Pool, Replica
from generation.regions import ANYWHERE, Residence, residence_of
from quotas.plans import NO_PLAN, Terms, terms_later

FRESH: Final = timedelta(seconds=15)
"""Three heartbeats (worker.replica.HEARTBEAT_S): an older row is that of a dead worker."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The model that may answer, and where: the best pool first, never one in a region that is not
    allowed. `home`: the region that counts as the user's.

    `instead_of`: the model whose place this one takes. `smaller`: what the plan has for a peak.
    """

    model: Model
    pools: tuple[Pool, ...]
    home: str = ""
    instead_of: Model | None = None
    smaller: Choice | None = None

    @property
    def pool(self) -> Pool:
        return self.pools[0]


@dataclass(frozen=True, slots=True)
class Offer:
    """What somebody may choose: the terms of their plan, where their runs may be, and the plan's
    models with their pools there, in order. Some may have none there.

    Read once, and the same to the request's end.
    """

    terms: Terms
    residence: Residence
    models: tuple[tuple[Model, list[Pool]], ...]
    preferred: str | None = None  # the person's own default model; the plan may not have it

    def find(self, slug: str | None) -> tuple[Model, list[Pool]] | None:
        """The model of that slug, or the person's default, the service's, or the first."""
        if slug is not None:
            return next((one for one in self.models if one[0].slug == slug), None)
        there = [one for one in self.models if one[1]]
        own = next((one for one in there if one[0].slug == self.preferred), None)
        default = own or next((one for one in there if one[0].is_default), None)
        return default or next(iter(there or self.models), None)

    @property
    def messages(self) -> dict[str, int | None]:
        """The messages in the plan's window, by model."""
        return {model.slug: self.terms.messages_of(model.slug) for model in self.shown}

    @property
    def shown(self) -> list[Model]:
        """Those that can be chosen."""
        return [model for model, pools in self.models if pools]


_CHOICES = """
SELECT {}, {} FROM generation_model model JOIN generation_pool pool ON pool.model_id = model.slug
WHERE model.enabled ORDER BY model.slug, pool.slug
"""


def offer_for(user: User) -> Offer:
    """What this user may choose now: enabled models of their plan that have a pool. One trip."""
    with sql.pipeline():
        return offer_later(user)()


def offer_later(user: User) -> Callable[[], Offer]:
    """`offer_for` in a pipeline (accounts.sql)."""
    terms = terms_later(user)
    statement = _CHOICES.format(sql.columns(Model, "model"), sql.columns(Pool, "pool"))
    choices = sql.later(statement, {})

    def offer() -> Offer:
        given, found, split = terms(), dict[str, tuple[Model, list[Pool]]](), sql.width(Model)
        for row in choices():
            model = sql.instance(Model, row[:split])
            pools = found.setdefault(model.slug, (model, []))[1]
            pools.append(sql.instance(Pool, row[split:]))
        residence = residence_of(user, given.residency)
        allowed = [one for one in found.values() if given.allows(one[0].slug)]
        return Offer(
            given,
            residence,
            tuple((model, residence.sort(pools)) for model, pools in allowed),
            preferences_of(user).default_model,
        )

    return offer


def choose(offer: Offer, slug: str | None) -> Choice:
    """The wanted model, or the default one; its fallback while it has no replica; and the plan's
    smaller one beside it.

    Raises NoPlan; UnknownModel, also for one that the plan does not have; NotInRegion where it is
    served, but not where the user's runs may be.
    """
    if offer.terms is NO_PLAN:
        raise NoPlan
    wanted = offer.find(slug)
    if wanted is None:
        raise UnknownModel(param="model")
    smaller = offer.find(offer.terms.smaller_model) if offer.terms.smaller_model else None
    beside = [smaller] if smaller is not None and smaller[0].slug != wanted[0].slug else []
    found, *others = candidates([wanted, *beside], offer.residence)
    if not found.pools:
        raise NotInRegion(param="model")
    # Where the wanted model's fallback is the smaller one, it has it already.
    also = [one for one in others if one.pools and one.model.slug != found.model.slug]
    return replace(found, smaller=also[0] if also else None)


def choose_again(offer: Offer, slug: str) -> Choice:
    """The model that answered before; the default one where the user may not choose it any more."""
    found = offer.find(slug)
    return choose(offer, slug if found and found[1] else None)


def route(
    model: Model, own: Sequence[Pool] | None = None, residence: Residence = ANYWHERE
) -> Choice:
    """The model's `candidates`.

    `own`: the model's pools in order, where they are known. Raises UnknownModel where it has none,
    NotInRegion where it has none in the region that the user's runs must not leave.
    """
    if own is None:
        own = list(Pool.objects.filter(model=model).order_by("slug"))
        if not own:
            raise UnknownModel(param="model")
    (found,) = candidates([(model, own)], residence)
    if not found.pools:
        raise NotInRegion(param="model")
    return found


def candidates(
    wanted: Sequence[tuple[Model, Sequence[Pool]]], residence: Residence = ANYWHERE
) -> list[Choice]:
    """For each model, of its pools in order: those that are served; else those that were a moment
    ago, where runs wait; else its fallback, where that is served; else its first pool. One step: a
    fallback's own fallback is not looked at. Pools at home come first; none where the model is not
    served in an allowed region at all. At most one query for all, and one for a fallback.
    """
    sorted_ = [(model, residence.sort(pools)) for model, pools in wanted]
    slugs: list[str | None] = []
    for model, pools in sorted_:
        if len(pools) > 1 or (pools and model.fallback_id is not None):
            slugs += [*(pool.slug for pool in pools), model.fallback_id]
    health = _health_of(slugs)
    return [_candidates(model, pools, residence, health) for model, pools in sorted_]


def _candidates(
    model: Model, pools: list[Pool], residence: Residence, health: Mapping[str, bool]
) -> Choice:
    home = residence.home or next((pool.region for pool in pools), "")
    served = [pool for pool in pools if health.get(pool.slug)]
    if there := served or [pool for pool in pools if pool.slug in health]:
        return Choice(model, tuple(there), home)
    if pools and health.get(model.fallback_id or ""):
        fallback = Pool.objects.select_related("model").get(slug=model.fallback_id)
        if residence.allows(fallback.region):
            return Choice(fallback.model, (fallback,), home, instead_of=model)
    return Choice(model, tuple(pools[:1]), home)


def _health_of(pools: Iterable[str | None]) -> dict[str, bool]:
    """Those of these pools that are or lately were served, each with whether it is."""
    asked = {slug for slug in pools if slug}
    if not asked:
        return {}
    found = Replica.objects.filter(_lately_served(), pool__in=asked).order_by().values("pool_id")
    return dict(found.annotate(is_served=BoolOr(_served())).values_list("pool_id", "is_served"))


def _served() -> Q:
    return Q(healthy=True, heartbeat__gt=Now() - FRESH)


def _lately_served() -> Q:
    return Q(last_healthy__gt=Now() - FRESH) | _served()


def served_pools() -> QuerySet[Replica, str]:
    """The slugs of pools that have a replica which is healthy and was heard of lately."""
    alive = Replica.objects.filter(_served())
    return alive.order_by().values_list("pool_id", flat=True).distinct()


def lately_served_pools() -> QuerySet[Replica, str]:
    """Those that are served or were within FRESH: a worker that is replaced is back by then."""
    lately = Replica.objects.filter(_lately_served())
    return lately.order_by().values_list("pool_id", flat=True).distinct()


def served_among(pools: Iterable[str | None]) -> set[str]:
    return set(served_pools().filter(pool__in=[slug for slug in pools if slug]))


def has_other_replica(pool: str, replica: str, since: datetime) -> bool:
    """Whether the pool has a healthy replica beside this one that was heard of since then.

    A row is fresh for some seconds after its worker was killed: who asks must not leave for it.
    """
    alive = Replica.objects.filter(pool=pool, healthy=True, heartbeat__gt=since)
    return alive.filter(heartbeat__gt=Now() - FRESH).exclude(name=replica).exists()
