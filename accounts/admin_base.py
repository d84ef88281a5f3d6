"""What the admin pages of all apps share: audit, bounded lists, search by external id."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import models, transaction
from django.db.models import ForeignObjectRel, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from django.utils.text import capfirst

from accounts import audit
from accounts.ids import InvalidId, Prefix, parse_id
from accounts.models import AuditEntry, User

COUNTED_ROWS: Final = 5_000
"""A list counts and pages so far; beyond it people search and filter."""

MAX_ROWS_PER_ACTION: Final = 1_000
"""Each row of an action has an audit entry in the same transaction."""

HISTORY_ENTRIES: Final = 200

_AUDITS_ITSELF = "audits_itself"

# unfold is not typed; to the type checker it is what it derives from.
if TYPE_CHECKING:
    UnfoldModelAdmin = admin.ModelAdmin[Any]
else:
    from unfold.admin import ModelAdmin as UnfoldModelAdmin


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # not generic at run time
    """Counts no further than COUNTED_ROWS: a count of everything would cost more than the page."""

    @cached_property
    def count(self) -> int:
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[:COUNTED_ROWS].count()


class AuditedAdmin(UnfoldModelAdmin):
    """The base of every admin: whatever is done through it leaves audit entries.

    The site takes no other. Adding, changing and deleting are noted where Django notes them, in
    the same transaction; an entry of an action names each of its rows.
    """

    list_per_page = 50
    list_max_show_all = 50
    list_fullwidth = True
    show_full_result_count = False
    paginator = CappedPaginator
    counted_rows = COUNTED_ROWS  # for the page's head
    # External id → the field that holds the UUID: {"g": "id", "c": "conversation_id"}.
    search_ids: ClassVar[dict[Prefix, str]] = {}
    # The field that points at a user, for searches by e-mail address.
    search_user: ClassVar[str] = ""

    # --- search -----------------------------------------------------------------------------------

    def get_search_fields(self, request: HttpRequest) -> Any:
        """Not empty where ids are searched, so that the page has a search field."""
        fields = super().get_search_fields(request)
        return fields or (("pk",) if self.search_ids or self.search_user else ())

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By external id or e-mail address, from an index; by words only where there are any."""
        term = search_term.strip()
        if not term or not (self.search_ids or self.search_user):
            return super().get_search_results(request, queryset, search_term)
        conditions = self._id_conditions(term)
        if conditions is not None:
            return queryset.filter(**conditions), False
        if self.search_fields:
            return super().get_search_results(request, queryset, search_term)
        return queryset.none(), False

    def _id_conditions(self, term: str) -> dict[str, object] | None:
        for prefix, field in self.search_ids.items():
            try:
                return {field: parse_id(prefix, term)}
            except InvalidId:
                continue
        if self.search_user and "@" in term:
            return {f"{self.search_user}__in": _users_of(term)}
        try:
            return {"pk": uuid.UUID(term)} if self.search_ids else None
        except ValueError:
            return None

    # --- audit ------------------------------------------------------------------------------------

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        found: Any = super().get_object(request, object_id, from_field)
        if found is not None and request.method == "POST":
            found.audit_before = audit.snapshot(found)
        return found

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Called once for each form saved, with the rows edited inline."""
        for formset in formsets or ():
            _record_inline(request, formset)
        message: list[dict[str, Any]] = super().construct_change_message(
            request, form, formsets, add
        )
        return message

    # Django's own log is not written: it keeps what objects are called, and can be changed.

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]
        changes = audit.changes_of(type(obj), {}, audit.stored(obj))
        audit.record(request, "add", obj, changes)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]
        before = vars(obj).pop("audit_before", {})
        changes = audit.changes_of(type(obj), before, audit.stored(obj))
        audit.record(request, self._change_name(request), obj, changes)

    def _change_name(self, request: HttpRequest) -> str:
        return "change"

    def log_deletions(self, request: HttpRequest, queryset: Iterable[Any]) -> None:  # type: ignore[override]
        for obj in queryset:
            changes = audit.changes_of(type(obj), audit.snapshot(obj), {})
            audit.record(request, "delete", obj, changes)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions: dict[str, Any] = super().get_actions(request)
        return {
            name: (_audited(action, name), name, description)
            for name, (action, _, description) in actions.items()
        }

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The audit entries of one object, newest first."""
        obj = self.get_object(request, unquote(object_id))
        if obj is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        if not self.has_view_or_change_permission(request, obj):
            raise PermissionDenied
        entries = AuditEntry.objects.filter(
            object_type=audit.type_of(obj), object_id=audit.name_of(obj)
        )
        context = {
            **self.admin_site.each_context(request),
            "title": f"History of {audit.name_of(obj)}",
            "subtitle": None,
            "module_name": str(capfirst(self.opts.verbose_name_plural)),
            "object": obj,
            "opts": self.opts,
            "entries": entries.order_by("-id")[:HISTORY_ENTRIES],
            "entries_max": HISTORY_ENTRIES,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/object_history.html", context)

    # --- deleting ---------------------------------------------------------------------------------

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """How many rows would go along, by kind: Django's own list holds and names each of them.

        Rows of which there is no deleting here (conversations, usage) keep their owner.
        """
        counts: dict[str, int] = {}
        protected: list[str] = []
        for obj in objs:
            for relation, number in _dependants(obj):
                name = str(relation.related_model._meta.verbose_name_plural)
                if self._may_go_along(request, relation):
                    counts[name] = counts.get(name, 0) + number
                else:
                    protected.append(f"{audit.name_of(obj)}: {name}")
        lines = [audit.name_of(obj) for obj in objs]
        return [*lines, *(f"{name}: {n}" for name, n in counts.items())], counts, set(), protected

    def _may_go_along(self, request: HttpRequest, relation: ForeignObjectRel) -> bool:
        if relation.on_delete is not models.CASCADE:
            return False
        other = self.admin_site._registry.get(relation.related_model)
        return other is None or other.has_delete_permission(request)


class ReadOnlyAdmin(AuditedAdmin):
    """Rows that only the product writes: administrators look, and change nothing."""

    actions: Sequence[str] = ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


Verb = Callable[[Any, HttpRequest, Any], bool]
"""(admin, request, one row) → whether it changed anything. Raises PermissionDenied."""


def verb(description: str, *, done: str, permissions: Sequence[str]) -> Callable[[Verb], Any]:
    """Makes an action of what is done to one row: each row done has an entry; all rows or none.

    `done` is what the page says afterwards, before the number.
    """

    def make(one: Verb) -> Any:
        @admin.action(description=description, permissions=permissions)
        @wraps(one)
        def action(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
            number = sum(_do(one, modeladmin, request, row) for row in queryset)
            modeladmin.message_user(request, f"{done}: {number}.", messages.SUCCESS)

        setattr(action, _AUDITS_ITSELF, True)
        return action

    return make


def _do(one: Verb, modeladmin: Any, request: HttpRequest, row: Any) -> bool:
    before = audit.snapshot(row)
    changed = one(modeladmin, request, row)
    if changed:
        changes = audit.changes_of(type(row), before, audit.stored(row))
        audit.record(request, one.__name__, row, changes)
    return changed


def _audited(action: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The action in one transaction with its entries, over no more than MAX_ROWS_PER_ACTION."""
    itself = name == "delete_selected" or getattr(action, _AUDITS_ITSELF, False)

    @wraps(action)
    def run(modeladmin: AuditedAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        rows = list(queryset[: MAX_ROWS_PER_ACTION + 1])
        if len(rows) > MAX_ROWS_PER_ACTION:
            limit = f"At most {MAX_ROWS_PER_ACTION} rows at once. Nothing was done."
            modeladmin.message_user(request, limit, messages.ERROR)
            return None
        chosen = queryset.filter(pk__in=[row.pk for row in rows])
        with transaction.atomic():
            before = {} if itself else {row.pk: audit.snapshot(row) for row in rows}
            response = action(modeladmin, request, chosen)
            for row in () if itself else rows:
                changes = audit.changes_of(type(row), before[row.pk], audit.stored(row))
                audit.record(request, name, row, changes)
        return response

    return run


def _record_inline(request: HttpRequest, formset: Any) -> None:
    for obj in formset.new_objects:
        _record_inline_row(request, obj, {}, audit.stored(obj))
    before = {_pk_of(form): form.initial for form in formset.initial_forms}
    for obj, names in formset.changed_objects:
        after = audit.stored(obj)
        _record_inline_row(
            request,
            obj,
            {name: before[obj.pk].get(name) for name in names},
            {name: after.get(name) for name in names},
            "change",
        )
    for form in formset.deleted_forms if formset.can_delete else ():
        obj = form.instance
        obj.pk = _pk_of(form)  # the deletion has taken it off
        _record_inline_row(request, obj, audit.snapshot(obj), {}, "delete")


def _pk_of(form: Any) -> Any:
    return form.fields[form.instance._meta.pk.name].initial


def _record_inline_row(
    request: HttpRequest,
    obj: models.Model,
    before: audit.Snapshot,
    after: audit.Snapshot,
    action: str = "add",
) -> None:
    changes = audit.changes_of(type(obj), before, after)
    audit.record(request, action, obj, changes)


def _dependants(obj: models.Model) -> Iterable[tuple[ForeignObjectRel, int]]:
    """Relations whose rows would go, or forbid to go, with `obj`; how many, up to COUNTED_ROWS."""
    for relation in obj._meta.get_fields(include_hidden=True):
        # Also those without a name on our side (related_name="+"); not the tables of many-to-many.
        if not isinstance(relation, ForeignObjectRel) or relation.related_model._meta.auto_created:
            continue
        if relation.on_delete in (None, models.SET_NULL, models.DO_NOTHING):
            continue
        rows = relation.related_model._base_manager.filter(**{relation.field.name: obj})
        if number := rows.order_by()[:COUNTED_ROWS].count():
            yield relation, number


def _users_of(email: str) -> list[uuid.UUID]:
    """At most one; looked up first, so that the list's own query can use the owner's index."""
    try:
        return [User.objects.get_by_natural_key(email).pk]
    except User.DoesNotExist:
        return []
