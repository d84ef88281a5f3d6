"""Plans, who has which, and the usage ledger."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest

from accounts.admin_base import AuditedAdmin, ReadOnlyAdmin
from accounts.admin_filters import MadeSince
from accounts.ids import external_id
from quotas.models import Plan, PlanModel, Subscription, UsageEntry

# unfold is not typed; to the type checker it is what it derives from.
if TYPE_CHECKING:
    _PlanModelInline = admin.TabularInline[PlanModel, Plan]
else:
    from unfold.admin import TabularInline as _PlanModelInline


def money(amount: Decimal | None) -> str:
    """Six places and the currency: what single answers cost is far below a cent."""
    return "" if amount is None else f"{amount:.6f} {settings.CURRENCY}"


class PlanModelInline(_PlanModelInline):
    model = PlanModel
    fields = ("model", "messages")
    extra = 0


@admin.register(Plan)
class PlanAdmin(AuditedAdmin):
    list_display = (
        "slug",
        "title",
        "is_default",
        "is_staff_default",
        "is_paid",
        "weight",
        "concurrent_runs",
        "context_tokens",
        "ttft_deadline_ms",
        "at_limit",
    )
    inlines = (PlanModelInline,)
    readonly_fields = ("created",)
    search_fields = ("slug", "title")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "slug",
                    "title",
                    "is_default",
                    "is_staff_default",
                    "is_paid",
                    "weight",
                    "created",
                )
            },
        ),
        (
            "Limits",
            {
                "fields": (
                    "window_s",
                    "messages",
                    "tokens_per_minute",
                    "requests_per_minute",
                    "concurrent_runs",
                    "at_limit",
                    "smaller_model",
                )
            },
        ),
        ("Room", {"fields": ("context_tokens", "answer_tokens", "ttft_deadline_ms")}),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Plan | None = None) -> bool:
        """Not the default one: all who have no subscription would have no plan any more."""
        is_default = obj is not None and obj.is_default
        return not is_default and super().has_delete_permission(request, obj)

    def get_readonly_fields(self, request: object, obj: Plan | None = None) -> tuple[str, ...]:
        """The slug is the key: a new one would make a second plan."""
        return self.readonly_fields if obj is None else ("slug", *self.readonly_fields)


@admin.register(Subscription)
class SubscriptionAdmin(AuditedAdmin):
    list_display = ("user", "plan", "since")
    list_filter = (MadeSince, "plan")
    list_select_related = ("user", "plan")
    ordering = ("-id",)
    autocomplete_fields = ("user", "plan")
    readonly_fields = ("since",)
    search_ids = {"u": "user_id"}
    search_user = "user"
    search_help_text = "The user's u_… id or whole e-mail address."


@admin.register(UsageEntry)
class UsageEntryAdmin(ReadOnlyAdmin):
    list_display = (
        "created",
        "user",
        "run",
        "model",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "costs",
    )
    list_filter = (MadeSince,)
    list_select_related = ("user",)
    ordering = ("-id",)
    search_ids = {"g": "run_id", "u": "user_id"}
    search_user = "user"
    search_help_text = "g_… or u_… id, or the user's whole e-mail address."
    fields = readonly_fields = (
        "user",
        "run",
        "model",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "costs",
        "created",
    )

    @admin.display(description="run")
    def run(self, entry: UsageEntry) -> str:
        return external_id("g", entry.run_id)

    @admin.display(description="cost")
    def costs(self, entry: UsageEntry) -> str:
        return money(entry.cost)
