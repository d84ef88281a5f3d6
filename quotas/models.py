"""Plans, who has which, and the usage ledger. Models are named by slug: nothing points upwards."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from accounts.ids import new_id
from quotas.pricing import COST_DIGITS, COST_PLACES

WEIGHT_MAX: Final = 1_000
TOKENS_MAX: Final = 16 * 1024 * 1024
"""As an engine profile's context (generation.engines.profiles)."""

DAY_S: Final = 24 * 60 * 60


def _between(smallest: int, largest: int) -> list[MinValueValidator | MaxValueValidator]:
    return [MinValueValidator(smallest), MaxValueValidator(largest)]


class AtLimit(models.TextChoices):
    """What happens where a plan's messages for a model are used up."""

    SMALLER_MODEL = "smaller_model", "Answer with the smaller model, and say so"
    REFUSE = "refuse", "Refuse, and say when it is possible again"


class Plan(models.Model):
    """What a user may do. API customers have plans of their own, with their own weight.

    An empty limit is no limit. A plan without `PlanModel` rows has every model; with some it has
    those alone, and a row's number of messages stands before the plan's.
    """

    slug = models.SlugField(primary_key=True, max_length=64)
    title = models.CharField(max_length=100)
    is_default = models.BooleanField(default=False, help_text="For users without a subscription.")
    is_staff_default = models.BooleanField(
        default=False, help_text="For staff without a subscription."
    )
    is_paid = models.BooleanField(default=False, help_text="May use slots of the paid burst.")
    weight = models.PositiveIntegerField(
        default=1,
        validators=_between(1, WEIGHT_MAX),
        help_text="The plan's share of a busy pool, against the weights of the others.",
    )
    window_s = models.PositiveIntegerField(
        "rolling window (s)",
        default=3 * 60 * 60,
        validators=_between(60, 31 * DAY_S),
        help_text="Messages are counted over so many seconds.",
    )
    messages = models.PositiveIntegerField(
        "messages in the window",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="For each model. Empty: as many as they like.",
    )
    tokens_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)]
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)]
    )
    concurrent_runs = models.PositiveIntegerField(
        default=2,
        validators=_between(1, 1_000),
        help_text="Answers written at once in one pool; others of theirs wait.",
    )
    context_tokens = models.PositiveIntegerField(
        "context budget (tokens)", default=4_096, validators=_between(256, TOKENS_MAX)
    )
    answer_tokens = models.PositiveIntegerField(
        "answer room (tokens)",
        default=1_024,
        validators=_between(1, TOKENS_MAX),
        help_text="Part of the context budget.",
    )
    ttft_deadline_ms = models.PositiveIntegerField(
        "deadline to first text (ms)", default=5_000, validators=_between(100, 600_000)
    )
    at_limit = models.CharField(
        max_length=16, choices=AtLimit.choices, default=AtLimit.SMALLER_MODEL
    )
    smaller_model = models.SlugField(
        max_length=64, blank=True, help_text="The slug of the model that answers at a limit."
    )
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"],
                condition=Q(is_default=True),
                name="plan_one_default",
                violation_error_message="Another plan is the default one.",
            ),
            models.UniqueConstraint(
                fields=["is_staff_default"],
                condition=Q(is_staff_default=True),
                name="plan_one_staff_default",
                violation_error_message="Another plan is the staff's.",
            ),
            models.CheckConstraint(condition=Q(weight__gte=1), name="plan_weight_positive"),
            models.CheckConstraint(
                condition=Q(concurrent_runs__gte=1), name="plan_concurrent_runs_positive"
            ),
            models.CheckConstraint(
                condition=Q(answer_tokens__lt=F("context_tokens")),
                name="plan_answer_fits_context",
                violation_error_message="The answer room must be smaller than the context budget.",
            ),
            models.CheckConstraint(
                condition=Q(at_limit__in=AtLimit.values), name="plan_at_limit_known"
            ),
        ]

    def __str__(self) -> str:
        return self.title

    def clean(self) -> None:
        """Raises ValidationError where two fields do not go together."""
        super().clean()
        if self.at_limit == AtLimit.SMALLER_MODEL and not self.smaller_model:
            raise ValidationError({"smaller_model": "Name the model that answers at a limit."})


class PlanModel(models.Model):
    """A model that a plan has, and how many messages to it in the plan's rolling window."""

    id = models.BigAutoField(primary_key=True)
    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="models")
    model = models.SlugField(max_length=64, help_text="The model's slug.")
    messages = models.PositiveIntegerField(
        "messages in the window",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Empty: as the plan says.",
    )

    class Meta:
        verbose_name = "model of the plan"
        verbose_name_plural = "models of the plan"
        ordering = ["model"]
        constraints = [
            models.UniqueConstraint(fields=["plan", "model"], name="plan_model_once"),
            models.CheckConstraint(
                condition=Q(messages__isnull=True) | Q(messages__gte=1),
                name="plan_model_messages_positive",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.plan_id}: {self.model}"


class Subscription(models.Model):
    """Which plan a user has. Here, so that accounts know no plans."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="subscriptions")
    since = models.DateTimeField(default=timezone.now, editable=False)

    def __str__(self) -> str:
        return f"{self.user_id}: {self.plan_id}"


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
    # At the prices of the moment it ended, in settings.CURRENCY; null where none were known.
    cost = models.DecimalField(
        max_digits=COST_DIGITS, decimal_places=COST_PLACES, null=True, blank=True, editable=False
    )
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        indexes = [
            models.Index(fields=["user", "created"], name="usage_of_user"),
            # The admin's list and its filters, newest first.
            models.Index(fields=["user", "-id"], name="usage_list_of_user"),
            models.Index(fields=["model", "-id"], name="usage_list_of_model"),
        ]
        verbose_name_plural = "usage entries"

    def __str__(self) -> str:
        return f"{self.run_id}: {self.prompt_tokens} + {self.output_tokens} tokens"
