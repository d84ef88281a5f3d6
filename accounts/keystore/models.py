"""Wrapped data keys (in the keys database) and the list of those destroyed (in the other one).

No foreign keys: the two databases share no transaction. `accounts.routers` says which is where.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone


class DataKey(models.Model):
    """One user's data key, wrapped by the master key `master_key_id`.

    A destroyed key leaves its row behind, so that no process makes a second one in its place.
    """

    owner_id = models.UUIDField(primary_key=True, editable=False)
    wrapped = models.BinaryField(max_length=60, null=True, editable=False)
    master_key_id = models.CharField(max_length=32, blank=True, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)
    destroyed_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["master_key_id", "owner_id"], name="data_key_by_master")]
        constraints = [
            models.CheckConstraint(
                condition=Q(wrapped__isnull=False, destroyed_at__isnull=True) & ~Q(master_key_id="")
                | Q(wrapped__isnull=True, destroyed_at__isnull=False, master_key_id=""),
                name="data_key_whole_or_destroyed",
            )
        ]

    def __str__(self) -> str:
        return str(self.owner_id)


class Destruction(models.Model):
    """That this user's key was to be destroyed: kept beside the content, so that a key which
    comes back with a restored keys database is found and destroyed again.
    """

    owner_id = models.UUIDField(primary_key=True, editable=False)
    asked = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.owner_id)
