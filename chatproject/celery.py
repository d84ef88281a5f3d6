"""Celery delivers and supervises; the fair queue decides. See docs/decisions.md."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatproject.settings")

app = Celery("chatproject", amqp="generation.scheduler.broker:TicketAMQP")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# By name: models cannot be imported yet. It takes part in GPU workers only.
app.steps["worker"].add("generation.worker.step:GpuStep")
