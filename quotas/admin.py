"""The usage ledger, to be read."""

from __future__ import annotations

from django.contrib import admin

from accounts.admin_base import ReadOnlyAdmin
from quotas.models import UsageEntry


@admin.register(UsageEntry)
class UsageEntryAdmin(ReadOnlyAdmin):
    list_display = ["created", "user", "model", "prompt_tokens", "cached_tokens", "output_tokens"]
    list_filter = ["model"]
    list_select_related = ["user"]
