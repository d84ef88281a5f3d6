"""All paths. `/v1/runs/{g}/stream` is routed in chatproject.asgi."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from chatproject import installable, metrics, openapi, pages
from generation import usage_page

urlpatterns = [
    path("admin/queues/", include("generation.queue_urls")),  # before the admin's own
    path("admin/", admin.site.urls),
    path("accounts/usage/", usage_page.usage_page, name="usage"),
    path("accounts/", include("accounts.urls")),
    path("v1/", include("accounts.api_urls")),
    path("v1/", include("conversations.urls")),
    path("v1/", include("generation.urls")),
    path("v1/schema", openapi.SchemaView.as_view(), name="schema"),
    path("api", openapi.api_page, name="api"),
    path("metrics", metrics.metrics, name="metrics"),
    path("manifest.webmanifest", installable.manifest, name="manifest"),
    path("sw.js", installable.worker, name="worker"),
    path("offline", installable.offline, name="offline"),
    path("", pages.shell, name="home"),
    path("diagram", pages.diagram, name="diagram"),
    path("c/<str:c_id>", pages.shell, name="conversation"),
]

handler400 = "chatproject.pages.bad_request"
handler403 = "chatproject.pages.permission_denied"
handler404 = "chatproject.pages.page_not_found"
handler500 = "chatproject.pages.server_error"
