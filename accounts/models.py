"""Organisations, users and API tokens."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Self

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from accounts import scopes
from accounts.ids import external_id, new_id


class Organisation(models.Model):
    """Whose people these are: residency, retention, training flag, cache salt."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=200)
    residency = models.CharField(max_length=64, blank=True, help_text="Text never leaves it.")
    retention_days = models.PositiveIntegerField(null=True, blank=True)
    no_training = models.BooleanField(default=True)
    cache_salt = models.CharField(max_length=64, blank=True)
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class UserManager(BaseUserManager["User"]):
    """Users are named by their e-mail address, compared without regard to case."""

    def get_by_natural_key(self, username: str | None) -> User:
        # As the unique index compares. `iexact` uses UPPER, which takes a dotless i for an i: it
        # would find two people, or another one.
        lowered = self.annotate(lower_email=Lower("email"))
        return lowered.get(lower_email=(username or "").lower())

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A saved user; without `password`, one who cannot sign in by password."""
        user = self.model(email=self.normalize_email(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A saved user who may do everything, in the admin too."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person who signs in. The e-mail address is the login."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=150, blank=True)
    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, null=True, blank=True, related_name="users"
    )
    home_region = models.CharField(max_length=64, blank=True)
    preferences = models.JSONField(default=dict, blank=True)
    is_staff = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    date_joined = models.DateTimeField(default=timezone.now, editable=False)

    objects = UserManager()

    # True on the object while a sign-up saves it: its address is confirmed by a mail.
    confirms_address_later = False

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        constraints = [
            models.UniqueConstraint(
                Lower("email"),
                name="accounts_user_email_unique",
                violation_error_message="There is an account with this address already.",
            )
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stored: dict[str, Any] = {}  # column → value that the database is known to hold

    def __str__(self) -> str:
        return self.email

    @classmethod
    def from_db(
        cls, db: str | None, field_names: Collection[str], values: Collection[Any], **more: Any
    ) -> Self:
        user = super().from_db(db, field_names, values, **more)
        user._remember(field_names)
        return user

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        super().refresh_from_db(*args, **kwargs)
        names = args[1] if len(args) > 1 else kwargs.get("fields")
        self._remember(self._columns(names))

    def save(self, *, update_fields: Iterable[str] | None = None, **kwargs: Any) -> None:
        """Of a row that is there already, writes only what was changed on this object.

        It was read when a request began. A whole row would undo what administrators changed since:
        somebody who was disabled would be back. Packages save whole users in several places.
        """
        if update_fields is None and not self._state.adding and not kwargs.get("force_insert"):
            update_fields = self._changed()
        if update_fields is not None:
            update_fields = list(update_fields)
        super().save(update_fields=update_fields, **kwargs)
        self._remember(self._columns(update_fields))

    def _columns(self, names: Iterable[str] | None) -> list[str]:
        fields = self._meta.concrete_fields
        wanted = None if names is None else set(names)
        return [f.attname for f in fields if wanted is None or wanted & {f.name, f.attname}]

    def _changed(self) -> list[str]:
        held, stored = self.__dict__, self._stored
        return [
            field.name
            for field in self._meta.concrete_fields
            if not field.primary_key
            and field.attname in held  # else deferred
            and (field.attname not in stored or held[field.attname] != stored[field.attname])
        ]

    def _remember(self, columns: Iterable[str]) -> None:
        held = self.__dict__
        self._stored.update((name, copy.deepcopy(held[name])) for name in columns if name in held)

    def clean(self) -> None:
        """Raises ValidationError also for what a field's own validators never see: [], null."""
        super().clean()
        if not isinstance(self.preferences, dict):
            raise ValidationError({"preferences": "This must be a JSON object; {} if empty."})

    @property
    def external_id(self) -> str:
        """`u_` and 32 hex digits, as the API and the logs name a user."""
        return external_id("u", self.id)

    def get_short_name(self) -> str:
        return self.name or self.email.partition("@")[0]


def all_scopes() -> list[str]:
    """What an API token may do where nobody chose less."""
    return list(scopes.ALL)


class ApiToken(models.Model):
    """A program's key to the API. Only a hash is stored; the secret is shown once."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    scopes = ArrayField(
        models.CharField(max_length=16, choices=[(scope, scope) for scope in scopes.ALL]),
        default=all_scopes,
        help_text="read, or read,write.",
    )
    created = models.DateTimeField(default=timezone.now, editable=False)
    expires = models.DateTimeField(null=True, blank=True)
    revoked = models.DateTimeField(null=True, blank=True, editable=False)
    last_used = models.DateTimeField(null=True, blank=True, editable=False)
    # The API token that took this one's place; this one ends at `expires`.
    replaced_by = models.OneToOneField(
        "self", on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="+"
    )

    class Meta:
        ordering = ["-created"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scopes__contained_by=list(scopes.ALL), scopes__len__gte=1),
                name="accounts_apitoken_scopes",
                violation_error_message="The scopes are read and write; at least one.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"

    @property
    def external_id(self) -> str:
        """`t_` and 32 hex digits; the secret begins with t_ too, and is another thing."""
        return external_id("t", self.id)


class AuditEntry(models.Model):
    """One thing an administrator did, or was refused. Only ever inserted (see `accounts.audit`).

    Names its actor and object by bare ids: an entry outlives both. A trigger of the database
    refuses changes and deletions.
    """

    ACTION_CHARACTERS = 64
    OBJECT_CHARACTERS = 100

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    at = models.DateTimeField(default=timezone.now, editable=False)
    actor_id = models.UUIDField(editable=False)
    actor_email = models.CharField(max_length=254, editable=False)  # as it was then
    action = models.CharField(max_length=ACTION_CHARACTERS, editable=False)
    object_type = models.CharField(max_length=100, blank=True, editable=False)
    object_id = models.CharField(max_length=OBJECT_CHARACTERS, blank=True, editable=False)
    # Field → [before, after], or null where the values are text or secret.
    changes = models.JSONField(default=dict, encoder=DjangoJSONEncoder, editable=False)
    address = models.CharField(max_length=64, blank=True, editable=False)

    class Meta:
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["object_type", "object_id", "-id"], name="audit_of_object"),
            models.Index(fields=["actor_id", "-id"], name="audit_of_actor"),
            models.Index(fields=["action", "-id"], name="audit_of_action"),
            models.Index(fields=["at"], name="audit_at"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_type} {self.object_id}".strip()
