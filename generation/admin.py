"""What is served where, and the runs: their times, counts and costs, never their text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path

from accounts.admin_base import AuditedAdmin, ReadOnlyAdmin, verb
from accounts.admin_filters import MadeSince, ValueFilter
from accounts.ids import external_id
from accounts.models import User
from generation import stopping
from generation.engines import EngineProfile, parse_profiles
from generation.models import Model, Pool, Replica, Run
from generation.run_state import STATUS_OF_FINISH, STATUSES
from quotas.admin import money

# unfold is not typed; to the type checker these are what they derive from.
if TYPE_CHECKING:
    from django.contrib.admin.helpers import ActionForm
    from django.forms import Select as UnfoldAdminSelectWidget
else:
    from unfold.forms import ActionForm
    from unfold.widgets import UnfoldAdminSelectWidget


@admin.register(Model)
class ModelAdmin(AuditedAdmin):
    list_display = (
        "slug",
        "title",
        "enabled",
        "is_default",
        "context_tokens",
        "answer_tokens",
        "fallback",
        "input_price",
        "output_price",
    )
    list_filter = ("enabled",)
    search_fields = ("slug", "title")
    list_select_related = ("fallback",)
    readonly_fields = ("currency", "created")
    fieldsets = (
        (None, {"fields": ("slug", "title", "enabled", "is_default", "created")}),
        ("Room", {"fields": ("context_tokens", "answer_tokens")}),
        ("While no replica is healthy", {"fields": ("fallback",)}),
        (
            "Prices of a million tokens",
            {
                "fields": (
                    "currency",
                    "price_input",
                    "price_cached",
                    "price_cache_write",
                    "price_output",
                ),
                "description": "A run's cost is worked out once, when it ends. New prices change "
                "no run that has ended.",
            },
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """The slug is the key: a new one would make a second model."""
        return self.readonly_fields if obj is None else ("slug", *self.readonly_fields)

    @admin.display(description="currency")
    def currency(self, model: Model) -> str:
        return str(settings.CURRENCY)

    @admin.display(description="prompt, per million", ordering="price_input")
    def input_price(self, model: Model) -> str:
        return money(model.price_input)

    @admin.display(description="answer, per million", ordering="price_output")
    def output_price(self, model: Model) -> str:
        return money(model.price_output)


@admin.register(Pool)
class PoolAdmin(AuditedAdmin):
    """Also the page of the engine profiles that pools name."""

    list_display = ("slug", "model", "region", "profile", "profile_found", "silence_s")
    list_filter = ("region",)
    list_select_related = ("model",)
    search_fields = ("slug",)

    def get_readonly_fields(self, request: HttpRequest, obj: Pool | None = None) -> Any:
        return () if obj is None else ("slug",)

    def get_urls(self) -> list[Any]:
        page = self.admin_site.admin_view(self.engine_profiles)
        own = path("engine-profiles/", page, name="generation_engine_profiles")
        return [own, *super().get_urls()]

    @admin.display(description="profile there", boolean=True)
    def profile_found(self, pool: Pool) -> bool:
        return pool.profile in parse_profiles(settings.ENGINE_PROFILES)

    def engine_profiles(self, request: HttpRequest) -> HttpResponse:
        """What ENGINE_PROFILES holds: never a key, a path of a URL, or the value of an option."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        profiles = parse_profiles(settings.ENGINE_PROFILES)
        pools = list(Pool.objects.order_by("slug"))
        used = {name: [p.slug for p in pools if p.profile == name] for name in profiles}
        context = {
            **self.admin_site.each_context(request),
            "title": "Engine profiles",
            "opts": self.opts,
            "profiles": [_profile_row(one, used[one.name]) for one in profiles.values()],
            "missing": [pool for pool in pools if pool.profile not in profiles],
        }
        return TemplateResponse(request, "admin/generation/engine_profiles.html", context)


def _profile_row(profile: EngineProfile, pools: list[str]) -> dict[str, object]:
    return {
        "name": profile.name,
        "kind": profile.kind,
        "model": profile.model,
        "slots": profile.slots,
        "context_tokens": profile.context_tokens,
        "host": _host(profile.url),
        "options": ", ".join(sorted(profile.options)),
        "pools": ", ".join(pools),
    }


def _host(url: str) -> str:
    """At most the host and port: a path may be a socket's or carry a key."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return "a unix socket"
    return parts.netloc.rpartition("@")[2]


HOME: Final = ":home"  # no slug


class MoveForm(ActionForm):
    """The bar below the list: a verb, and the pool that `move` moves to."""

    pool = forms.ChoiceField(
        required=False,
        label="",  # its words are the first choice's: a label would stand above it
        widget=UnfoldAdminSelectWidget(
            {
                "class": ActionForm.base_fields["action"].widget.attrs.get("class", ""),
                "aria-label": "Pool to move to",
            }
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        pools = Pool.objects.select_related("model").order_by("slug")
        self.fields["pool"].choices = [  # type: ignore[attr-defined]  # of a Field it does not know
            ("", "to the pool …"),
            *((pool.slug, f"{pool.slug} ({pool.model.title})") for pool in pools),
            (HOME, "the pool of its worker's environment"),
        ]


@admin.register(Replica)
class ReplicaAdmin(ReadOnlyAdmin):
    """Replicas as their workers announce them; one can be moved to another pool while it runs."""

    list_display = (
        "name",
        "pool",
        "wanted_pool",
        "healthy",
        "detail",
        "running",
        "slots",
        "paid_burst",
        "heartbeat",
    )
    list_filter = ("pool", "healthy")
    search_fields = ("name",)
    actions = ("move",)
    action_form = MoveForm

    def has_move_permission(self, request: HttpRequest) -> bool:
        return cast("User", request.user).has_perm("generation.change_replica")

    @verb("Move the selected replicas", done="Asked to move", permissions=["move"])
    def move(self, request: HttpRequest, replica: Replica) -> bool:
        """Its worker sees it within seconds. False where it is wanted there already.

        Not where it is: it may be on its way home, and is told to stay.
        """
        chosen = request.POST.get("pool", "")
        wanted = None if chosen == HOME else Pool.objects.filter(slug=chosen).first()
        if wanted is None and chosen != HOME:
            messages.error(request, "Choose the pool to move to.")
            return False
        # What the list has shown: of two administrators one moves it.
        same = Replica.objects.filter(name=replica.name, wanted_pool=replica.wanted_pool_id)
        return same.exclude(wanted_pool=wanted).update(wanted_pool=wanted) == 1


class StatusFilter(ValueFilter):
    title = parameter_name = column = "status"

    def values(self) -> Iterable[tuple[str, str]]:
        return [(status, status) for status in STATUSES]


class FinishFilter(ValueFilter):
    title = parameter_name = column = "finish"

    def values(self) -> Iterable[tuple[str, str]]:
        return [(finish, finish) for finish in STATUS_OF_FINISH]


class ModelFilter(ValueFilter):
    title = "model"
    parameter_name = "model"
    column = "model_used"

    def values(self) -> Iterable[tuple[str, str]]:
        return [(slug, slug) for slug in Model.objects.values_list("slug", flat=True)]


class PoolFilter(ValueFilter):
    title = "pool"
    parameter_name = "pool"
    column = "pool"

    def values(self) -> Iterable[tuple[str, str]]:
        return [(slug, slug) for slug in Pool.objects.values_list("slug", flat=True)]


def _span(start: datetime | None, end: datetime | None) -> str:
    """ "340 ms", "12.4 s"; empty while one of the two has not come."""
    if start is None or end is None:
        return ""
    ms = (end - start).total_seconds() * 1000
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs, newest first; a live one can be stopped."""

    list_display = (
        "run",
        "owner",
        "status",
        "finish",
        "queued_at",
        "model_used",
        "in_pool",
        "waited",
        "first_text",
        "took",
        "tokens",
        "costs",
    )
    list_filter = (MadeSince, StatusFilter, FinishFilter, ModelFilter, PoolFilter)
    list_select_related = ("owner",)
    ordering = ("-id",)
    search_ids = {"g": "id", "c": "conversation_id", "u": "owner_id"}
    search_user = "owner"
    search_help_text = "g_…, c_… or u_… id, or the owner's whole e-mail address."
    actions = ("stop",)
    fieldsets = (
        (None, {"fields": ("run", "owner", "in_conversation", "reply", "continues")}),
        (
            "What became of it",
            {"fields": ("status", "finish", "error_code", "stop_requested_at", "epoch")},
        ),
        ("Where", {"fields": ("model_asked", "model_used", "in_pool", "replica")}),
        (
            "When",
            {
                "fields": (
                    "queued_at",
                    "claimed_at",
                    "first_text_at",
                    "finished_at",
                    "waited",
                    "first_text",
                    "took",
                )
            },
        ),
        (
            "What it used",
            {"fields": ("answer_tokens", "prompt_tokens", "cached_tokens", "output_tokens")},
        ),
        ("What it cost", {"fields": ("costs",)}),
    )
    readonly_fields = tuple(
        name for _, group in fieldsets for name in cast("tuple[str, ...]", group["fields"])
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        rows: QuerySet[Run] = super().get_queryset(request)
        return rows.defer("notices")

    def has_stop_permission(self, request: HttpRequest) -> bool:
        return cast("User", request.user).has_perm("generation.change_run")

    @verb("Stop the selected runs", done="Asked to stop", permissions=["stop"])
    def stop(self, request: HttpRequest, run: Run) -> bool:
        """Live runs only. Recorded with the audit entry; told once both are committed."""
        if not stopping.record_stop(run):
            return False
        transaction.on_commit(lambda: stopping.stop_run(run))
        return True

    @admin.display(description="run", ordering="id")
    def run(self, run: Run) -> str:
        return run.external_id

    @admin.display(description="pool")
    def in_pool(self, run: Run) -> str:
        return str(run.pool_id)

    @admin.display(description="conversation")
    def in_conversation(self, run: Run) -> str:
        return external_id("c", run.conversation_id)

    @admin.display(description="reply")
    def reply(self, run: Run) -> str:
        return external_id("m", run.reply_id)

    @admin.display(description="continues")
    def continues(self, run: Run) -> str:
        return external_id("m", run.continues_id) if run.continues_id else ""

    @admin.display(description="waited")
    def waited(self, run: Run) -> str:
        return _span(run.queued_at, run.claimed_at)

    @admin.display(description="to first text")
    def first_text(self, run: Run) -> str:
        return _span(run.queued_at, run.first_text_at)

    @admin.display(description="took")
    def took(self, run: Run) -> str:
        return _span(run.queued_at, run.finished_at)

    @admin.display(description="tokens (prompt + answer)")
    def tokens(self, run: Run) -> str:
        return f"{run.prompt_tokens} + {run.output_tokens}"

    @admin.display(description="cost")
    def costs(self, run: Run) -> str:
        return money(run.cost)
