"""What is served where, and the runs: their times and counts, never their text."""

from __future__ import annotations

from django.contrib import admin

from accounts.admin_base import ReadOnlyAdmin
from generation.models import Model, Pool, Replica, Run


@admin.register(Model)
class ModelAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    list_display = ["slug", "title", "enabled", "is_default", "context_tokens", "answer_tokens"]
    list_filter = ["enabled"]


@admin.register(Pool)
class PoolAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    list_display = ["slug", "model", "region", "profile", "silence_s"]
    list_select_related = ["model"]


@admin.register(Replica)
class ReplicaAdmin(ReadOnlyAdmin):
    list_display = ["name", "pool", "healthy", "detail", "running", "slots", "heartbeat"]
    list_filter = ["pool", "healthy"]


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    list_display = [
        "external_id",
        "status",
        "finish",
        "model_used",
        "replica",
        "queued_at",
        "finished_at",
        "output_tokens",
    ]
    list_filter = ["status", "finish", "model_used", "pool"]
    date_hierarchy = "queued_at"
