"""Filters of long lists: each is answered from an index and asks the table for no choices."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone


def first_id_at(moment: datetime) -> uuid.UUID:
    """The smallest UUIDv7 made at `moment` (RFC 9562: 48 bits of ms, then version and variant)."""
    ms = int(moment.timestamp() * 1000)
    return uuid.UUID(int=(ms << 80) | (0x7 << 76) | (0b10 << 62))


class MadeSince(admin.SimpleListFilter):
    """Rows by when they were made, read off their UUIDv7: the primary key is the index."""

    title = "made"
    parameter_name = "since"
    SPANS: ClassVar[dict[str, tuple[str, timedelta]]] = {
        "hour": ("in the last hour", timedelta(hours=1)),
        "day": ("in the last 24 hours", timedelta(days=1)),
        "week": ("in the last 7 days", timedelta(days=7)),
        "month": ("in the last 30 days", timedelta(days=30)),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(key, label) for key, (label, _) in self.SPANS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        span = self.SPANS.get(self.value() or "")
        if span is None:
            return queryset
        return queryset.filter(pk__gte=first_id_at(timezone.now() - span[1]))


class ValueFilter(admin.SimpleListFilter):
    """One column equal to one of known values. Subclasses set `title`, `column` and `values`."""

    column: ClassVar[str]

    def values(self) -> Iterable[tuple[str, str]]:
        """(value, label) of each choice."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return list(self.values())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        wanted = self.value()
        if wanted is None:
            return queryset
        known = wanted in {value for value, _ in self.lookup_choices}
        return queryset.filter(**{self.column: wanted}) if known else queryset.none()
