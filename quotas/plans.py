"""Which plan somebody has."""

from __future__ import annotations

import uuid

from django.db.models import Exists, OuterRef, Q

from quotas.models import Plan, Subscription


def plan_of(user_id: uuid.UUID) -> Plan | None:
    """The plan of their subscription, else the default one; None where there is neither."""
    own = Exists(Subscription.objects.filter(plan=OuterRef("pk"), user_id=user_id))
    return Plan.objects.filter(own | Q(is_default=True)).order_by(own.desc()).first()
