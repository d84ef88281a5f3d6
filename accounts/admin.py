"""Users, organisations and API tokens in Django's admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.db.models import ForeignKey, QuerySet
from django.forms import ModelChoiceField, ModelForm
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from accounts import tokens, views
from accounts.forms import AdminAddUserForm, AdminChangeUserForm
from accounts.models import ApiToken, Organisation, User

# Django's admin is generic in its stubs only.
if TYPE_CHECKING:
    _OrganisationAdmin = admin.ModelAdmin[Organisation]
    _ApiTokenAdmin = admin.ModelAdmin[ApiToken]
    _UserAdmin = DjangoUserAdmin[User]
else:
    _OrganisationAdmin = _ApiTokenAdmin = admin.ModelAdmin
    _UserAdmin = DjangoUserAdmin

RIGHTS = ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")
_SHOWN_ONCE = "secret_to_show"  # on the object, from its making to the end of the request

# django-allauth's own pages show secrets of second factors and take those of providers; here are
# commands (docs/operations.md) and the environment instead.
for _model in (
    EmailAddress,
    Authenticator,
    UserSession,
    SocialAccount,
    SocialApp,
    SocialToken,
):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)

admin.site.login = views.admin_sign_in  # type: ignore[method-assign]
admin.site.password_change = views.admin_change_password  # type: ignore[method-assign,assignment]


@admin.register(Organisation)
class OrganisationAdmin(_OrganisationAdmin):
    """Organisations, with their rules on residency, retention and training."""

    list_display = ("name", "residency", "retention_days", "no_training", "created")
    search_fields = ("name",)
    readonly_fields = ("created",)


@admin.register(User)
class UserAdmin(_UserAdmin):
    """Users by e-mail address. Only superusers may touch superusers and rights."""

    form = AdminChangeUserForm
    add_form = AdminAddUserForm
    ordering = ("email",)
    list_display = ("email", "name", "organisation", "is_active", "is_staff", "last_login")
    list_filter = ("is_active", "is_staff", "is_superuser", "organisation", "groups")
    list_select_related = ("organisation",)
    search_fields = ("email", "name")
    readonly_fields = ("last_login", "date_joined")
    autocomplete_fields = ("organisation",)
    fieldsets = (
        (None, {"fields": ("email", "password", "name")}),
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
        return fields if request.user.is_superuser else fields + RIGHTS[1:]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and _may_touch(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_touch(request, obj)


def _may_touch(request: HttpRequest, user: User | None) -> bool:
    return user is None or not user.is_superuser or bool(request.user.is_superuser)


@admin.register(ApiToken)
class ApiTokenAdmin(_ApiTokenAdmin):
    """Made here, its secret is shown on the very next page and nowhere else."""

    list_display = ("name", "user", "created", "expires", "revoked", "last_used")
    list_filter = ("created", "revoked", "expires")
    list_select_related = ("user",)
    search_fields = ("name", "user__email")
    fields = ("user", "name", "expires", "created", "revoked", "last_used")
    readonly_fields = ("created", "revoked", "last_used")
    actions = ("revoke",)

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        return self.readonly_fields if obj is None else ("user", "expires", *self.readonly_fields)

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> ModelChoiceField[Any] | None:
        """Only superusers may make a key to a superuser's account."""
        if db_field.name == "user" and not request.user.is_superuser:
            kwargs["queryset"] = User.objects.filter(is_superuser=False)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

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

    @admin.action(description="Revoke the selected API tokens", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        revoked = sum(tokens.revoke(token) for token in queryset)
        self.message_user(request, f"Revoked: {revoked}.", messages.SUCCESS)
