"""Which plan somebody has."""

from __future__ import annotations

import uuid

from django.db.models import Exists, OuterRef, Q

from quotas.models import Plan, Subscription


def plan_of(user_id: uuid.UUID) -> Plan | None:
    """The plan of their subscription, else the default one; None where there is neither."""
    own = Exists(Subscription.objects.filter(plan=OuterRef("pk"), user_id=user_id))
    return Plan.objects.filter(own | Q(is_default=True)).order_by(own.desc()).first()


def is_paid_sql(user: str) -> str:
    """For statements written by hand: whether the plan of the user in this column is a paid one."""
    return f"""COALESCE((
        SELECT plan.is_paid FROM quotas_plan plan
        LEFT JOIN quotas_subscription own ON own.plan_id = plan.slug AND own.user_id = {user}
        WHERE own.id IS NOT NULL OR plan.is_default
        ORDER BY own.id IS NULL LIMIT 1
    ), FALSE)"""  # noqa: S608 — a column of ours
