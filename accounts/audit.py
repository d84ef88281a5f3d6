"""The audit: who did what in the admin, to what, when and from where. Rows are never changed.

Entries hold ids, names of fields, and values of fields that are neither text nor secret. They are
written in the transaction of what they tell of: where an entry cannot be written, nothing happens.
"""

from __future__ import annotations

import datetime
import decimal
import logging
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from django.contrib.auth.models import Permission
from django.contrib.postgres.fields import ArrayField
from django.core.cache import cache
from django.db import connection, models, transaction
from django.http import HttpRequest
from redis.exceptions import RedisError

from accounts.ids import Prefix, external_id
from accounts.models import AuditEntry, User
from accounts.rate_limits import client_address

log = logging.getLogger(__name__)

Snapshot = dict[str, Any]
"""Field name → value as it is in Python. Never stored as it is: see `changes_of`."""

REFUSALS_EVERY_S: Final = 60
"""One person who tries one page a thousand times is one entry a minute: the table only grows."""

_PREFIXES: Final[dict[str, Prefix]] = {
    "accounts.user": "u",
    "accounts.apitoken": "t",
    "conversations.conversation": "c",
    "conversations.message": "m",
    "generation.run": "g",
}
_SECRET_WORDS = frozenset({"password", "digest", "secret", "salt", "reason", "title", "content"})
_SHOWN_FIELDS = (
    models.BooleanField,
    models.IntegerField,
    models.FloatField,
    models.DecimalField,
    models.DateField,
    models.TimeField,
    models.DurationField,
    models.UUIDField,
    models.SlugField,
    models.EmailField,
    models.ForeignKey,
    models.AutoField,
)
_SHOWN_VALUES = (
    *(bool, int, float, str, decimal.Decimal, uuid.UUID, type(None)),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta),
)


def record(
    request: HttpRequest,
    action: str,
    of: models.Model,
    changes: Mapping[str, object] | None = None,
) -> AuditEntry:
    """One entry, of the person who is signed in. Call it in the transaction of the change."""
    actor = cast("User", request.user)
    return record_of(actor, client_address(request), action, type_of(of), name_of(of), changes)


def record_of(
    actor: User,
    address: str,
    action: str,
    object_type: str = "",
    object_id: str = "",
    changes: Mapping[str, object] | None = None,
) -> AuditEntry:
    """`record` for a person who is not, or not yet, the request's own."""
    entry = AuditEntry.objects.create(
        actor_id=actor.pk,
        actor_email=actor.email,
        action=action[: AuditEntry.ACTION_CHARACTERS],
        object_type=object_type,
        # As somebody typed it into the address, perhaps: PostgreSQL holds no NUL.
        object_id=object_id.replace("\x00", "\N{REPLACEMENT CHARACTER}")[
            : AuditEntry.OBJECT_CHARACTERS
        ],
        changes=changes or {},
        address=address,
    )
    log.info(
        "%s by %s: %s %s",
        entry.action,
        actor.external_id,
        entry.object_type,
        entry.object_id,
        extra={"action": "audit"},
    )
    return entry


def record_refusal(request: HttpRequest) -> None:
    """Somebody tried to open what they may not. At most once a minute for each page and person."""
    user = request.user
    if not isinstance(user, User):
        return
    match = request.resolver_match
    page = match.view_name if match else ""
    wanted = str(match.kwargs.get("object_id", "")) if match else ""
    key = f"audit-refusal:{user.pk}:{page}"
    if not _is_noted(key):
        record_of(user, client_address(request), "refused", page[:100], wanted)
        _note(key)  # only now: an entry that could not be written is written the next time


def _is_noted(key: str) -> bool:
    try:
        return cache.get(key) is not None
    except (RedisError, OSError):
        return False  # rather twice than not at all


def _note(key: str) -> None:
    with suppress(RedisError, OSError):
        cache.set(key, 1, REFUSALS_EVERY_S)


# --- what changed ---------------------------------------------------------------------------------


def type_of(obj: models.Model | type[models.Model]) -> str:
    """`accounts.user`."""
    return obj._meta.label_lower


def name_of(obj: models.Model) -> str:
    """The external id where there is one, else the primary key."""
    prefix = _PREFIXES.get(type_of(obj))
    return external_id(prefix, obj.pk) if prefix else str(obj.pk)


def snapshot(obj: models.Model) -> Snapshot:
    """The loaded fields as they are, and which rows the many-to-many fields point at."""
    deferred = obj.get_deferred_fields()
    values: Snapshot = {
        field.name: getattr(obj, field.attname)
        for field in obj._meta.concrete_fields
        if field.attname not in deferred
    }
    for many in obj._meta.many_to_many:
        values[many.name] = sorted(_names(getattr(obj, many.name).all()))
    return values


def stored(obj: models.Model) -> Snapshot:
    """`snapshot` of the row as the database has it now; empty where it is gone."""
    rows = type(obj)._base_manager.defer(*obj.get_deferred_fields())
    row = rows.filter(pk=obj.pk).first()
    return {} if row is None else snapshot(row)


def _names(rows: Iterable[models.Model]) -> Iterable[str]:
    for row in rows:
        if isinstance(row, Permission):
            yield f"{row.content_type.app_label}.{row.codename}"
        else:
            yield name_of(row)


def changes_of(
    model: type[models.Model], before: Snapshot, after: Snapshot
) -> dict[str, list[object] | None]:
    """Field → [before, after]; None in its place where the values are text or secret."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {
        name: [_plain(before.get(name)), _plain(after.get(name))] if _shown(model, name) else None
        for name in names
    }


def _shown(model: type[models.Model], name: str) -> bool:
    """Free text and whatever sounds like a secret is named, not shown."""
    field = model._meta.get_field(name)
    if _SECRET_WORDS & set(name.split("_")):
        return False
    if isinstance(field, models.ManyToManyField):
        return True
    known = field.base_field if isinstance(field, ArrayField) else field
    return isinstance(field, _SHOWN_FIELDS) or bool(getattr(known, "choices", None))


def _plain(value: object) -> object:
    """What the JSON encoder of the column can write."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if isinstance(value, _SHOWN_VALUES) else str(value)


# --- signing in -----------------------------------------------------------------------------------


def note_sign_in(sender: object, request: HttpRequest, user: User, **kwargs: object) -> None:
    """Receiver of `user_logged_in`: administrators' sign-ins are noted, however they sign in."""
    if user.is_staff:
        where = client_address(request)
        record_of(user, where, "signed_in", type_of(user), name_of(user))


# --- keeping --------------------------------------------------------------------------------------


def forget(before: datetime.datetime) -> int:
    """Delete the entries older than `before`; the one way the database leaves open.

    The trigger asks for the setting below, and keeps what is younger than 90 days in any case.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL hearth.audit_retention = 'on'")
        cursor.execute("DELETE FROM accounts_auditentry WHERE at < %s", [before])
        return int(cursor.rowcount)
