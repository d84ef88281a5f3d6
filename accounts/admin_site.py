"""The admin's site: the same door as everybody's, no page without an audit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.contrib.admin import AdminSite
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from accounts import audit

# unfold is not typed; to the type checker it is what it derives from.
if TYPE_CHECKING:
    UnfoldAdminSite = AdminSite
else:
    from unfold.sites import UnfoldAdminSite

UNAUDITED_VERBS = ("actions_list", "actions_row", "actions_detail", "actions_submit_line")
"""unfold's own kinds of action: they answer to GET and pass no audit. `actions` do both right."""


class ProductAdminSite(UnfoldAdminSite):
    """Takes only admins that leave audit entries, and notes whom it refuses."""

    site_title = site_header = ""  # the product's name, from UNFOLD

    def register(
        self, model_or_iterable: Any, admin_class: type[Any] | None = None, **options: Any
    ) -> None:
        """Raises ImproperlyConfigured for an admin of ours that is not audited.

        Admins that packages bring along are left out: they would show what they hold (secrets of
        second factors, sessions) and leave no trace. Who wants one derives it from AuditedAdmin.
        """
        if admin_class is None or not _is_audited(admin_class):
            if _is_of_a_package(admin_class or _first(model_or_iterable)):
                return
            raise ImproperlyConfigured(f"{admin_class} must derive from AuditedAdmin.")
        if any(getattr(admin_class, kind, ()) for kind in UNAUDITED_VERBS):
            raise ImproperlyConfigured(f"{admin_class}: use `actions`, of which each is audited.")
        super().register(model_or_iterable, admin_class, **options)

    def get_urls(self) -> list[Any]:
        """Without unfold's search over all models, which keeps what it found in the cache."""
        return AdminSite.get_urls(self)

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Any:
        inner = super().admin_view(view, cacheable)

        @wraps(inner)
        def noted(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                return inner(request, *args, **kwargs)  # type: ignore[no-any-return]
            except PermissionDenied:
                audit.record_refusal(request)
                raise

        return noted

    @method_decorator(never_cache)
    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The sign-in page of everybody, with its rate limits; 403 for who is no administrator."""
        from accounts import views  # the views know the site

        try:
            return views.admin_sign_in(request, extra_context)
        except PermissionDenied:
            audit.record_refusal(request)
            raise

    def password_change(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        from accounts import views

        return views.admin_change_password(request, extra_context)


def _is_audited(admin_class: type[Any]) -> bool:
    from accounts.admin_base import AuditedAdmin  # it knows models, which load after the site

    return issubclass(admin_class, AuditedAdmin)


def _first(model_or_iterable: Any) -> type[Model]:
    if isinstance(model_or_iterable, Iterable):
        found: type[Model] = next(iter(model_or_iterable))
        return found
    return model_or_iterable  # type: ignore[no-any-return]


def _is_of_a_package(of: type[Any]) -> bool:
    file = getattr(sys.modules[of.__module__], "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file
