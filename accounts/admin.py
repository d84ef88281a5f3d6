"""Users, groups, organisations, API tokens and the audit in the admin."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import ForeignKey
from django.forms import Field, ModelChoiceField, ModelForm, MultipleChoiceField
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from accounts import audit, session_rows, tokens
from accounts.admin_base import AuditedAdmin, ReadOnlyAdmin, verb
from accounts.admin_filters import MadeSince, ValueFilter
from accounts.admin_forms import AddUserForm, AdminPasswordChangeForm, ChangeUserForm
from accounts.models import ApiToken, AuditEntry, Organisation, User
from accounts.scopes import ALL

# Django's admin is generic in its stubs only.
if TYPE_CHECKING:
    _UserAdmin = DjangoUserAdmin[User]
else:
    _UserAdmin = DjangoUserAdmin

RIGHTS = ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")
_UNLISTED = "unlisted_sessions"
_SHOWN_ONCE = "secret_to_show"  # on the object, from its making to the end of the request


@admin.register(Organisation)
class OrganisationAdmin(AuditedAdmin):
    """Organisations, with their rules on residency, retention and training."""

    list_display = ("name", "residency", "retention_days", "no_training", "created")
    search_fields = ("name",)
    readonly_fields = ("created",)


@admin.register(Group)
class GroupAdmin(AuditedAdmin, DjangoGroupAdmin):
    """Rights that several administrators have in common."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A group's rights are its members': who may change it could give themselves any."""
        return super().has_change_permission(request, obj) and _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and _is_superuser(request)


@admin.register(User)
class UserAdmin(AuditedAdmin, _UserAdmin):
    """Users by e-mail address. Only superusers may touch other administrators, and rights."""

    form = ChangeUserForm
    add_form = AddUserForm
    change_password_form = AdminPasswordChangeForm
    ordering = ("-id",)
    list_display = ("email", "name", "organisation", "is_active", "is_staff", "last_login")
    list_filter = (MadeSince, "is_active", "is_staff", "is_superuser", "organisation", "groups")
    list_select_related = ("organisation",)
    search_fields = ("email", "name")
    search_ids = {"u": "id"}
    readonly_fields = ("external_id", "last_login", "date_joined")
    autocomplete_fields = ("organisation",)
    actions = ("disable", "enable", "end_sessions", "revoke_api_tokens")
    fieldsets = (
        (None, {"fields": ("external_id", "email", "password", "name")}),
        ("Belongs to", {"fields": ("organisation", "home_region", "preferences")}),
        ("Rights", {"fields": RIGHTS}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (
            None,
            {
                "classes": ("wide",),
                "fields": (
                    "email",
                    "name",
                    "organisation",
                    "usable_password",
                    "password1",
                    "password2",
                ),
            },
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        """A staff member who may change users must not be able to make themselves more."""
        fields = tuple(super().get_readonly_fields(request, obj))
        return fields if _is_superuser(request) else fields + RIGHTS[1:]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and _may_touch(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_touch(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """From the list too, nobody deletes whom they may not touch."""
        for user in queryset:
            _refuse_untouchable(request, user)
        super().delete_queryset(request, queryset)

    @method_decorator(sensitive_post_parameters())
    def user_change_password(
        self,
        request: HttpRequest,
        id: str,  # noqa: A002  # Django's name
        form_url: str = "",
    ) -> HttpResponse:
        """The password and its audit entry, or neither."""
        with transaction.atomic():
            answer: HttpResponse = super().user_change_password(request, id, form_url)
        return answer

    def _change_name(self, request: HttpRequest) -> str:
        match = request.resolver_match
        is_password = match is not None and match.url_name == "auth_user_password_change"
        return "password_set" if is_password else "change"

    @verb("Disable the selected users", done="Disabled", permissions=["change"])
    def disable(self, request: HttpRequest, user: User) -> bool:
        _refuse_untouchable(request, user)
        if user.pk == request.user.pk:
            raise PermissionDenied  # nobody shuts themselves out by a slip
        return User.objects.filter(pk=user.pk, is_active=True).update(is_active=False) == 1

    @verb("Enable the selected users", done="Enabled", permissions=["change"])
    def enable(self, request: HttpRequest, user: User) -> bool:
        _refuse_untouchable(request, user)
        return User.objects.filter(pk=user.pk, is_active=False).update(is_active=True) == 1

    @verb("Sign the selected users out everywhere", done="Users", permissions=["change"])
    def end_sessions(self, request: HttpRequest, user: User) -> bool:
        _refuse_untouchable(request, user)
        known = vars(request)
        if _UNLISTED not in known:  # once, however many are selected
            known[_UNLISTED] = session_rows.unlisted()
        return session_rows.end_all(user, known[_UNLISTED])

    @verb("Revoke all API tokens of the selected users", done="Users", permissions=["change"])
    def revoke_api_tokens(self, request: HttpRequest, user: User) -> bool:
        _refuse_untouchable(request, user)
        live = ApiToken.objects.filter(user=user, revoked__isnull=True)
        return sum(_revoke_with_entry(request, token) for token in live) > 0


def _revoke_with_entry(request: HttpRequest, token: ApiToken) -> bool:
    revoked = tokens.revoke(token)
    if revoked:
        audit.record(request, "revoke", token)
    return revoked


def _is_superuser(request: HttpRequest) -> bool:
    return bool(cast("User", request.user).is_superuser)


def _may_touch(request: HttpRequest, user: User | None) -> bool:
    """Superusers everybody; others themselves, and people who are no administrators.

    Who sets the password of somebody has that person's rights as well.
    """
    if not isinstance(user, User) or _is_superuser(request) or user.pk == request.user.pk:
        return True
    return not (user.is_staff or user.is_superuser)


def _refuse_untouchable(request: HttpRequest, user: User) -> None:
    if not _may_touch(request, user):
        raise PermissionDenied


@admin.register(ApiToken)
class ApiTokenAdmin(AuditedAdmin):
    """Made here, its secret is shown on the very next page and nowhere else."""

    list_display = ("name", "user", "created", "expires", "revoked", "last_used")
    list_filter = (MadeSince, ("revoked", admin.EmptyFieldListFilter))
    list_select_related = ("user",)
    ordering = ("-id",)
    search_fields = ("name",)
    search_ids = {"t": "id", "u": "user_id"}
    search_user = "user"
    fields = ("user", "name", "scopes", "expires", "created", "revoked", "last_used")
    readonly_fields = ("created", "revoked", "last_used")
    autocomplete_fields = ("user",)
    actions = ("revoke",)

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        """What a program was given stays: another token is another token."""
        given = () if obj is None else ("user", "scopes", "expires")
        return (*given, *self.readonly_fields)

    def formfield_for_dbfield(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Field | None:
        if db_field.name == "scopes":
            boxes = UnfoldAdminCheckboxSelectMultipleWidget
            choices = [(scope, scope) for scope in ALL]
            return MultipleChoiceField(choices=choices, widget=boxes, initial=ALL)
        field: Field | None = super().formfield_for_dbfield(db_field, request, **kwargs)
        return field

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return super().has_change_permission(request, obj) and _may_touch_token(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_touch_token(request, obj)

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> ModelChoiceField[Any] | None:
        """Only superusers may make a key to another's account: it opens all that is in it."""
        if db_field.name == "user" and not _is_superuser(request):
            kwargs["queryset"] = User.objects.filter(pk=cast("User", request.user).pk)
        field: ModelChoiceField[Any] | None = super().formfield_for_foreignkey(
            db_field, request, **kwargs
        )
        return field

    def save_model(
        self, request: HttpRequest, obj: ApiToken, form: ModelForm[ApiToken], change: Any
    ) -> None:
        if change:
            obj.save(update_fields=["name"])
            return
        secret = tokens.new_secret()
        obj.digest = tokens.digest(secret)
        obj.save(force_insert=True)
        vars(obj)[_SHOWN_ONCE] = secret

    def response_add(
        self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Shows the secret in the answer itself: a message would lie in a cookie or a session."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "API token made",
            "token": obj,
            "secret": vars(obj).pop(_SHOWN_ONCE),
        }
        # The admin marks every page "no-store", so this one is in no browser's cache either.
        return TemplateResponse(request, "accounts/admin_api_token_made.html", context)

    @verb("Revoke the selected API tokens", done="Revoked", permissions=["change"])
    def revoke(self, request: HttpRequest, token: ApiToken) -> bool:
        _refuse_untouchable(request, token.user)
        return tokens.revoke(token)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for token in queryset.select_related("user"):
            _refuse_untouchable(request, token.user)
        super().delete_queryset(request, queryset)


def _may_touch_token(request: HttpRequest, token: ApiToken | None) -> bool:
    return not isinstance(token, ApiToken) or _may_touch(request, token.user)


class ActionFilter(ValueFilter):
    title = "action"
    parameter_name = "action"
    column = "action"

    def values(self) -> Iterable[tuple[str, str]]:
        names = {"add", "change", "delete", "refused", "signed_in", "password_set", "revoke"}
        for modeladmin in admin.site._registry.values():
            names |= {name for name in modeladmin.actions or () if isinstance(name, str)}
        return [(name, name) for name in sorted(names)]


class ObjectTypeFilter(ValueFilter):
    title = "object"
    parameter_name = "object"
    column = "object_type"

    def values(self) -> Iterable[tuple[str, str]]:
        models = admin.site._registry
        return sorted((audit.type_of(m), str(m._meta.verbose_name)) for m in models)


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """What administrators did. Nobody changes or deletes an entry, here or in the database."""

    list_display = ("at", "actor_email", "action", "object_type", "object_id", "address")
    list_filter = (MadeSince, ActionFilter, ObjectTypeFilter)
    ordering = ("-id",)
    search_help_text = "The actor's e-mail address or u_… id, or the object's id."
    fields = readonly_fields = (
        "id",
        "at",
        "actor",
        "action",
        "object_type",
        "object_id",
        "what_changed",
        "address",
    )
    search_ids: ClassVar[Any] = {"u": "actor_id"}

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[Any, bool]:
        term = search_term.strip()
        if "@" in term:
            user = User.objects.filter(email__iexact=term).first()
            return queryset.filter(actor_id=user.pk if user else None), False
        rows, _ = super().get_search_results(request, queryset, term)
        of_object = queryset.filter(object_type__in=_types(), object_id=term)
        return (rows | of_object) if term else rows, False

    @admin.display(description="actor")
    def actor(self, entry: AuditEntry) -> str:
        return f"{entry.actor_email} (u_{entry.actor_id.hex})"

    @admin.display(description="changes")
    def what_changed(self, entry: AuditEntry) -> str:
        return json.dumps(entry.changes, indent=1, ensure_ascii=False) if entry.changes else "none"


def _types() -> list[str]:
    return [audit.type_of(model) for model in admin.site._registry]
