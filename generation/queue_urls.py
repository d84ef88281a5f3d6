"""Paths below `/admin/queues/`; every view passes the admin's door."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import path

from generation.queue_pages import confirm, live

app_name = "queues"


def _asking(route: str, view: type[confirm.Confirm[Any]], name: str) -> Any:
    return path(route, admin.site.admin_view(view.as_view()), name=name)


urlpatterns = [
    path("", admin.site.admin_view(live.queues), name="live"),
    path("figures", admin.site.admin_view(live.figures), name="figures"),
    _asking("pools/<slug:name>/pause/", confirm.PausePool, "pause"),
    _asking("pools/<slug:name>/resume/", confirm.ResumePool, "resume"),
    _asking("replicas/<slug:name>/drain/", confirm.Drain, "drain"),
    _asking("replicas/<slug:name>/undrain/", confirm.Undrain, "undrain"),
    _asking("runs/<slug:name>/stop/", confirm.StopRun, "stop"),
    _asking("runs/<slug:name>/move/", confirm.MoveRun, "move"),
    _asking("plans/<slug:name>/weigh/", confirm.WeighPlan, "weigh"),
]
