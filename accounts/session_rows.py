"""Rows of sessions: forgetting old ones, and ending all of one person.

Every way in notes its session in the list (`UserSession`, by django-allauth, in the request that
signs in); sessions of nobody, and those that began before there was a list, are not in it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from allauth.usersessions.models import UserSession
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from accounts.models import User

logger = logging.getLogger(__name__)

BATCH: Final = 1_000
BATCHES: Final = 200
"""At most 200,000 rows of a kind an hour; what is left waits for the next hour."""
ORPHANED_AFTER: Final = timedelta(hours=1)
"""A sign-in writes its session and the list's row one after the other."""


def forget() -> int:
    """Delete expired sessions, and rows of the list without a session; returns how many."""
    now = timezone.now()
    expired = Session.objects.filter(expire_date__lt=now)
    there = Session.objects.filter(session_key=OuterRef("session_key"))
    orphans = UserSession.objects.filter(~Exists(there), created_at__lt=now - ORPHANED_AFTER)
    forgotten = _in_batches(expired, "expire_date") + _in_batches(orphans, "pk")
    logger.info("Forgot %d sessions", forgotten, extra={"action": "sessions_forgotten"})
    return forgotten


def _in_batches(old: QuerySet[Any], order: str) -> int:
    forgotten = 0
    for _ in range(BATCHES):
        keys = list(old.order_by(order).values_list("pk", flat=True)[:BATCH])
        # Asked again: a session may have been prolonged since it was listed.
        forgotten += old.filter(pk__in=keys).delete()[0]
        if len(keys) < BATCH:
            break
    return forgotten


def unlisted() -> dict[str, list[str]]:
    """Sessions that are in nobody's list: user id → their keys. Reads each of them."""
    listed = UserSession.objects.filter(session_key=OuterRef("session_key"))
    rows = Session.objects.filter(~Exists(listed), expire_date__gt=timezone.now())
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows.iterator(BATCH):
        owner = row.get_decoded().get(SESSION_KEY)
        if owner is not None:
            found[str(owner)].append(row.session_key)
    return found


def end_all(user: User, others: Mapping[str, list[str]]) -> bool:
    """End every session of the user; `others` is what `unlisted` found. False: there was none."""
    listed = UserSession.objects.filter(user=user)
    keys = [*listed.values_list("session_key", flat=True), *others.get(str(user.pk), ())]
    Session.objects.filter(session_key__in=keys).delete()
    listed.filter(session_key__in=keys).delete()
    return bool(keys)
