"""The usage ledger. Plans and limits stand beside it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from accounts.ids import new_id


class UsageEntry(models.Model):
    """What one run has used. Append-only; written in the transaction that ends the run.

    It names the run by bare id, so that it survives the conversation it paid for.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    run_id = models.UUIDField(unique=True, editable=False)
    model = models.SlugField(max_length=64)
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        indexes = [models.Index(fields=["user", "created"], name="usage_of_user")]
        verbose_name_plural = "usage entries"

    def __str__(self) -> str:
        return f"{self.run_id}: {self.prompt_tokens} + {self.output_tokens} tokens"
