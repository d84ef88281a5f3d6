"""`django.contrib.admin` with our site; stands in INSTALLED_APPS in its place."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig as DjangoAdminConfig


class AdminConfig(DjangoAdminConfig):
    default_site = "accounts.admin_site.ProductAdminSite"
