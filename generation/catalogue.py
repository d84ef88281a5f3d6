"""Which models there are, and which pool serves one."""

from __future__ import annotations

from dataclasses import dataclass

from accounts.models import User
from generation.exceptions import UnknownModel
from generation.models import Model, Pool


@dataclass(frozen=True, slots=True)
class Choice:
    """The model that will answer, and where."""

    model: Model
    pool: Pool


def models_for(user: User) -> list[Model]:
    """The models this user may choose: enabled ones that have a pool."""
    return list(Model.objects.filter(enabled=True, pools__isnull=False).distinct().order_by("slug"))


def choose(user: User, slug: str | None) -> Choice:
    """The wanted model, or the default one. Raises UnknownModel."""
    models = models_for(user)
    wanted = [model for model in models if (model.slug == slug if slug else model.is_default)]
    if not wanted and slug is None:
        wanted = models[:1]
    if not wanted:
        raise UnknownModel(param="model")
    pool = Pool.objects.filter(model=wanted[0]).order_by("slug").first()
    if pool is None:
        raise UnknownModel(param="model")
    return Choice(wanted[0], pool)


def choose_again(user: User, slug: str) -> Choice:
    """The model that answered before; the default one where the user may not choose it any more."""
    try:
        return choose(user, slug)
    except UnknownModel:
        return choose(user, None)
