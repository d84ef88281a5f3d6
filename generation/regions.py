"""Where somebody's runs may go, where they are at home, and where a conversation is warm."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, Subquery

from accounts import sql
from accounts.models import User
from generation.models import Pool

WARM_S: Final = 600
"""How long an engine is taken to hold a conversation's prefix after its last run there."""


@dataclass(frozen=True, slots=True)
class Residence:
    """`residency`: the one region that their runs may be in; empty: any.

    `home`: the region nearest to them; empty: wherever a model's first pool is.
    """

    residency: str = ""
    home: str = ""

    def allows(self, region: str) -> bool:
        return self.residency in ("", region)

    def sort(self, pools: Iterable[Pool]) -> list[Pool]:
        """The pools that their runs may be in, those at home first."""
        allowed = (pool for pool in pools if self.allows(pool.region))
        return sorted(allowed, key=lambda pool: pool.region != self.home)


ANYWHERE: Final = Residence()


def residence_of(user: User, residency: str) -> Residence:
    """`residency` is that of the user's organisation (quotas.plans.Terms has it); no query."""
    return Residence(residency, home_of(residency, user.home_region))


def home_of(residency: str, home_region: str) -> str:
    """Empty: wherever a model's first pool is."""
    return residency or home_region or settings.HOME_REGION


def may_be_in(pool: str) -> Q:
    """A condition on runs, for a guarded update: their organisation allows the pool's region at the
    moment of the update, whatever somebody has read before."""
    region = Subquery(Pool.objects.filter(slug=pool).values("region"))
    bound = Q(organisation__residency__gt="") & ~Q(organisation__residency=region)
    return ~Q(Exists(User.objects.filter(bound, id=OuterRef("owner_id"))))


MAY_BE_THERE: Final = """NOT EXISTS (
    SELECT 1 FROM accounts_user person
    JOIN accounts_organisation bound ON bound.id = person.organisation_id
    JOIN generation_pool place ON place.slug = generation_run.pool_id
    WHERE person.id = generation_run.owner_id AND bound.residency NOT IN ('', place.region)
)"""
"""The same of the pool that a run is in, for statements on generation_run written by hand."""


_LAST_AT_WORK = """
SELECT run.pool_id, pool.region,
    run.finished_at IS NULL OR run.finished_at > statement_timestamp() - %(warm_s)s::interval
FROM generation_run run JOIN generation_pool pool ON pool.slug = run.pool_id
WHERE run.conversation_id = %(conversation)s AND run.owner_id = %(owner)s
    AND run.claimed_at IS NOT NULL
ORDER BY run.id DESC LIMIT 1
"""


def warm_pool(owner_id: uuid.UUID, conversation_id: uuid.UUID, home: str) -> str | None:
    """The pool of another region than `home` whose engine read this conversation last, while it may
    still hold what it read: the conversation stays there. None: there is none. One query.
    """
    values = {"conversation": conversation_id, "owner": owner_id, "warm_s": f"{WARM_S} s"}
    for pool, region, is_warm in sql.rows(_LAST_AT_WORK, values):
        if is_warm and region != home:
            return str(pool)
    return None
