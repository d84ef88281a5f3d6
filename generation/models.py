"""What is served where, and the runs: one attempt each at an assistant message."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.ids import external_id, new_id
from conversations.models import Conversation, Message
from generation.run_state import ENDED, STATUS_OF_FINISH, STATUSES
from quotas.limits import Standing
from quotas.pricing import COST_DIGITS, COST_PLACES, PRICE_DIGITS, PRICE_PLACES, Prices


def _price(what: str) -> models.DecimalField[Any, Any]:
    """Per million tokens, in settings.CURRENCY."""
    return models.DecimalField(
        f"price of a million {what} tokens",
        max_digits=PRICE_DIGITS,
        decimal_places=PRICE_PLACES,
        default=Decimal(0),
        validators=[MinValueValidator(0)],
    )


OWN_POOL = (
    "A fallback is another model's pool: each pool of the model itself is used while it is healthy."
)


class Model(models.Model):
    """A model people can choose, by slug."""

    slug = models.SlugField(primary_key=True, max_length=64)
    title = models.CharField(max_length=100)
    enabled = models.BooleanField(default=True)
    is_default = models.BooleanField(default=False)
    context_tokens = models.PositiveIntegerField(default=4096, validators=[MinValueValidator(256)])
    answer_tokens = models.PositiveIntegerField(default=1024, validators=[MinValueValidator(1)])
    fallback = models.ForeignKey(
        "Pool",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Another model's pool, which answers while no replica of this one is healthy. "
        "That model's own fallback is not looked at. It need not be enabled.",
    )
    price_input = _price("prompt")
    price_cached = _price("cached prompt")
    price_cache_write = _price("prompt (written to the cache)")
    price_output = _price("answer")
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=Q(is_default=True), name="model_one_default"
            ),
            models.CheckConstraint(
                condition=Q(
                    price_input__gte=0,
                    price_cached__gte=0,
                    price_cache_write__gte=0,
                    price_output__gte=0,
                ),
                name="model_prices_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return self.title

    def clean(self) -> None:
        if self.fallback is not None and self.fallback.model_id == self.slug:
            raise ValidationError({"fallback": OWN_POOL})

    @property
    def prices(self) -> Prices:
        return Prices(
            self.price_input, self.price_cached, self.price_cache_write, self.price_output
        )


class Pool(models.Model):
    """The replicas that serve one model in one region. `profile` names an engine profile of the
    environment (ENGINE_PROFILES); command lines and addresses are never here."""

    slug = models.SlugField(primary_key=True, max_length=64)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="pools")
    region = models.CharField(max_length=64, default="local")
    profile = models.CharField(max_length=64)
    is_paused = models.BooleanField(
        default=False, help_text="No run is begun there; what is sent waits in its queue."
    )
    round_trip_ms = models.PositiveIntegerField(
        "round trip (ms)",
        default=0,
        validators=[MaxValueValidator(60_000)],
        help_text="What an answer takes longer for people of another region.",
    )
    silence_s = models.FloatField(
        default=30,
        validators=[MinValueValidator(1), MaxValueValidator(3600)],
        help_text="An engine silent for longer is given up.",
    )

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug

    def clean(self) -> None:
        if self.slug and Model.objects.filter(slug=self.model_id, fallback=self.slug).exists():
            raise ValidationError({"model": OWN_POOL})


class Replica(models.Model):
    """One engine of a pool, announced by the worker that drives it and kept fresh by heartbeat.

    `pool` is what its worker says; `wanted_pool` what an administrator has told it since, also
    after a restart. Empty: the pool of the worker's environment. `is_draining` is told the same
    way: it begins no run, and those that it has go on to their end. `started` also says whose row
    it is: of two processes by one name the later one writes it.
    """

    name = models.SlugField(primary_key=True, max_length=100)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="replicas")
    wanted_pool = models.ForeignKey(
        Pool, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    is_draining = models.BooleanField("draining", default=False, db_default=False)
    slots = models.PositiveIntegerField(default=1)
    paid_burst = models.PositiveIntegerField(default=0, db_default=0)
    healthy = models.BooleanField(default=False)
    detail = models.CharField(max_length=200, blank=True)
    running = models.PositiveIntegerField(default=0)
    started = models.DateTimeField(default=timezone.now)
    heartbeat = models.DateTimeField(default=timezone.now)
    # In this pool; empty again where it leaves on purpose.
    last_healthy = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Run(models.Model):
    """One attempt at an assistant message. Every transition is a guarded update (generation.runs).

    `reply_id` is allotted at send; the reply row is inserted when the run ends. `opening_seq` is
    the number of events written under epoch 0 (by the send, and by a move to another model's
    queue); `last_seq` is the seq of `done`.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Without indexes of their own: the lists' indexes below begin with owner, conversation, pool.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="runs", db_index=False
    )
    parent = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="runs")
    reply_id = models.UUIDField(default=new_id, unique=True, editable=False)
    # The reply whose text this one begins with. No foreign key: the text is looked up once or
    # twice, and where its message is gone the answer begins empty.
    continues_id = models.UUIDField(null=True, blank=True, editable=False)
    model_asked = models.SlugField(max_length=64)
    model_used = models.SlugField(max_length=64)
    # Where it was moved in the queue: what `start` has named. A seq never names two things.
    model_begun = models.SlugField(
        max_length=64, blank=True, default="", db_default="", db_index=False
    )
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="runs", db_index=False)
    replica = models.CharField(max_length=100, blank=True)
    status = models.CharField(max_length=16, default="queued", choices=[(s, s) for s in STATUSES])
    finish = models.CharField(max_length=16, blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    epoch = models.PositiveIntegerField(default=0)
    # How often in a row an engine has failed it without another word.
    failures = models.PositiveSmallIntegerField(default=0, db_default=0, editable=False)
    opening_seq = models.PositiveIntegerField(default=1)
    notices = models.JSONField(default=list, blank=True)
    last_seq = models.PositiveBigIntegerField(null=True, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    # What the plan of its moment and admission have given it. Weights and caps are read when it is
    # queued; these stay as they were.
    plan = models.SlugField(max_length=64, blank=True, default="", db_default="", db_index=False)
    answer_tokens = models.PositiveIntegerField(default=1024)
    context_tokens = models.PositiveIntegerField(null=True, blank=True)  # null: the model's
    reserved_tokens = models.PositiveIntegerField(default=0, db_default=0)
    ttft_deadline_ms = models.PositiveIntegerField(null=True, blank=True)
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    # At the prices of the moment it ended, in settings.CURRENCY: later prices change no old run.
    cost = models.DecimalField(
        max_digits=COST_DIGITS, decimal_places=COST_PLACES, null=True, blank=True, editable=False
    )
    queued_at = models.DateTimeField(default=timezone.now, editable=False)
    claimed_at = models.DateTimeField(null=True, blank=True)
    first_text_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["pool", "id"],
                name="run_live_of_pool",
                condition=Q(status__in=["queued", "running"]),
            ),
            models.Index(
                fields=["owner"],
                name="run_live_of_owner",
                condition=Q(status__in=["queued", "running"]),
            ),
            models.Index(fields=["conversation", "status"], name="run_of_conversation"),
            # The admin's list and its filters, newest first.
            models.Index(fields=["status", "-id"], name="run_list_of_status"),
            models.Index(fields=["finish", "-id"], name="run_list_of_finish"),
            models.Index(fields=["model_used", "-id"], name="run_list_of_model"),
            models.Index(fields=["pool", "-id"], name="run_list_of_pool"),
            models.Index(fields=["owner", "-id"], name="run_list_of_owner"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["queued", "running"], finish="", last_seq__isnull=True)
                | Q(status__in=sorted(ENDED), last_seq__isnull=False, finished_at__isnull=False),
                name="run_ended_has_last_seq",
            ),
            models.CheckConstraint(
                condition=Q(finish="")
                | Q(
                    *[
                        Q(finish=finish, status=status)
                        for finish, status in STATUS_OF_FINISH.items()
                    ],
                    _connector=Q.OR,
                ),
                name="run_finish_fits_status",
            ),
        ]

    # How its owner's limits stood after the send that made it; no column.
    standing: Standing | None = None

    def __str__(self) -> str:
        return self.external_id

    @property
    def external_id(self) -> str:
        return external_id("g", self.id)


class RunCheckpoint(models.Model):
    """The released text of a long run, as of `seq` under `epoch`; gone with the run's end.

    `is_whole`: nobody owned the run when it was kept, so that its log holds no more than this.
    Written only by generation.checkpoints, whose guard decides between two owners.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="+")
    epoch = models.PositiveIntegerField()
    seq = models.PositiveBigIntegerField()
    content = models.BinaryField()
    output_tokens = models.PositiveIntegerField()
    is_whole = models.BooleanField(default=False)
    saved = models.DateTimeField(default=timezone.now, editable=False)

    def __str__(self) -> str:
        return str(self.run_id)


class IdempotencyKey(models.Model):
    """A client's key for one send; kept 24 h. Refusals are not remembered."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    body_digest = models.BinaryField(max_length=32)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    created = models.DateTimeField(default=timezone.now, editable=False, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_of_user")
        ]

    def __str__(self) -> str:
        return str(self.run_id)
